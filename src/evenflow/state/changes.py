"""What a checkpoint takes of a `PagedTable`: of each partition all rows, or those written since the last whole checkpoint (K2, K3).

One pass over the table of pages says which rows may be wanted, and guards their pages, and only them: a page that nobody has written
since needs neither a copy nor a look. A row that was written says so itself by its mark, which only grows. What was removed is seen by
what is still there: of every page that was written the slots in use, 256 bits. So a removal costs nothing when it happens.

The rows are read beside the loop. Nothing holds the interpreter for long then: what is copied while a kernel writes is in the undo log as
it was before, and the log is read last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.table import MARK, PAGE
from evenflow.state.apart import among
from evenflow.state.lineages import NOWHERE, Point
from evenflow.state.page_snapshot import Captured, Ordinals, sorted_rows
from evenflow.stream.arrays import Objects

SCANNED_PAGES: Final = 64
"""Pages looked at in one go: 16,384 rows."""
PART_ROWS: Final = 1 << 20
"""Rows that are read in one go, about: a part of the capture, some 64 MB, which is an object of its own."""

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """What a checkpoint has of one partition: its rows if since is -1, else those written after the end of epoch `since`.

    words: int64 (n, W), marks cleared, sorted by (hash, check, window). slots: int64 (n,). objects: a column each, (n,). pages, present: of
    the pages that were written since, int64 (p,), and which of their slots are in use, uint8 (p, 32); none where all rows are here.
    laid: where the rows that it had at the end of epoch `since` lie, if that is not where the object before says: the pages, in order.
    """

    partition: int
    since: int
    words: npt.NDArray[np.int64]
    slots: Ordinals
    objects: tuple[Objects, ...]
    pages: Ordinals
    present: Bits
    laid: Ordinals | None = None


class TablePart:
    """Some partitions of a table as of its capture. May be read from another thread while the table goes on.

    since: by partition, what it has to have rows since. pages: int64 (n,), ascending, those that may have them. owners: int64 (n,), their
    partitions. mark: the newest of a row as of the capture; it is the pages' guard. laid: see `PartitionRows`, of some.
    """

    def __init__(
        self,
        owner: Captured,
        since: Mapping[int, Point],
        pages: Ordinals,
        owners: Ordinals,
        mark: int,
        laid: Mapping[int, Ordinals] | None = None,
    ) -> None:
        self.since, self.pages, self.mark, self._laid = dict(since), pages, mark, dict(laid or {})
        self._owners, self._types = owners, tuple(owner.object_types)
        self._start, self._object_start = owner.logged()
        self._table: Captured | None = owner
        self._left: dict[int, PartitionRows] = {}

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Of the objects of a row."""
        return self._types

    @property
    def is_read(self) -> bool:
        """Whether the table's rows are no longer needed."""
        return self._table is None

    def covers(self, partition: int) -> bool:
        return partition in self.since

    def read_out(self, partition: int) -> None:
        """The partition leaves the table: copy what is wanted of it before."""
        if self._table is not None and partition not in self._left:
            self._left |= self._read(self._table, (partition,))

    def rows(self, rest: Callable[[], None] = lambda: None) -> list[PartitionRows]:
        """By partition, ascending; once. rest: is called now and then, to give way. After that the table may forget what it was."""
        assert self._table is not None, "a part is read once"
        here = [partition for partition in sorted(self.since) if partition not in self._left]
        found = self._read(self._table, here, rest)
        self._table = None
        found |= self._left  # What has left meanwhile was read before its rows went.
        return [found[partition] for partition in sorted(found)]

    def _read(self, owner: Captured, partitions: Collection[int], rest: Callable[[], None] = lambda: None) -> dict[int, PartitionRows]:
        mine = np.isin(self._owners, np.fromiter(partitions, np.int64))
        pages, owners = self.pages[mine], self._owners[mine]
        low = _of_partition({p: point.mark for p, point in self.since.items()})[owners] if owners.size else np.zeros(0, np.int64)
        taken = _Taken(owner, pages, low, self.mark)
        for first in range(0, pages.size, SCANNED_PAGES):
            taken.scan(slice(first, first + SCANNED_PAGES))
            rest()
        taken.settle(self._start, self._object_start, rest)
        found = {}
        for partition in partitions:
            found[partition] = self._of(partition, taken, owners)
            rest()
        return found

    def _of(self, partition: int, taken: _Taken, owners: Ordinals) -> PartitionRows:
        pages = np.flatnonzero(owners == partition)
        mine = np.flatnonzero(owners[taken.page] == partition) if taken.page.size else taken.page
        mine = mine[sorted_rows(taken.words[mine])]
        words = taken.words.take(mine, axis=0)
        words[:, MARK] = 0
        objects = tuple(column[mine] for column in taken.objects)
        since = self.since[partition].epoch
        pages = pages if since >= 0 else pages[:0]
        present = np.packbits(taken.present[pages], axis=1)
        laid = self._laid.get(partition)
        return PartitionRows(partition, since, words, taken.slots[mine], objects, taken.pages[pages], present, laid)


