"""A partition's state from the objects of a checkpoint: the one that has all of its rows, and what was written since, one after the other.

Which object an object is to be added to it says itself, by the epoch that it is since. So an object that is missing, or is of another
lineage, does not pass for nothing: the chain would have a gap, or slots in use would be without rows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from evenflow.errors import CheckpointCorrupt
from evenflow.kernels.table import PAGE
from evenflow.state.objects import Opened, Origin, Taken, open_object, rows_state, table_state, touched, whole_state
from evenflow.state.page_snapshot import State, by_key
from evenflow.stream.arrays import Int64s
from evenflow.stream.digest import digest_of

Named = tuple[str, str]
"""An object's name and digest, as the journal has them."""
Get = Callable[[str], bytes]
"""An object's bytes by its name, or OSError."""
KEY: Final = ("hash", "check", "window")
WRONG = (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, struct.error, zlib.error)


@dataclass(frozen=True, slots=True)
class _Link:
    """What one object has of a partition. since: -1 if it is all. pages, present: see `objects.touched`."""

    name: str
    epoch: int
    since: int
    rows: pa.Table
    said: Any
    pages: Int64s
    present: Any


def states_of(
    stored: Sequence[Named], origin: Origin, partitions: Collection[int], get: Get, proven: set[str] | None = None
) -> dict[int, State]:
    """By partition: the states of one step as of the end of the origin's epoch, of those partitions that have some.

    stored: the step's objects of one piece, oldest first. proven: names of those whose bytes, which `get` still has, were found to be right
    before; it is added to. Raises CheckpointCorrupt, which names the object, its box and partitions.
    """
    chains: dict[int, list[_Link]] = {}
    for each in stored:
        for partition, link in _read(*each, origin, partitions, get, set() if proven is None else proven).items():
            if link.since < 0:  # What was before it may be here for the sake of others.
                chains[partition] = []
            chains.setdefault(partition, []).append(link)
    states = {}
    for partition, chain in chains.items():
        _check(chain, partition, origin)
        try:
            state = _folded(chain)
        except WRONG as error:
            _refuse(chain[-1].name, origin, [partition], f"{type(error).__name__}: {error}")
        if state is not None:
            states[partition] = state
    return states


def _check(chain: Sequence[_Link], partition: int, origin: Origin) -> None:
    """Each link is added to the one before it, and the last one is of the origin's epoch."""
    for before, link in zip((None, *chain), chain, strict=False):
        if link.since != (-1 if before is None else before.epoch):
            last = "nothing" if before is None else f"epoch {before.epoch}"
            _refuse(link.name, origin, [partition], f"it has changes since epoch {link.since}, and comes after {last}")
    if chain[-1].epoch != origin.epoch:
        _refuse(chain[-1].name, origin, [partition], f"it is of epoch {chain[-1].epoch}, and nothing of epoch {origin.epoch} follows")


def _read(name: str, digest: str, origin: Origin, partitions: Collection[int], get: Get, proven: set[str]) -> dict[int, _Link]:
    try:
        data = get(name)
    except OSError as error:
        _refuse(name, origin, partitions, f"{type(error).__name__}: {error}", "read")
    if name not in proven and digest_of(data) != digest:
        _refuse(name, origin, partitions, f"its {len(data)} bytes are not those that were written")
    proven.add(name)
    try:
        return _links(name, open_object(data, origin, partitions, before=True))
    except WRONG as error:
        _refuse(name, origin, partitions, f"{type(error).__name__}: {error}")


def _links(name: str, opened: Opened) -> dict[int, _Link]:
    said = opened.said
    nothing = np.zeros(0, np.int64), np.zeros((0, PAGE), np.bool_)
    if said["form"] != "delta":
        return {p: _Link(name, said["epoch"], -1, rows, said, *nothing) for p, rows in opened.rows.items()}
    changes = touched(said)
    return {
        p: _Link(name, said["epoch"], changes[p][0], rows, said, *(changes[p][1:] if changes[p][0] >= 0 else nothing))
        for p, rows in opened.rows.items()
    }


def _folded(chain: Sequence[_Link]) -> State | None:
    """All links of one partition as one state; None if there is no row left."""
    said = chain[0].said
    if said["form"] == "state":
        return whole_state(chain[0].rows, said)
    if len(chain) == 1:
        return table_state(chain[0].rows, said) if chain[0].rows.num_rows else None
    if len({link.said["width"] for link in chain}) > 1:
        raise ValueError("its rows are of another table than those before")
    slots = [link.rows.column("slot").to_numpy().astype(np.int64) for link in chain]
    named = [*(each // PAGE for each in slots), *(link.pages for link in chain)]
    seen = np.zeros(max((int(each.max()) for each in named if each.size), default=-1) + 1, np.bool_)
    for each in named:
        seen[each] = True
    pages = np.flatnonzero(seen)
    current, at = np.full((pages.size, PAGE), -1, np.int64), 0
    flat, place = current.reshape(-1), np.zeros(seen.size, np.int64)
    place[pages] = np.arange(pages.size)
    for link, mine in zip(chain, slots, strict=True):
        here = place[link.pages]
        current[here] = np.where(link.present, current[here], -1)
        flat[place[mine // PAGE] * PAGE + mine % PAGE] = np.arange(at, at + mine.size)
        at += mine.size
        if ((current[here] >= 0) != link.present).any():
            raise ValueError("slots that are in use have no row in the objects before, or the other way round")
    used = np.zeros(at, np.bool_)
    used[flat[flat >= 0]] = True
    if not used.any():
        return None
    ends = np.cumsum([0, *(mine.size for mine in slots)])
    kept = [np.flatnonzero(used[start:stop]) for start, stop in pairwise(ends)]
    pairs = [(link.rows, rows) for link, rows in zip(chain, kept, strict=True) if rows.size]
    key = (np.concatenate([rows.column(name).to_numpy().view(np.uint64)[mine] for rows, mine in pairs]) for name in KEY)
    order = by_key(*key, runs=True)
    into, count = np.empty(order.size, np.int64), order.size
    into[order] = np.arange(count)
    taken, at = [], 0
    for rows, mine in pairs:
        taken.append(Taken(rows, mine, into[at : at + mine.size]))
        at += mine.size
    return rows_state(taken, count, said)


def _refuse(name: str, origin: Origin, partitions: Collection[int], why: str, what: str = "restored") -> NoReturn:
    whose = ", ".join(map(str, sorted(partitions)))
    raise CheckpointCorrupt(f"object {name!r} with the state of box {origin.box!r}, partitions {whose}, cannot be {what}: {why}")
