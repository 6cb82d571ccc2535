"""Routing: which site gets which row (protocol E1, E4). The producer's half of the exchange.

A row's route is a function of its key and the plan, or of its producer partition; it is computed for all hosted partitions in one
vectorised pass. What goes to one site is one batch, however many partitions it is for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.kernels.hash import hash_columns, partition_of, scatter, table_of_ranges
from evenflow.query.plan import FROM_COLUMN, HASH_COLUMN, KEY_GROUPS, Arc, Keyed, Layout, Plan, Spread
from evenflow.stream.rows import Rows


def wire_schema(arc: Arc, layout: Layout) -> pa.Schema:
    """Columns of a bundle of this arc: the user's, the key's hash where there is a key, the producer partition where order matters."""
    schema = arc.schema
    if isinstance(arc.route, Keyed):
        schema = schema.append(pa.field(HASH_COLUMN, pa.uint64(), nullable=False))
    if layout.segments[arc.consumer].sensitive or isinstance(arc.route, Spread):
        schema = schema.append(pa.field(FROM_COLUMN, pa.int32(), nullable=False))
    return schema


@dataclass(slots=True)
class Router:
    """Splits what a segment puts on one arc by destination site.

    sites: int32, shape (P,), the site of each consumer partition. groups: int32, shape (G,), the consumer partition of each key group.
    hashed: the rows that come carry the hash of this arc's key already. row_bytes: of a row, if all its columns are of fixed width.
    """

    arc: Arc
    schema: pa.Schema
    sites: npt.NDArray[np.int32]
    groups: npt.NDArray[np.int32]
    n_sites: int
    hashed: bool
    row_bytes: int | None

    @staticmethod
    def of(arc: Arc, layout: Layout, plan: Plan) -> Router:
        consumer, schema = layout.segments[arc.consumer], wire_schema(arc, layout)
        steps = layout.segments[arc.producer].steps
        last = steps[arc.port.step] if arc.port.step >= 0 else None
        return Router(
            arc=arc,
            schema=schema,
            sites=np.array(plan.placement[consumer.id], np.int32),
            groups=table_of_ranges(consumer.partitions, KEY_GROUPS),
            n_sites=plan.sites,
            hashed=last is not None
            and last.kind == "combine"
            and isinstance(arc.route, Keyed)
            and tuple(last.params["keys"]) == arc.route.columns,
            row_bytes=row_bytes_of(schema),
        )

    def split(self, rows: Rows) -> list[tuple[int, pa.RecordBatch]]:
        """(site, bundle rows) for every site that gets at least one row, ascending. Order within a producer partition is kept."""
        if rows.count == 0:
            return []
        columns: list[pa.Array] = list(rows.batch.columns)
        if isinstance(self.arc.route, Keyed):
            hashes = rows.hash if self.hashed and rows.hash is not None else hash_columns(rows.batch, self.arc.route.columns)
            columns.append(pa.array(hashes))
            partition = partition_of(hashes, self.groups)
        elif isinstance(self.arc.route, Spread):
            partition = rows.partition % np.int32(len(self.sites))
        else:
            partition = None
        if len(columns) < len(self.schema):
            columns.append(pa.array(rows.partition))
        whole = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if partition is None:
            return [(int(self.sites[0]), whole)]
        if self.n_sites == 1:
            return [(0, whole)]
        order, counts = scatter(self.sites[partition], self.n_sites)
        sorted_rows = whole.take(pa.array(order))
        bundles, start = [], 0
        for site, count in enumerate(counts.tolist()):
            if count:
                bundles.append((site, sorted_rows.slice(start, count)))
                start += count
        return bundles

    def size_of(self, batch: pa.RecordBatch) -> int:
        """About how many bytes a bundle's rows take. Asking Arrow costs microseconds per column, so it is asked only where it must be."""
        return batch.num_rows * self.row_bytes if self.row_bytes is not None else int(batch.nbytes)


def row_bytes_of(schema: pa.Schema) -> int | None:
    """About how many bytes a row takes if all columns are of fixed width, else None."""
    try:
        return sum((int(field.type.bit_width) + 7) // 8 for field in schema)
    except ValueError:
        return None


def owners(
    batch: pa.RecordBatch, arc: Arc, groups: npt.NDArray[np.int32], partitions: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64] | None]:
    """The consumer partition of each row of a bundle (int32, shape (n,)), and the key's hash where the route has a key.

    groups: int32, shape (G,), the partition of each key group; partitions: P of the consumer.
    """
    if isinstance(arc.route, Keyed):
        hashes = batch.column(batch.schema.get_field_index(HASH_COLUMN)).to_numpy(zero_copy_only=True)
        return partition_of(hashes, groups), hashes
    if isinstance(arc.route, Spread):
        producer = batch.column(batch.schema.get_field_index(FROM_COLUMN)).to_numpy(zero_copy_only=True)
        return producer % np.int32(partitions), None
    return np.zeros(batch.num_rows, np.int32), None
