"""Rows of all partitions, held together, and one partition of them as bytes.

An operator whose state is rows keeps them in a few immutable pieces, so a snapshot is a tuple of them. They are taken apart by
partition when the first bytes are asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import partition_of
from evenflow.plan.layout import HASH_COLUMN
from evenflow.state.apart import Apart, Lying, counts_for, summed
from evenflow.stream.arrays import Int32s, Int64s
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes
from evenflow.stream.rows import Rows

COLUMN_MOST: Final = 2**31 - 1
"""Bytes of text that one array of Arrow's has at most, and elements of lists: their offsets have 32 bits."""


class Frozen(ABC):
    """Rows of all partitions as of the end of an epoch; the snapshots of the partitions share it.

    A row has an imprint: a number that no other row of this operator has ever had, and another one when the row has changed. So who knows
    the imprints of an earlier state knows which rows it had.
    """

    _apart: Apart | None = None

    def capture(self, partition: int) -> Captured | None:
        """The partition's rows, or None if it has none. Looks at no row until its bytes are asked for."""
        return Captured(self, partition) if self.count_of(partition) else None

    def count_of(self, partition: int) -> int:
        """How many rows the partition has; at most, where rows are still to be sorted out. Looks at no row."""
        counts = self._counts
        return int(counts[partition]) if partition < counts.size else 0

    def take_apart(self, rest: Callable[[], None] = lambda: None) -> Apart:
        """By partition, once, before the bytes of any are made. rest: is called after every few thousand rows."""
        if self._apart is None:
            self._apart = Apart(self.lying(), rest)
        return self._apart

    def prepare(self, partitions: Sequence[int]) -> None:  # noqa: B027  Not everything can be done for several at once.
        """These partitions, ascending, are asked for next, one after the other, and have few rows: what can be done for all at once is."""

    @cached_property
    def _counts(self) -> Int64s:
        return summed(self.counts())

    @abstractmethod
    def counts(self) -> Iterable[Int64s]:
        """Of each run how many of its rows each partition has, at most; known without a look at them."""

    @abstractmethod
    def lying(self) -> Iterable[Lying]:
        """The runs."""

    @abstractmethod
    def imprints(self, partition: int) -> Int64s:
        """int64 (n,): of the partition's rows, in the order in which its bytes have them. n may be 0."""

    @abstractmethod
    def some_to_bytes(self, partition: int, which: Int64s) -> bytes:
        """Some rows of one partition, at least one, by their places in its order, ascending, as `to_bytes` has them."""

    def to_bytes(self, partition: int) -> bytes:
        """The rows of one partition that has some; see `Snapshot.to_bytes`."""
        return self.some_to_bytes(partition, np.arange(self.imprints(partition).size))


@dataclass(frozen=True, slots=True)
class Captured:
    """One partition's rows among those of all."""

    frozen: Frozen
    partition: int

    def to_bytes(self) -> bytes:
        return self.frozen.to_bytes(self.partition)


def picked(batches: Sequence[pa.RecordBatch], at: Int64s) -> pa.RecordBatch:
    """Rows of several batches, at least one, by their places in all of them, one after the other. Equal rows are equal bytes, whatever they
    are picked from."""
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    which = np.searchsorted(starts[1:], at, side="right")
    numbers = [n for n in range(len(batches)) if (which == n).any()] or [0]
    found = [batches[n].take(pa.array(at[which == n] - starts[n])) for n in numbers]
    if len(found) == 1:
        return found[0]
    back = np.empty(at.size, np.int64)
    back[np.argsort(which, kind="stable")] = np.arange(at.size)
    return pa.concat_batches(found).take(pa.array(back))


def fit(batches: Sequence[pa.RecordBatch]) -> bool:
    """Whether the rows of all batches can be one batch. Cost: some microseconds, where they are clearly fewer."""
    if sum([batch.get_total_buffer_size() for batch in batches]) <= COLUMN_MOST:
        return True  # What rows really have takes some hundred times as long to say.
    fixed = [pa.types.is_primitive(field.type) for field in batches[0].schema]
    return all(one or sum([batch.column(at).nbytes for batch in batches]) <= COLUMN_MOST for at, one in enumerate(fixed))