class _Taken:
    """Rows that were read, and which slots are in use. pages: that are looked at. low: a row counts if its mark is greater; high: and not
    greater than this. page: of each row, its place in `pages`."""

    def __init__(self, owner: Captured, pages: Ordinals, low: Ordinals, high: int) -> None:
        self.pages, self._low, self._high, self._owner = pages, low, high, owner
        self.present = np.zeros((pages.size, PAGE), np.bool_)
        self._pieces: list[tuple[Ordinals, npt.NDArray[np.int64], list[Objects]]] = []
        self.slots = self.page = np.zeros(0, np.int64)
        self.words = np.zeros((0, owner.width), np.int64)
        self.objects: list[Objects] = []

    def scan(self, here: slice) -> None:
        """Some pages as they are now."""
        words, numbers = self._owner.look(), self.pages[here]
        marks = words.reshape(-1, PAGE, self._owner.width)[numbers, :, MARK]
        self.present[here] = (marks > 0) & (marks <= self._high)
        at, within = np.nonzero(self.present[here] & (marks > self._low[here, None]))
        slots = numbers[at] * PAGE + within
        self._pieces.append((slots, words.take(slots, axis=0), [column[slots] for column in self._owner.objects]))

    def settle(self, start: int, object_start: int, rest: Callable[[], None]) -> None:
        """What was written since the capture, as it was before: the oldest entry of the log counts."""
        owner = self._owner
        log, stop = owner.log()
        slots, first = _first_of_each(log[start:stop, 0])
        mine = _places(self.pages, slots // PAGE) >= 0
        slots, first = slots[mine], first[mine]
        logged = log[start:stop, 1:].take(first, axis=0)
        objects = [column[slots] for column in owner.objects]
        _undo_objects(objects, slots, owner.object_log[object_start:])
        del log
        page = _places(self.pages, slots // PAGE)
        used = logged[:, MARK] > 0
        self.present[page, slots % PAGE] = used
        kept = np.flatnonzero(used & (logged[:, MARK] > self._low[page])) if page.size else page
        self._join(slots, (slots[kept], logged[kept], [column[kept] for column in objects]), rest)

    def _join(self, again: Ordinals, last: tuple[Ordinals, npt.NDArray[np.int64], list[Objects]], rest: Callable[[], None]) -> None:
        """All pieces as one. again: slots that the last piece, and it only, speaks for."""
        pieces = []
        for slots, words, objects in self._pieces:
            stale = among(slots, again)
            if stale.any():
                kept = np.flatnonzero(~stale)
                slots, words, objects = slots[kept], words[kept], [column[kept] for column in objects]
            pieces.append((slots, words, objects))
            rest()
        pieces.append(last)
        self._pieces = []
        self.slots = np.concatenate([slots for slots, _, _ in pieces])
        self.words = np.concatenate([words for _, words, _ in pieces])
        self.objects = [np.concatenate([columns[i] for _, _, columns in pieces]) for i in range(len(self._owner.object_types))]
        self.page = _places(self.pages, self.slots // PAGE)


def _first_of_each(values: Ordinals) -> tuple[Ordinals, Ordinals]:
    """(each value once, ascending; where it is first). As `np.unique`, which keeps the interpreter for longer."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new], order[new]


def _places(pages: Ordinals, wanted: Ordinals) -> Ordinals:
    """Where each of these is in `pages`, ascending; -1 where it is not."""
    if not pages.size:
        return np.full(wanted.size, -1, np.int64)
    at = np.minimum(np.searchsorted(pages, wanted), pages.size - 1)
    return np.where(pages[at] == wanted, at, -1)


def _undo_objects(objects: Sequence[Objects], slots: Ordinals, log: Sequence[tuple[Ordinals, Sequence[Objects]]]) -> None:
    """Put the logged objects of these slots, ascending, back: newest first, so that the oldest stay."""
    if not objects:
        return
    for written, before in reversed(log):
        at = _places(slots, written)
        mine = np.flatnonzero(at >= 0)
        for column, values in zip(objects, before, strict=True):
            column[at[mine]] = values[mine]


def _of_partition(values: Mapping[int, int]) -> Ordinals:
    """int64: a value for each partition up to the greatest."""
    found = np.zeros(max(values) + 1, np.int64)
    found[list(values)] = list(values.values())
    return found


def pages_written(pages: npt.NDArray[np.int64], since: Mapping[int, Point]) -> tuple[Ordinals, Ordinals]:
    """In one pass: (numbers, owners) of the pages of these partitions that were written after their points. pages: int64 (n, 2), the epoch
    of the last write and the owner of each. Cost: O(pages)."""
    if not since:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    after = np.full(max(since) + 1, np.iinfo(np.int64).max, np.int64)
    after[list(since)] = [point.epoch for point in since.values()]
    owners = pages[:, 1]
    known = (owners >= 0) & (owners < after.size)
    numbers = np.flatnonzero(known & (pages[:, 0] > after[np.where(known, owners, 0)]))
    return numbers, owners[numbers]


def parts_of(since: Mapping[int, Point], rows: Mapping[int, int], most: int = PART_ROWS) -> list[dict[int, Point]]:
    """The partitions in parts of about so many rows: whole ones first, apart from those of which only changes are wanted. rows: at most, of
    each partition."""
    parts: list[dict[int, Point]] = []
    for whole in (True, False):
        part, size = dict[int, Point](), 0
        for partition in sorted(p for p, point in since.items() if (point == NOWHERE) == whole):
            if part and size + rows[partition] > most:
                parts.append(part)
                part, size = {}, 0
            part[partition] = since[partition]
            size += rows[partition]
        parts += [part] if part else []
    return parts


def in_parts(
    owner: Captured,
    since: Mapping[int, Point],
    pages: Ordinals,
    owners: Ordinals,
    rows: Mapping[int, int],
    mark: int,
    laid: Mapping[int, Ordinals] | None = None,
) -> list[TablePart]:
    """A capture of these pages in parts. rows: that each partition has at most. mark: the newest of a row. laid: see `PartitionRows`."""
    parts = []
    for of in parts_of(since, rows):
        mine = np.isin(owners, np.fromiter(of, np.int64))
        parts.append(TablePart(owner, of, pages[mine], owners[mine], mark, {p: at for p, at in (laid or {}).items() if p in of}))
    return parts
