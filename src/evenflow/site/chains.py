"""Chains: in which objects of the store the state of a table's partitions is, as of the last checkpoint that became whole (K3, K7).

An object has all rows of some partitions (their base), or what has changed in them since the object before. A checkpoint names all that it
takes to have the state again, so what is needed never depends on what another checkpoint says. Values only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from evenflow.availability.entries import StoredObject

DELTAS_MAX: Final = 16
"""With so many changes behind its base a partition is due for a new one: each is an object to be read at a restart."""
SHARE: Final = 8
"""At most one part in so many of a table's rows is written anew by a checkpoint, apart from what has no base yet."""


@dataclass(frozen=True, slots=True)
class Link:
    """An object, as far as it is needed. epoch: as of the end of which. rows: that it has of each partition. since: the epoch that each
    partition's rows are since, -1 where it has all of them."""

    stored: StoredObject
    epoch: int
    rows: Mapping[int, int]
    since: Mapping[int, int]


Chain = Sequence[Link]
"""Of one table, oldest first."""


def extended(chain: Chain, new: Sequence[Link]) -> list[Link]:
    """The chain of a checkpoint that has written these: what is needed of the one before, and they."""
    changed = {partition for link in new for partition, since in link.since.items() if since >= 0}
    return [*kept_of(chain, changed), *new]


def kept_of(chain: Chain, partitions: Collection[int]) -> list[Link]:
    """What of it these partitions need."""
    kept = []
    for link in chain:
        rows = {partition: count for partition, count in link.rows.items() if partition in partitions}
        if rows:
            kept.append(replace(link, rows=rows))
    return kept


def merged(links: Iterable[Link]) -> list[Link]:
    """One chain of those of several sites' objects, each of which is there once; by epoch, so each partition's are in order."""
    found: dict[str, Link] = {}
    for link in links:
        known = found.get(link.stored.name, link)
        found[link.stored.name] = replace(link, rows={**known.rows, **link.rows}, since={**known.since, **link.since})
    return sorted(found.values(), key=lambda link: link.epoch)


def newest(chain: Chain) -> dict[int, int]:
    """By partition: the epoch as of whose end the chain has it."""
    return {partition: link.epoch for link in chain for partition in link.rows}


def in_bases(chain: Chain) -> int:
    """How many rows have a base."""
    base: dict[int, int] = {}
    for link in chain:
        base |= {partition: count for partition, count in link.rows.items() if link.since[partition] < 0}
    return sum(base.values())


def due(chain: Chain, held: Mapping[int, int], partitions: Collection[int]) -> set[int]:
    """Which of these partitions are to have a new base (K7). held: rows of each now. Those whose changes outweigh their base first, then
    those with most links; no more than one part in `SHARE` of all rows, though one partition always."""
    base, behind, links = dict[int, int](), dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 0)
    for link in chain:
        for partition, count in link.rows.items():
            if link.since[partition] < 0:
                base[partition], behind[partition], links[partition] = count, 0, 0
            elif partition in behind:
                behind[partition], links[partition] = behind[partition] + count, links[partition] + 1
    wanted = [p for p in partitions if p in base and (behind[p] > base[p] or links[p] >= DELTAS_MAX)]
    wanted.sort(key=lambda p: (-behind[p] / max(1, base[p]), -links[p], p))
    left, chosen = sum(held[p] for p in partitions) / SHARE, set[int]()
    for partition in wanted:
        if held[partition] <= left or not chosen:
            chosen.add(partition)
            left -= held[partition]
    return chosen
