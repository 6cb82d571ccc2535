"""A partition's state from the objects of a checkpoint: the one that has all of its rows, and what was written since, one after the other.

Which object an object is to be added to it says itself, by the epoch that it is since. So an object that is missing, or is of another
lineage, does not pass for nothing: the chain would have a gap, or slots in use would be without rows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from evenflow.errors import CheckpointCorrupt
from evenflow.kernels.table import PAGE
from evenflow.state.held_objects import FORMS, Held, held_in, held_state
from evenflow.state.objects import Opened, Origin, Taken, laid, open_object, rows_state, table_state, touched, whole_state
from evenflow.state.page_snapshot import State, by_key
from evenflow.state.reused import Reused
from evenflow.stream.arrays import Bools, Int64s, UInt64s
from evenflow.stream.digest import digest_of

Named = tuple[str, str]
"""An object's name and digest, as the journal has them."""
Get = Callable[[str], State]
"""An object's bytes by its name, or OSError."""
KEY: Final = ("hash", "check", "window")
PAGE_BITS: Final = PAGE.bit_length() - 1
"""A slot's page is the slot shifted by so many."""
READ_ROWS: Final = 1 << 17
"""Rows of some partitions that are read in one go, about: 8 MB. Their memory serves for those that follow. What a process has never touched
before takes most of the time where a system has to get it from its host."""
WRONG = (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, struct.error, zlib.error)


@dataclass(frozen=True, slots=True)
class Link:
    """What one object has of a partition. since: -1 if it is all. count: its rows, which nobody has decoded yet. pages, present: see
    `objects.touched`. laid: the pages in which the rows of before it lie, None: where they were. held: of held rows, which are one in the
    file."""

    name: str
    epoch: int
    since: int
    count: int
    opened: Opened
    pages: Int64s
    present: Any
    laid: Int64s | None = None
    held: Held | None = None

    @property
    def rows(self) -> int:
        """Of the operator's, that it has."""
        return self.count if self.held is None else self.held.rows

    @property
    def said(self) -> Mapping[str, Any]:
        return self.opened.said


Chain = list[Link]
"""All that a partition's state takes, oldest first."""


def states_of(
    stored: Sequence[Named], origin: Origin, partitions: Collection[int], get: Get, proven: set[str] | None = None
) -> dict[int, State]:
    """By partition: the states of one step as of the end of the origin's epoch, of those partitions that have some. As `chains_of`."""
    states: dict[int, State] = {}
    for some in folded(chains_of(stored, origin, partitions, get, proven), origin):
        states |= some
    return states


def chains_of(
    stored: Sequence[Named], origin: Origin, partitions: Collection[int], get: Get, proven: set[str] | None = None
) -> dict[int, Chain]:
    """By partition: what one step's state is made of as of the end of the origin's epoch, of those partitions of which there is something.

    stored: the step's objects of one piece, oldest first. proven: names of those whose bytes, which `get` still has, were found to be right
    before; it is added to. Raises CheckpointCorrupt, which names the object, its box and partitions.
    """
    chains: dict[int, Chain] = {}
    for each in stored:
        for partition, link in _read(*each, origin, partitions, get, set() if proven is None else proven).items():
            if link.since < 0:  # What was before it may be here for the sake of others.
                chains[partition] = []
            chains.setdefault(partition, []).append(link)
    for partition, chain in chains.items():
        _check(chain, partition, origin)
    return chains


def folded(chains: Mapping[int, Chain], origin: Origin) -> Iterator[dict[int, State]]:
    """The states by partition, of those that have one, some partitions at a time, and no more than these in memory. Raises
    CheckpointCorrupt."""
    for states in folded_together([(origin, chains)]):
        yield {partition: state for (partition, _), state in states.items()}


