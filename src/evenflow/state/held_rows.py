"""Rows of all partitions, held together, and one partition of them as bytes.

An operator whose state is rows keeps them in a few immutable pieces, so a snapshot is a tuple of them. They are taken apart by
partition when the first bytes are asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import partition_of
from evenflow.plan.layout import HASH_COLUMN
from evenflow.stream.arrays import Int32s, Int64s
from evenflow.stream.ipc import batch_from_bytes, batch_to_bytes
from evenflow.stream.rows import Rows


class Frozen(ABC):
    """Rows of all partitions as of the end of an epoch; the snapshots of the partitions share it.

    A row has an imprint: a number that no other row of this operator has ever had, and another one when the row has changed. So who knows
    the imprints of an earlier state knows which rows it had.
    """

    @cached_property
    def _present(self) -> dict[int, int]:
        """How many rows each partition has, at most; those without rows are left out."""
        counts: dict[int, int] = {}
        for owners, dead in self.owners():
            rows = np.bincount(owners)
            for p in np.flatnonzero(rows).tolist():
                if p not in dead:
                    counts[p] = counts.get(p, 0) + int(rows[p])
        return counts

    def capture(self, partition: int) -> Captured | None:
        """The partition's rows, or None if it has none. Looks at no row until its bytes are asked for."""
        return Captured(self, partition) if partition in self._present else None

    def count_of(self, partition: int) -> int:
        """How many rows the partition has; at most, where rows are still to be sorted out."""
        return self._present.get(partition, 0)

    @abstractmethod
    def owners(self) -> Iterable[tuple[Int32s, Sequence[int]]]:
        """In pieces: int32 (n,), the partition of each row; and the partitions that have left the site, whose rows do not count."""

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


def ranges(partition: Int32s) -> dict[int, tuple[int, int]]:
    """Where each partition's rows begin and end. partition: int32 (n,), of each row, ascending."""
    first = np.flatnonzero(np.diff(partition, prepend=-1))
    stops = [*first[1:].tolist(), len(partition)]
    return {int(p): (int(a), b) for p, a, b in zip(partition[first], first, stops, strict=True)}


def picked(batches: Sequence[pa.RecordBatch], at: Int64s) -> pa.RecordBatch:
    """Rows of several batches, at least one, by their places in all of them, one after the other. Equal rows are equal bytes, whatever they
    are picked from."""
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    which = np.searchsorted(starts[1:], at, side="right")
    numbers = np.unique(which).tolist() or [0]
    found = [batches[n].take(pa.array(at[which == n] - starts[n])) for n in numbers]
    if len(found) == 1:
        return found[0]
    back = np.empty(at.size, np.int64)
    back[np.argsort(which, kind="stable")] = np.arange(at.size)
    return pa.concat_batches(found).take(pa.array(back))


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
    """Some rows with their imprints beside them, int64 (n,)."""

    rows: Rows
    number: Int64s

    @property
    def count(self) -> int:
        return self.rows.count

    def take(self, at: Int64s) -> Numbered:
        return Numbered(self.rows.take(at), self.number[at])


def join_numbered(pieces: Sequence[Numbered], schema: pa.Schema) -> Numbered:
    """As `join_rows`."""
    if len(pieces) == 1:
        return pieces[0]
    numbers = [np.empty(0, np.int64), *(piece.number for piece in pieces)]
    return Numbered(join_rows([piece.rows for piece in pieces], schema), np.concatenate(numbers))


class HeldRows(Frozen):
    """All rows that are held. settle: brings them into the one order that does not depend on how they lay."""

    def __init__(self, pieces: tuple[Numbered, ...], schema: pa.Schema, settle: Callable[[Numbered], Numbered]) -> None:
        self._pieces, self._schema, self._settle = pieces, schema, settle

    def owners(self) -> Iterator[tuple[Int32s, tuple[()]]]:
        return ((piece.rows.partition, ()) for piece in self._pieces)

    @cached_property
    def _by_partition(self) -> tuple[Rows, Int64s, dict[int, tuple[int, int]]]:
        if not self._pieces:
            return Rows.empty(self._schema), np.empty(0, np.int64), {}
        held = self._settle(join_numbered(self._pieces, self._schema))
        held = held.take(np.argsort(held.rows.partition, kind="stable"))
        return held.rows, held.number, ranges(held.rows.partition)

    def imprints(self, partition: int) -> Int64s:
        _, numbers, places = self._by_partition
        return numbers[slice(*places.get(partition, (0, 0)))]

    def some_to_bytes(self, partition: int, which: Int64s) -> bytes:
        rows, _, places = self._by_partition
        return rows_to_bytes(rows.take(places[partition][0] + which))


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
    whole = pa.concat_batches([batch_from_bytes(state) for state in states])
    owners = partition_of(whole.column(whole.schema.get_field_index(HASH_COLUMN)).to_numpy(zero_copy_only=False), groups)
    found = np.unique(owners).tolist()
    return {partition: batch_to_bytes(whole.take(pa.array(np.flatnonzero(owners == partition)))) for partition in found}


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


def bytes_by_partition(pieces: Sequence[Rows], partitions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64 (p,): about how many bytes of the rows each partition has; all rows of a piece count as equally long."""
    found = np.zeros(partitions.size, np.int64)
    for piece in pieces:
        counts = np.bincount(piece.partition, minlength=int(partitions.max(initial=-1)) + 1)[partitions]
        found += counts * held_bytes(piece) // max(1, piece.count)
    return found


def held_bytes(rows: Rows) -> int:
    """Memory that the rows take, bytes."""
    return int(rows.batch.nbytes) + rows.partition.nbytes + (0 if rows.hash is None else rows.hash.nbytes)
