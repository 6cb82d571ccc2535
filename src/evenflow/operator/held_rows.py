"""Rows of all partitions, held together, and one partition of them as bytes.

An operator whose state is rows keeps them in a few immutable pieces, so a snapshot is a tuple of them. They are taken apart by
partition when the first bytes are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.query.plan import HASH_COLUMN
from evenflow.stream.rows import Rows


def join_rows(pieces: Sequence[Rows], schema: pa.Schema) -> Rows:
    """The rows of all pieces, one after the other. All must have hashes, or none."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Rows.empty(schema)
    hashes = [piece.hash for piece in pieces if piece.hash is not None]
    batch, partition = pa.concat_batches([piece.batch for piece in pieces]), np.concatenate([piece.partition for piece in pieces])
    return Rows(batch, partition, np.concatenate(hashes) if len(hashes) == len(pieces) else None)


class HeldRows:
    """All rows held as of the end of an epoch. settle: brings them into the one order that does not depend on how they lay."""

    def __init__(self, pieces: tuple[Rows, ...], schema: pa.Schema, settle: Callable[[Rows], Rows]) -> None:
        self._pieces, self._schema, self._settle = pieces, schema, settle

    @cached_property
    def _present(self) -> frozenset[int]:
        return frozenset(int(p) for piece in self._pieces for p in np.flatnonzero(np.bincount(piece.partition)))

    def capture(self, partition: int) -> CapturedRows | None:
        """The partition's rows, or None if it has none. Looks at no row until its bytes are asked for."""
        return CapturedRows(self, partition) if partition in self._present else None

    @cached_property
    def _by_partition(self) -> tuple[Rows, dict[int, tuple[int, int]]]:
        rows = self._settle(join_rows(self._pieces, self._schema))
        rows = rows.take(np.argsort(rows.partition, kind="stable"))
        first = np.flatnonzero(np.diff(rows.partition, prepend=-1))
        stops = [*first[1:].tolist(), rows.count]
        return rows, {int(p): (int(a), b) for p, a, b in zip(rows.partition[first], first, stops, strict=True)}

    def to_bytes(self, partition: int) -> bytes:
        rows, ranges = self._by_partition
        start, stop = ranges[partition]
        # take() writes the same buffers whatever this is a part of, so equal states are equal bytes.
        mine = rows.take(np.arange(start, stop))
        columns, schema = list(mine.batch.columns), mine.batch.schema
        if mine.hash is not None:
            columns.append(pa.array(mine.hash))
            schema = schema.append(pa.field(HASH_COLUMN, pa.uint64()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class CapturedRows:
    """One partition of held rows."""

    held: HeldRows
    partition: int

    def to_bytes(self) -> bytes:
        return self.held.to_bytes(self.partition)


def rows_from(state: bytes, partition: int) -> Rows:
    """The rows that `CapturedRows.to_bytes` wrote."""
    with pa.ipc.open_stream(state) as reader:
        batch = reader.read_next_batch()
    hashes = None
    if HASH_COLUMN in batch.schema.names:
        hashes = batch.column(HASH_COLUMN).to_numpy()
        batch = batch.drop_columns([HASH_COLUMN])
    return Rows(batch, np.full(batch.num_rows, partition, np.int32), hashes)


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
