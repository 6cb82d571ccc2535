"""One partition of a `PagedTable` as of its capture, and its form in bytes."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels import table
from evenflow.kernels.hash import partition_of
from evenflow.kernels.table import CHECK, EXTRA, HASH, MARK, PAGE
from evenflow.stream.arrays import Objects, UInt64s
from evenflow.stream.values import plain_values

MAGIC: Final = b"EFP1"
_READ_PAGES: Final = 16
"""Pages copied in one go, into memory that may never have been touched before: whoever else wants the GIL waits for it."""
_OBJECT_ROWS: Final = 2048
"""Objects converted in one go, for the same reason."""
_WRITE_BYTES: Final = 1 << 18
"""Bytes written in one go, for the same reason."""

Ordinals = npt.NDArray[np.int64]
State = bytes | memoryview


class Captured(Protocol):
    """What a snapshot reads of the table that it was captured from, in any thread: see `PagedTable`."""

    @property
    def width(self) -> int: ...
    @property
    def object_types(self) -> Sequence[pa.DataType]: ...
    @property
    def objects(self) -> Sequence[Objects]: ...
    @property
    def object_log(self) -> Sequence[tuple[Ordinals, Sequence[Objects]]]: ...
    def look(self) -> npt.NDArray[np.int64]: ...
    def log(self) -> tuple[npt.NDArray[np.int64], int]: ...
    def logged(self) -> tuple[int, int]: ...


class PageSnapshot:
    """One partition of a `PagedTable` as of its capture. May be read from another thread while the table goes on.

    Kernels hold the GIL, so each chunk is read between two of them; a row written meanwhile is in the undo log before it changes.
    """

    def __init__(self, owner: Captured, partition: int, pages: Ordinals, mark: int) -> None:
        self.partition, self.pages, self.mark = partition, pages, mark
        self._start, self._object_start = owner.logged()
        self._table: Captured | None = owner
        self._types = owner.object_types
        self._held: tuple[npt.NDArray[np.int64], list[Objects]] | None = None
        self._bytes: bytes | None = None

    @property
    def is_read(self) -> bool:
        """Whether the table's rows are no longer needed."""
        return self._held is not None or self._bytes is not None

    def covers(self, partition: int) -> bool:
        return partition == self.partition

    def read_out(self, partition: int | None = None) -> None:
        """Copy the rows, after which the table may forget them. partition: the snapshot's own."""
        if self._table is None or self._held is not None:
            return
        held = self._read(self._table)
        if self._held is None:  # else the partition was dropped while this thread was reading, and read out before that
            self._held = held

    def _read(self, owner: Captured) -> tuple[npt.NDArray[np.int64], list[Objects]]:
        """Rows and objects as they are now, a few pages at a time, then what the logs say about them."""
        rows = np.empty((self.pages.size * PAGE, owner.width), np.int64)
        objects = [np.empty(self.pages.size * PAGE, object) for _ in self._types]
        for first in range(0, self.pages.size, _READ_PAGES):
            numbers = self.pages[first : first + _READ_PAGES]
            here = slice(first * PAGE, (first + numbers.size) * PAGE)
            table.read_pages(owner.look(), numbers, rows[here])
            for copy, column in zip(objects, owner.objects, strict=True):
                copy[here] = column.reshape(-1, PAGE)[numbers].reshape(-1)
        positions = np.full(int(self.pages.max()) + 1, -1, np.int64)
        positions[self.pages] = np.arange(self.pages.size) * PAGE
        log, stop = owner.log()
        table.undo(rows, positions, log, self._start, stop)
        for slots, before in reversed(owner.object_log[self._object_start :]):
            mine = np.flatnonzero(slots < positions.size * PAGE)
            at = positions[slots[mine] // PAGE]
            mine, at = mine[at >= 0], at[at >= 0]
            for copy, values in zip(objects, before, strict=True):
                copy[at + slots[mine] % PAGE] = values[mine]
        return rows, objects

    def to_bytes(self) -> bytes:
        """The rows sorted by (key, window), marks cleared, with their objects: equal bytes for equal states."""
        if self._bytes is None:
            self.read_out()
            assert self._held is not None
            rows, objects = self._held
            order = sorted_rows(rows)
            self._bytes = encode(rows.take(order, axis=0), [column[order] for column in objects], self._types)
            self._held, self._table = None, None
        return self._bytes


def sorted_rows(rows: npt.NDArray[np.int64]) -> Ordinals:
    """Which rows are in use, by (hash, check, window)."""
    used = np.flatnonzero(rows[:, MARK] > 0)
    hashes = rows[used, HASH].view(np.uint64)
    return used[by_key(hashes, lambda tied: [rows[used[tied], column].view(np.uint64) for column in (CHECK, EXTRA)])]


def by_key(hashes: UInt64s, rest: Callable[[Ordinals], Sequence[UInt64s]], *, runs: bool = False) -> Ordinals:
    """In which order rows lie by (hash, check, window). Hashes differ mostly, so the rest is looked at only where they do not: sorting by
    all three takes almost three times as long. rest: (checks, windows) of some rows. runs: they are sorted in parts already."""
    order = np.argsort(hashes, kind="stable" if runs else None)
    found = hashes[order]
    same = found[1:] == found[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        rows = order[tied]
        checks, windows = rest(rows)
        order[tied] = rows[np.lexsort((windows, checks, hashes[rows]))]
    return order


def encode(rows: npt.NDArray[np.int64], objects: Sequence[npt.NDArray[np.object_]], types: Sequence[pa.DataType]) -> bytes:
    """Rows and object columns as bytes: a header, the words, an Arrow record batch."""
    rows[:, MARK] = 0
    head = MAGIC + struct.pack("<IQ", rows.shape[1], rows.shape[0])
    words = rows.reshape(-1).view(np.uint8).data
    pieces = [memoryview(head), words]
    if types:
        arrays = [to_arrow(column, kind) for column, kind in zip(objects, types, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])
        pieces.append(memoryview(batch.serialize()))
    written = io.BytesIO()
    for piece in pieces:
        for at in range(0, len(piece), _WRITE_BYTES):
            written.write(piece[at : at + _WRITE_BYTES])
    return written.getvalue()


def to_arrow(column: Objects, kind: pa.DataType) -> pa.Array:
    """Objects as they travel, some at a time."""
    starts = range(0, max(1, len(column)), _OBJECT_ROWS)
    return pa.concat_arrays([pa.array(column[start : start + _OBJECT_ROWS].tolist(), kind) for start in starts])


def _objects(array: pa.Array, *, times: bool) -> Objects:
    """The values of a column, null as None, lists as tuples. times: those in lists as Python's, else as whole numbers."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(array.to_numpy(zero_copy_only=False), object)
    values = np.empty(len(array), object)
    values[:] = [tuple(value) if isinstance(value, list) else value for value in (array.to_pylist() if times else plain_values(array))]
    return values


def open_rows(state: State, width: int, types: Sequence[pa.DataType]) -> tuple[npt.NDArray[np.int64], pa.RecordBatch | None]:
    """The words, and the objects as they travel. Copies nothing. Raises ValueError if the bytes are of another table."""
    found_width, count = struct.unpack_from("<IQ", state, 4)
    if state[:4] != MAGIC or found_width != width:
        raise ValueError(f"these {len(state)} bytes are not the state of a table whose rows have {width} words")
    at = 4 + struct.calcsize("<IQ")
    rows = np.frombuffer(state, np.int64, count * width, at).reshape(count, width)
    if not types:
        if len(state) != at + rows.nbytes:
            raise ValueError(f"these {len(state)} bytes are the state of a table whose rows have objects, and here they have none")
        return rows, None
    schema = pa.schema([pa.field(str(i), kind) for i, kind in enumerate(types)])
    return rows, pa.ipc.read_record_batch(pa.py_buffer(state).slice(at + rows.nbytes), schema)


def count_rows(state: State) -> int:
    """How many rows a table's state says that it has; 0 if it is something else."""
    return int(struct.unpack_from("<IQ", state, 4)[1]) if state[:4] == MAGIC else 0


def objects_of(batch: pa.RecordBatch | None, timed: Collection[int] = ()) -> list[Objects]:
    """The objects of such a batch, or of a slice of it. timed: the columns whose times are Python's, which are of the years 1 to 9999; in
    the others they are whole numbers."""
    return [] if batch is None else [_objects(array, times=at in timed) for at, array in enumerate(batch.columns)]


def decode(state: State, width: int, types: Sequence[pa.DataType]) -> tuple[npt.NDArray[np.int64], list[Objects]]:
    """The inverse of `encode`. Raises ValueError if the bytes are of another table."""
    rows, batch = open_rows(state, width, types)
    return rows, objects_of(batch)


def divide_pages(states: Sequence[bytes], groups: npt.NDArray[np.int32], width: int, types: Sequence[pa.DataType]) -> dict[int, bytes]:
    """The states of several partitions divided anew: see `Partitioned.divide`. width, types: of the table's rows and objects."""
    opened = [decode(state, width, types) for state in states]
    rows = np.concatenate([words for words, _ in opened])
    objects = [np.concatenate(columns) for columns in zip(*(columns for _, columns in opened), strict=True)]
    rows[:, MARK] = 1  # All of them are in use.
    order = sorted_rows(rows)
    owners = partition_of(rows[order, HASH].view(np.uint64), groups)
    parts = {partition: order[owners == partition] for partition in np.unique(owners).tolist()}
    return {partition: encode(rows[mine], [column[mine] for column in objects], types) for partition, mine in parts.items()}