def join_rows(pieces: Sequence[Rows], schema: pa.Schema) -> Rows:
    """The rows of all pieces, one after the other. All must have hashes, or none."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Rows.empty(schema)
    hashes = [piece.hash for piece in pieces if piece.hash is not None]
    batch, partition = pa.concat_batches([piece.batch for piece in pieces]), np.concatenate([piece.partition for piece in pieces])
    return Rows(batch, partition, np.concatenate(hashes) if len(hashes) == len(pieces) else None)


@dataclass(frozen=True, slots=True)
class Numbered:
    """Some rows with their imprints beside them, int64 (n,). counts: int64, how many of them each partition has."""

    rows: Rows
    number: Int64s
    counts: Int64s

    @staticmethod
    def of(rows: Rows, number: Int64s) -> Numbered:
        return Numbered(rows, number, np.bincount(rows.partition))

    @property
    def count(self) -> int:
        return self.rows.count

    def take(self, at: Int64s) -> Numbered:
        return Numbered.of(self.rows.take(at), self.number[at])


def join_numbered(pieces: Sequence[Numbered], schema: pa.Schema) -> Numbered:
    """As `join_rows`."""
    if len(pieces) == 1:
        return pieces[0]
    numbers = [np.empty(0, np.int64), *(piece.number for piece in pieces)]
    return Numbered(join_rows([piece.rows for piece in pieces], schema), np.concatenate(numbers), summed(piece.counts for piece in pieces))


class HeldRows(Frozen):
    """All rows that are held. settle: brings those of one partition into the one order that does not depend on how they lay."""

    def __init__(self, pieces: tuple[Numbered, ...], schema: pa.Schema, settle: Callable[[Numbered], Numbered]) -> None:
        self._pieces, self._schema, self._settle = pieces, schema, settle
        self._last: tuple[int, Numbered] | None = None

    def counts(self) -> Iterable[Int64s]:
        return [piece.counts for piece in self._pieces]

    def lying(self) -> Iterable[Lying]:
        return [Lying(piece.rows.partition) for piece in self._pieces]

    def _settled(self, partition: int) -> Numbered:
        """The last one is kept: who asks for imprints wants the bytes next."""
        last = self._last
        if last is None or last[0] != partition:
            apart = self.take_apart()
            mine = [self._pieces[number].take(places) for number, places in apart.by_run(apart.of(partition))]
            held = join_numbered(mine, self._schema)
            last = partition, self._settle(held) if held.count else held
            self._last = last
        return last[1]

    def imprints(self, partition: int) -> Int64s:
        return self._settled(partition).number

    def some_to_bytes(self, partition: int, which: Int64s) -> bytes:
        return rows_to_bytes(self._settled(partition).rows.take(which))


def rows_to_bytes(rows: Rows) -> bytes:
    """Rows of one partition, as take() has left them: it writes the same buffers whatever they were a part of, so equal states are equal
    bytes."""
    columns, schema = list(rows.batch.columns), rows.batch.schema
    if rows.hash is not None:
        columns.append(pa.array(rows.hash))
        schema = schema.append(pa.field(HASH_COLUMN, pa.uint64()))
    return batch_to_bytes(pa.RecordBatch.from_arrays(columns, schema=schema))


def divide_rows(states: Sequence[bytes], groups: Int32s) -> dict[int, bytes]:
    """Captured rows of several partitions, which have the hash of their key, divided anew: see `Partitioned.divide`."""
    batches = [batch_from_bytes(state) for state in states]
    found: dict[int, list[pa.RecordBatch]] = {}
    for batch in [pa.concat_batches(batches)] if fit(batches) else batches:
        owners = partition_of(batch.column(batch.schema.get_field_index(HASH_COLUMN)).to_numpy(zero_copy_only=False), groups)
        for partition in np.unique(owners).tolist():
            found.setdefault(partition, []).append(batch.take(pa.array(np.flatnonzero(owners == partition))))
    return {partition: batch_to_bytes(pa.concat_batches(some) if len(some) > 1 else some[0]) for partition, some in sorted(found.items())}


def rows_from(state: bytes, partition: int) -> Rows:
    """The rows that `rows_to_bytes` wrote."""
    batch = batch_from_bytes(state)
    hashes = None
    if HASH_COLUMN in batch.schema.names:
        hashes = batch.column(HASH_COLUMN).to_numpy()
        batch = batch.drop_columns([HASH_COLUMN])
    return Rows(batch, np.full(batch.num_rows, partition, np.int32), hashes)


def rows_of(captured: Captured | None, partition: int, schema: pa.Schema) -> Rows:
    """The rows of a partition as they were captured; none of this schema if there were none."""
    return Rows.empty(schema, keyed=True) if captured is None else rows_from(captured.to_bytes(), partition)


def bytes_by_partition(pieces: Sequence[Numbered], partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64 (p,): about how many bytes of the rows each partition has; all rows of a piece count as equally long."""
    found = np.zeros(partitions.size, np.int64)
    for piece in pieces:
        found += counts_for(piece.counts, partitions) * held_bytes(piece.rows) // max(1, piece.count)
    return found


def held_bytes(rows: Rows) -> int:
    """Memory that the rows take, bytes."""
    return int(rows.batch.nbytes) + rows.partition.nbytes + (0 if rows.hash is None else rows.hash.nbytes)