def folded_together(steps: Sequence[tuple[Origin, Mapping[int, Chain]]]) -> Iterator[dict[tuple[int, int], State]]:
    """The same of several steps, by (partition, step), all of a partition's at once: behind each part there is nothing left to come for its
    partitions. Raises CheckpointCorrupt."""
    memory = Reused()
    for partitions in _in_turn([chains for _, chains in steps]):
        states: dict[tuple[int, int], State] = {}
        for origin, chains in steps:
            here = {partition: chains[partition] for partition in partitions if partition in chains}
            rows = _rows(here, origin)
            for partition, chain in here.items():
                try:
                    state = _folded(chain, rows.pop(partition), memory)
                except WRONG as error:
                    _refuse(chain[-1].name, origin, [partition], f"{type(error).__name__}: {error}")
                if state is not None:
                    states[partition, origin.step] = state
        yield states


def _in_turn(steps: Sequence[Mapping[int, Chain]]) -> Iterator[list[int]]:
    """The partitions as they lie in the objects, so that hardly any row group is decoded twice, as many at a time as `READ_ROWS` wants.
    Key groups are in the same order in all steps, so the first one that has a partition says where it lies."""
    first: dict[int, tuple[int, Link]] = {}
    for step, chains in enumerate(steps):
        for partition, chain in chains.items():
            first.setdefault(partition, (step, chain[0]))
    some, size = list[int](), 0
    for partition in sorted(first, key=lambda p: (first[p][0], first[p][1].name, first[p][1].opened.places[p])):
        some.append(partition)
        size += sum(link.rows for chains in steps for link in chains.get(partition, ()))
        if size >= READ_ROWS:
            yield some
            some, size = [], 0
    if some:
        yield some


def _rows(chains: Mapping[int, Chain], origin: Origin) -> dict[int, list[pa.Table]]:
    """The rows of each link of these chains."""
    wanted = dict[str, tuple[Opened, list[int]]]()
    for partition, chain in chains.items():
        for link in chain:
            wanted.setdefault(link.name, (link.opened, []))[1].append(partition)
    read = {}
    for name, (opened, partitions) in wanted.items():
        try:
            read[name] = opened.rows(partitions)
        except WRONG as error:
            _refuse(name, origin, partitions, f"{type(error).__name__}: {error}")
    return {partition: [read[link.name][partition] for link in chain] for partition, chain in chains.items()}


def _check(chain: Sequence[Link], partition: int, origin: Origin) -> None:
    """Each link is added to the one before it, and the last one is of the origin's epoch."""
    for before, link in zip((None, *chain), chain, strict=False):
        if link.since != (-1 if before is None else before.epoch):
            last = "nothing" if before is None else f"epoch {before.epoch}"
            _refuse(link.name, origin, [partition], f"it has changes since epoch {link.since}, and comes after {last}")
    if chain[-1].epoch != origin.epoch:
        _refuse(chain[-1].name, origin, [partition], f"it is of epoch {chain[-1].epoch}, and nothing of epoch {origin.epoch} follows")


def _read(name: str, digest: str, origin: Origin, partitions: Collection[int], get: Get, proven: set[str]) -> dict[int, Link]:
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


def _links(name: str, opened: Opened) -> dict[int, Link]:
    said = opened.said
    nothing = np.zeros(0, np.int64), np.zeros((0, PAGE), np.bool_)
    if said["form"] in FORMS:
        held = held_in(said)
        return {p: Link(name, said["epoch"], held[p].since, 1, opened, *nothing, held=held[p]) for p in opened.places}
    if said["form"] != "delta":
        return {p: Link(name, said["epoch"], -1, stop - start, opened, *nothing) for p, (start, stop) in opened.places.items()}
    changes, moved = touched(said), laid(said)
    found = {}
    for p, (start, stop) in opened.places.items():
        since, pages, present = changes[p]
        pages, present = (pages, present) if since >= 0 else nothing
        found[p] = Link(name, said["epoch"], since, stop - start, opened, pages, present, moved.get(p))
    return found


