"""PagedTable: keyed rows of all the partitions that an operator hosts at one site (protocol S1).

One index and one array of rows serve all partitions, so a call costs the same for one partition as for a thousand. A row is a
cache line or a few: the key's identity and the operator's totals side by side. Pages of 256 rows belong to one partition;
capturing a partition marks its pages and returns, and a row is copied to an undo log the first time it is written afterwards.
What comes out never depends on slot numbers: captured rows are sorted by key.

Beside its words a row may have **objects**: immutable Python values in object columns (strings, tuples), captured by reference.
"""

from __future__ import annotations

import mmap
import struct
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.kernels import fold, table
from evenflow.operator.kernels.columns import Words
from evenflow.operator.kernels.hash import Hashes
from evenflow.operator.kernels.table import EXTRA, HASH, HEADER, MARK, PAGE

MAGIC: Final = b"EFP1"
NO_OPS: Final = np.empty((0, 4), np.int64)
NO_VALUES: Final = np.empty((0, 0), np.int64)
NO_NULLS: Final = np.empty((0, 0), np.uint8)
NO_EXTRA: Final = np.empty(0, np.int64)
_HUGE: Final = 1 << 21
_READ_PAGES: Final = 64

Ordinals = npt.NDArray[np.int64]


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only, contiguous view: the one form of input that kernels are compiled for."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@dataclass(slots=True)
class Touched:
    """What one call touched, valid until the next. Distinct rows ("groups") are in order of first appearance.

    slots: int64 (g,). rows: int64 (g,), the input row where each first appeared. new: bool (g,), it was inserted.
    ordinals: int64 (n,), the group of each input row. slot_of: int64 (n,), the slot of each input row.
    """

    slots: Ordinals
    rows: Ordinals
    new: npt.NDArray[np.bool_]
    ordinals: Ordinals
    slot_of: Ordinals


class Arena:
    """A growing two-dimensional array of words on its own pages of memory, so that rows begin on cache lines.

    Growing asks the kernel to remap it (nothing is copied) unless another thread looks at it just then. Memory never written to
    is not taken.
    """

    def __init__(self, width: int, slots: int) -> None:
        self.width = width
        self._map = self._new(slots)
        self.words: npt.NDArray[np.int64] = self._view()

    def _new(self, slots: int) -> mmap.mmap:
        size = slots * self.width * 8
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE:
            region.madvise(mmap.MADV_HUGEPAGE)
        return region

    def _view(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self._map, np.int64).reshape(-1, self.width)

    def look(self) -> npt.NDArray[np.int64]:
        """The words, for another thread: waits while the owner is in the middle of growing (a few bytecodes, then it has the GIL)."""
        words = self.words
        while words.shape[0] == 0:
            words = self.words
        return words

    def grow(self, slots: int) -> None:
        """Make room for `slots` rows. Existing rows keep their slots; new ones are zero."""
        old = self.words
        self.words = np.empty((0, self.width), np.int64)
        used = old.shape[0]
        try:
            del old
            self._map.resize(slots * self.width * 8)
            self._map.madvise(mmap.MADV_HUGEPAGE)
        except BufferError:
            before, self._map = self._map, self._new(slots)
            self._view()[:used] = np.frombuffer(before, np.int64).reshape(-1, self.width)
        self.words = self._view()


def row_width(state_words: int) -> int:
    """Words of a row: header and state, rounded up so that a row touches as few cache lines as it can."""
    wanted = HEADER + state_words
    if wanted <= 8:
        return 8 if wanted > 4 else 4
    return (wanted + 7) // 8 * 8


