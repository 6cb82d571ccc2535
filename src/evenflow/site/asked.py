"""What a box has answered whose answers cannot be made again, as the rows of a record: those of all its output ports in one batch.

Such a box is the first step of its segment. The leader of a partition runs it, and what comes out is the partition's record of that epoch:
followers take the rows from there, and never run it (protocol I1, availability.md N1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.plan.effects import PORT_COLUMN
from evenflow.stream.rows import Rows


def as_effects(made: Sequence[Rows], partitions: Iterable[int], schema: pa.Schema) -> tuple[tuple[int, pa.RecordBatch], ...]:
    """What came out, by partition; nothing of a partition without any. schema: of the records."""
    if len(made) == 1:
        whole, owners = made[0].batch, made[0].partition
    else:
        pieces = [_widened(rows, port, made, schema) for port, rows in enumerate(made) if rows.count]
        whole = pa.concat_batches(pieces) if pieces else pa.RecordBatch.from_pylist([], schema=schema)
        owners = np.concatenate([rows.partition for rows in made])
    return tuple([(p, taken) for p in partitions if (taken := _of(whole, owners, p)).num_rows])


def from_effects(records: Sequence[tuple[int, pa.RecordBatch]], ports: Sequence[pa.Schema]) -> tuple[Rows, ...]:
    """Inverse of `as_effects`: what comes out at each port."""
    return tuple([_at_port(records, port, ports) for port in range(len(ports))])


def _of(batch: pa.RecordBatch, owners: npt.NDArray[np.int32], partition: int) -> pa.RecordBatch:
    mine = owners == partition
    return batch if mine.all() else batch.filter(pa.array(mine))


def _widened(rows: Rows, port: int, made: Sequence[Rows], schema: pa.Schema) -> pa.RecordBatch:
    columns: list[pa.Array] = []
    for other, given in enumerate(made):
        for at in range(given.batch.num_columns):
            own = other == port
            columns.append(rows.batch.column(at) if own else pa.nulls(rows.count, given.batch.schema.field(at).type))
    return pa.RecordBatch.from_arrays([*columns, pa.array(np.full(rows.count, port, np.int8))], schema=schema)


def _at_port(records: Sequence[tuple[int, pa.RecordBatch]], port: int, ports: Sequence[pa.Schema]) -> Rows:
    schema = ports[port]
    batches, owners = [], []
    for partition, batch in records:
        if len(ports) > 1:
            batch = batch.filter(pc.equal(batch.column(PORT_COLUMN), port))
            begin = sum(len(each) for each in ports[:port])
            batch = pa.RecordBatch.from_arrays(batch.columns[begin : begin + len(schema)], schema=schema)
        batches.append(batch)
        owners.append(np.full(batch.num_rows, partition, np.int32))
    if not batches:
        return Rows.empty(schema)
    return Rows(pa.concat_batches(batches), np.concatenate(owners))