def _folded(chain: Chain, rows: Sequence[pa.Table], memory: Reused) -> State | None:
    """All links of one partition as one state; None if there is no row left. rows: of each link. memory: for a table's state."""
    said = chain[0].said
    if said["form"] == "state":
        if len(chain) > 1:
            raise ValueError("it has changes of a state to which none can be added")
        return whole_state(rows[0], said)
    if chain[0].held is not None:
        return held_state([(_held(link), row) for link, row in zip(chain, rows, strict=True)])
    if len(chain) == 1:
        return table_state(rows[0], said, memory) if chain[0].count else None
    if len({link.said["width"] for link in chain}) > 1:
        raise ValueError("its rows are of another table than those before")
    ends = np.cumsum([0, *(link.count for link in chain)])
    bounds = [0, *(at for at, link in enumerate(chain) if link.laid is not None), len(chain)]
    kept = np.zeros(0, np.int64)
    for first, stop in pairwise(bounds):
        kept = _stage(chain, rows, first, stop, ends, kept)
    if not kept.size:
        return None
    used, into = np.zeros(ends[-1], np.bool_), np.empty(ends[-1], np.int64)
    used[kept], into[kept] = True, np.arange(kept.size)
    taken = []
    for table, start, end in zip(rows, ends[:-1], ends[1:], strict=True):
        if (mine := np.flatnonzero(used[start:end])).size:
            taken.append(Taken(table, mine, into[start + mine]))
    return rows_state(taken, kept.size, said, memory)


def _held(link: Link) -> Held:
    if link.held is None:
        raise ValueError("it has rows of a table, and those before are held")
    return link.held


def _stage(chain: Chain, rows: Sequence[pa.Table], first: int, stop: int, ends: Int64s, before: Int64s) -> Int64s:
    """What is left of a partition behind these links, which lie in one table; in order. Rows are numbered over all links. before: what was
    left before them, in order: so it was laid when it was restored."""
    links = chain[first:stop]
    if stop - first == 1 and links[0].since < 0:
        return np.arange(ends[first], ends[stop])
    slots = [table.column("slot").to_numpy().astype(np.int64) for table in rows[first:stop]]
    pages_before = links[0].laid if links[0].laid is not None else np.zeros(0, np.int64)
    if pages_before.size != -(-before.size // PAGE):
        raise ValueError(f"it says of {pages_before.size} pages where {before.size} rows lie")
    mine_in = [each >> PAGE_BITS for each in slots]
    named = [pages_before, *mine_in, *(link.pages for link in links)]
    seen = np.zeros(max((int(each.max()) for each in named if each.size), default=-1) + 1, np.bool_)
    for each in named:
        seen[each] = True
    pages = np.flatnonzero(seen)
    current = np.full((pages.size, PAGE), -1, np.int64)
    flat, place = current.reshape(-1), np.zeros(seen.size, np.int64)
    place[pages] = np.arange(pages.size)
    at = np.arange(before.size)
    flat[place[pages_before][at >> PAGE_BITS] * PAGE + (at & PAGE - 1)] = before
    for link, mine, pages_of, start in zip(links, slots, mine_in, ends[first:stop], strict=True):
        here = place[link.pages]
        current[here] = np.where(link.present, current[here], -1)
        flat[place[pages_of] * PAGE + (mine & PAGE - 1)] = np.arange(start, start + mine.size)
        if ((current[here] >= 0) != link.present).any():
            raise ValueError("slots that are in use have no row in the objects before, or the other way round")
    used = np.zeros(ends[stop], np.bool_)
    used[flat[flat >= 0]] = True
    return _by_key(rows[:stop], used, ends)


def _by_key(rows: Sequence[pa.Table], used: Bools, ends: Int64s) -> Int64s:
    """The rows in use, by key. Those of each link are so already."""
    kept = [np.flatnonzero(used[start:end]) for start, end in pairwise(ends[: len(rows) + 1])]
    pairs = [(table, mine) for table, mine in zip(rows, kept, strict=True) if mine.size]
    if not pairs:
        return np.zeros(0, np.int64)

    def column(name: str) -> UInt64s:
        return np.concatenate([table.column(name).to_numpy().view(np.uint64)[mine] for table, mine in pairs])

    return np.flatnonzero(used)[by_key(column(KEY[0]), lambda tied: [column(name)[tied] for name in KEY[1:]], runs=True)]


def _refuse(name: str, origin: Origin, partitions: Collection[int], why: str, what: str = "restored") -> NoReturn:
    whose = ", ".join(map(str, sorted(partitions)))
    raise CheckpointCorrupt(f"object {name!r} with the state of box {origin.box!r}, partitions {whose}, cannot be {what}: {why}")