class PagedTable:
    """See the module. template: int64 (s,), the state words of a new row. objects: type of each object column.

    `words` is int64 (slots, W), state from column HEADER on; `objects[i]` is an object array (slots,). Both may be read after a
    call at the slots it touched, and written there until the next call.
    """

    def __init__(self, template: npt.NDArray[np.int64], objects: Sequence[pa.DataType] = ()) -> None:
        self.width = row_width(template.size)
        self._template = np.zeros(self.width, np.int64)
        self._template[HEADER : HEADER + template.size] = template
        self.object_types = tuple(objects)
        self._arena = Arena(self.width, 4 * PAGE)
        self.objects = [np.empty(4 * PAGE, object) for _ in objects]
        self._index: Hashes = np.zeros(1024, np.uint64)
        self._pages = np.full((4, 3), -1, np.int64)
        self._spare = np.zeros(4, np.int64)
        self._parts = np.zeros((0, 3), np.int64)
        self._counts = np.zeros(8, np.int64)
        self._log_arena = Arena(self.width + 1, 1)
        self._mark = 0
        self._epoch = 0
        self._open: list[weakref.ref[PageSnapshot]] = []
        self._scratch = np.empty((4, 0), np.int64)
        self._fresh = np.empty(0, np.uint8)

    @property
    def words(self) -> npt.NDArray[np.int64]:
        return self._arena.words

    def look(self) -> npt.NDArray[np.int64]:
        """`words` for another thread."""
        return self._arena.look()

    @property
    def count(self) -> int:
        """Rows held."""
        return int(self._counts[table.USED])

    def count_of(self, partition: int) -> int:
        """Rows held by one partition."""
        return int(self._parts[partition, table.LIVE]) if partition < self._parts.shape[0] else 0

    def fold(
        self,
        partition: npt.NDArray[np.int32],
        hashes: Hashes,
        checks: Hashes,
        *,
        epoch: int,
        extra: Words = NO_EXTRA,
        ops: Words = NO_OPS,
        values: Words = NO_VALUES,
        nulls: npt.NDArray[np.uint8] = NO_NULLS,
    ) -> Touched:
        """Find or insert a row for each of n input rows and fold their values into it (see `kernels.fold`).

        partition: int32 (n,). hashes, checks: uint64 (n,). extra: int64 (n,) or empty. Cost: O(n), whatever the table's size.
        """
        self._sweep()
        n = hashes.size
        if n:
            self._know(int(partition.max()))
        self._epoch = max(self._epoch, epoch)
        self._make_scratch(n)
        slot_of, ordinals, group_slot, group_row = (self._scratch[i][:n] for i in range(4))
        new = self._fresh[:n]
        self._counts[table.GROUPS] = 0
        inputs: tuple[Any, ...] = (frozen(hashes), frozen(checks), frozen(extra), frozen(partition))
        folding: tuple[Any, ...] = (ops, frozen(values), frozen(nulls), slot_of, ordinals, group_slot, group_row, new)
        row = 0
        while True:
            call: Any = fold.fold_rows
            row = call(
                *inputs, row, self._mark, epoch, self._index, self._arena.words, self._pages, self._parts, self._spare,
                self._counts, self._log_arena.words, self._template, *folding,
            )  # fmt: skip
            if row >= n:
                break
            self._make_room()
        groups = int(self._counts[table.GROUPS])
        self._mark += groups
        return Touched(group_slot[:groups], group_row[:groups], new[:groups].view(np.bool_), ordinals, slot_of)

    def find(self, partition: int, hashes: Hashes, checks: Hashes, extra: Words = NO_EXTRA) -> Touched:
        """Find or insert rows of one partition."""
        return self.fold(np.full(hashes.size, partition, np.int32), hashes, checks, epoch=self._epoch, extra=extra)

    def remove(self, slots: Ordinals, *, epoch: int) -> None:
        """Free distinct rows. Their slots are taken again by the same partition."""
        self._sweep()
        if self._open and self._counts[table.LOGGED] + slots.size > self._log_arena.words.shape[0]:
            self._grow_log(slots.size)
        for column in self.objects:
            column[slots] = None
        table.remove_rows(
            np.ascontiguousarray(slots),
            epoch,
            self._index,
            self._arena.words,
            self._pages,
            self._parts,
            self._counts,
            self._log_arena.words,
        )

    def clear(self) -> None:
        """Forget everything, keeping the memory. Not while a snapshot is open."""
        top = int(self._counts[table.TOP])
        self._index[:] = 0
        self._arena.words[: top * PAGE, MARK] = 0
        self._pages[:top] = -1
        self._parts[:, :2] = -1
        self._parts[:, table.LIVE] = 0
        self._counts[:] = 0
        self._mark = 0

    def pages_of(self, partition: int) -> Ordinals:
        """Numbers of the partition's pages, ascending."""
        return np.flatnonzero(self._pages[: self._counts[table.TOP], table.OWNER] == partition)

    def pages_since(self, partition: int, epoch: int) -> Ordinals:
        """The partition's pages written after `epoch`: what a delta has to ship."""
        pages = self.pages_of(partition)
        newer: Ordinals = pages[self._pages[pages, table.WRITTEN] > epoch]
        return newer

    def owner_of(self, slots: Ordinals) -> npt.NDArray[np.int32]:
        """int32: the partition of each slot, -1 where its page is free."""
        owners: npt.NDArray[np.int32] = self._pages[slots // PAGE, table.OWNER].astype(np.int32)
        return owners

    def slots_of(self, partition: int) -> Ordinals:
        """int64: the slots that hold a row of the partition, ascending."""
        slots = (self.pages_of(partition)[:, None] * PAGE + np.arange(PAGE)).reshape(-1)
        used: Ordinals = slots[self._arena.words[slots, MARK] > 0]
        return used

    def capture(self, partition: int) -> PageSnapshot | None:
        """The partition as of now, or None if it has no row. Copies nothing but references to objects."""
        self._sweep()
        pages = self.pages_of(partition)
        if self.count_of(partition) == 0:
            return None
        self._pages[pages, table.GUARD] = self._mark
        if self._log_arena.words.shape[0] == 1:
            self._grow_log(4 * PAGE)
        snapshot = PageSnapshot(self, partition, pages, self._mark, int(self._counts[table.LOGGED]))
        self._open.append(weakref.ref(snapshot))
        return snapshot

    def install(self, partition: int, state: bytes) -> Ordinals:
        """Take over a captured partition; returns the slots of its rows. Raises AssertionError if the partition is here."""
        if self.count_of(partition):
            raise AssertionError(f"partition {partition} is installed already")
        rows, objects = decode(state, self.width, self.object_types)
        hashes, checks = (np.ascontiguousarray(rows[:, i]).view(np.uint64) for i in (HASH, table.CHECK))
        slots = self.find(partition, hashes, checks, np.ascontiguousarray(rows[:, EXTRA])).slots.copy()
        self._arena.words[slots, HEADER:] = rows[:, HEADER:]
        for column, values in zip(self.objects, objects, strict=True):
            column[slots] = values
        return slots

    def drop(self, partition: int) -> None:
        """Forget a partition. Its open snapshots are read out first."""
        self._sweep()
        pages = self.pages_of(partition)
        for reference in self._open:
            snapshot = reference()
            if snapshot is not None and snapshot.partition == partition:
                snapshot.read_out()
        if pages.size:
            for column in self.objects:
                column[(pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)] = None
            table.release_pages(pages, self._index, self._arena.words, self._pages, self._spare, self._counts)
            self._parts[partition] = (-1, -1, 0)

    def state_bytes(self) -> int:
        """Bytes of the rows in use, the index and the undo log; objects count as 64 bytes each."""
        used = int(self._counts[table.TOP] - self._counts[table.SPARE]) * PAGE * self.width * 8
        log = int(self._counts[table.LOGGED]) * 8 * (self.width + 1)
        return used + self._index.nbytes + log + 64 * self.count * len(self.objects)

    def _know(self, partition: int) -> None:
        if partition >= self._parts.shape[0]:
            more = np.full((max(16, partition + 1, 2 * self._parts.shape[0]), 3), -1, np.int64)
            more[:, table.LIVE] = 0
            more[: self._parts.shape[0]] = self._parts
            self._parts = more

    def _make_scratch(self, n: int) -> None:
        if self._fresh.size < n:
            self._scratch = np.empty((4, n + n // 4 + 64), np.int64)
            self._fresh = np.empty(n + n // 4 + 64, np.uint8)

    def _make_room(self) -> None:
        why = int(self._counts[table.WHY])
        if why == table.INDEX_FULL:
            larger = np.zeros(2 * self._index.size, np.uint64)
            table.rehash(self._index, larger)
            self._index = larger
        elif why == table.PAGES_FULL:
            slots = 2 * self._arena.words.shape[0]
            self._arena.grow(slots)
            self._pages = np.concatenate([self._pages, np.full((slots // PAGE - len(self._pages), 3), -1, np.int64)])
            self._spare = np.concatenate([self._spare, np.zeros(slots // PAGE - self._spare.size, np.int64)])
            self.objects = [np.concatenate([o, np.empty(slots - o.size, object)]) for o in self.objects]
        else:
            self._grow_log(self._log_arena.words.shape[0])

    def _grow_log(self, more: int) -> None:
        rows = self._log_arena.words.shape[0]
        self._log_arena.grow(rows + max(more, rows))

    def _sweep(self) -> None:
        """Forget snapshots that are read or gone, so that writes are no longer logged for them."""
        if not self._open:
            return
        alive = [reference for reference in self._open if (snapshot := reference()) is not None and not snapshot.is_read]
        if len(alive) == len(self._open):
            return
        self._open = alive
        self._pages[:, table.GUARD] = -1
        for snapshot in filter(None, (reference() for reference in alive)):
            pages = snapshot.pages
            self._pages[pages, table.GUARD] = np.maximum(self._pages[pages, table.GUARD], snapshot.mark)
        if not alive:
            self._counts[table.LOGGED] = 0
            self._log_arena = Arena(self.width + 1, 1)


class PageSnapshot:
    """One partition of a `PagedTable` as of its capture. May be read from another thread while the table goes on.

    Kernels hold the GIL, so each chunk is read between two of them; a row written meanwhile is in the undo log before it changes.
    """

    def __init__(self, owner: PagedTable, partition: int, pages: Ordinals, mark: int, start: int) -> None:
        self.partition, self.pages, self.mark = partition, pages, mark
        self._start = start
        self._table: PagedTable | None = owner
        slots = (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)
        self._objects = [column[slots] for column in owner.objects]
        self._width, self._types = owner.width, owner.object_types
        self._rows: npt.NDArray[np.int64] | None = None
        self._bytes: bytes | None = None

    @property
    def is_read(self) -> bool:
        """Whether the table's rows are no longer needed."""
        return self._rows is not None or self._bytes is not None

    def read_out(self) -> None:
        """Copy the rows, after which the table may forget them."""
        if self._table is None or self._rows is not None:
            return
        rows = self._read(self._table)
        if self._rows is None:  # else the partition was dropped while this thread was reading, and read out before that
            self._rows = rows

    def _read(self, owner: PagedTable) -> npt.NDArray[np.int64]:
        rows = np.empty((self.pages.size * PAGE, self._width), np.int64)
        for first in range(0, self.pages.size, _READ_PAGES):
            numbers = self.pages[first : first + _READ_PAGES]
            table.read_pages(owner.look(), numbers, rows[first * PAGE : (first + numbers.size) * PAGE])
        positions = np.full(int(self.pages.max()) + 1, -1, np.int64)
        positions[self.pages] = np.arange(self.pages.size) * PAGE
        log = owner._log_arena.look()
        table.undo(rows, positions, log, self._start, min(int(owner._counts[table.LOGGED]), log.shape[0]))
        return rows

    def to_bytes(self) -> bytes:
        """The rows sorted by (key, window), marks cleared, with their objects: equal bytes for equal states."""
        if self._bytes is None:
            self.read_out()
            assert self._rows is not None
            rows, used = self._rows, np.flatnonzero(self._rows[:, MARK] > 0)
            keys = tuple(rows[used, column].view(np.uint64) for column in (EXTRA, table.CHECK, HASH))
            used = used[np.lexsort(keys)]
            self._bytes = encode(rows[used], [column[used] for column in self._objects], self._types)
            self._rows, self._table, self._objects = None, None, []
        return self._bytes


def encode(rows: npt.NDArray[np.int64], objects: Sequence[npt.NDArray[np.object_]], types: Sequence[pa.DataType]) -> bytes:
    """Rows and object columns as bytes: a header, the words, an Arrow record batch."""
    rows[:, MARK] = 0
    head = MAGIC + struct.pack("<IQ", rows.shape[1], rows.shape[0])
    if not types:
        return head + rows.tobytes()
    arrays = [pa.array(column.tolist(), kind) for column, kind in zip(objects, types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])
    return head + rows.tobytes() + bytes(batch.serialize().to_pybytes())


def decode(state: bytes, width: int, types: Sequence[pa.DataType]) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.object_]]]:
    """The inverse of `encode`. Raises ValueError if the bytes are of another table."""
    found_width, count = struct.unpack_from("<IQ", state, 4)
    if state[:4] != MAGIC or found_width != width:
        raise ValueError(f"these {len(state)} bytes are not the state of a table whose rows have {width} words")
    at = 4 + struct.calcsize("<IQ")
    rows = np.frombuffer(state, np.int64, count * width, at).reshape(count, width)
    columns = []
    if types:
        schema = pa.schema([pa.field(str(i), kind) for i, kind in enumerate(types)])
        batch = pa.ipc.read_record_batch(pa.py_buffer(state).slice(at + rows.nbytes), schema)
        for array in batch.columns:
            values = np.empty(count, object)
            values[:] = [tuple(value) if isinstance(value, list) else value for value in array.to_pylist()]
            columns.append(values)
    return rows, columns
