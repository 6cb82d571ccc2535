"""Combine: partial totals of an epoch per producer partition and key, before the exchange.

Per producer partition, because a frame's content may depend on nothing else (protocol E3). Stateless: totals live for one epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.operator.kernels.columns import integers_of, nulls_of
from evenflow.operator.kernels.hash import hash_columns
from evenflow.operator.kernels.table import HEADER, gather
from evenflow.operator.kernels.windows import assign_windows
from evenflow.operator.keys import identity, key_columns
from evenflow.operator.operator import Stateless
from evenflow.operator.pages import NO_EXTRA, PagedTable, frozen
from evenflow.operator.totals import Totals
from evenflow.query.aggregates import TIME, AggCall, TimeWindow, partial_schema
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

_ODD = np.uint64(0x9E3779B97F4A7C15)


class Combine(Stateless):
    """Partial totals per (partition, key, window). Selectivity: distinct keys per partition / rows. Cost: O(rows).

    schema: of the input. keys, calls: of the aggregate behind the exchange (`combinable`). window: its time window, or None; a
    sliding window's rows are counted once per window. Output: `partial_schema`, per partition in order of first appearance.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall], window: TimeWindow | None = None) -> None:
        self._keys, self._window = tuple(keys), window
        self._totals = Totals(calls, schema, first=HEADER, every_cell=True)
        self._table = PagedTable(self._totals.template)
        self.schemas: tuple[pa.Schema, ...] = (partial_schema(schema, keys, calls, window),)
        self._nothing = (Rows.empty(self.schemas[0], keyed=True),)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        starts = NO_EXTRA
        if rows.count:
            # Hashes that come with the rows are of the key that brought them here, not of the one behind the exchange.
            rows = Rows(rows.batch, rows.partition, hash_columns(rows.batch, self._keys))
            if self._window is not None:
                rows, starts = spread(rows, self._window)
        if rows.count == 0:
            return self._nothing
        hashes, checks = identity(rows, self._keys)
        bound = self._totals.bind(rows.batch)
        # One table for all partitions of the site: the partition becomes part of the hash. With the check it still tells keys
        # apart: adding a multiple of an odd number is a bijection of the partitions for each hash.
        apart = hashes + rows.partition.astype(np.uint64) * _ODD
        self._table.clear()
        one = np.zeros(rows.count, np.int32)
        touched = self._table.fold(one, apart, checks, epoch=0, extra=starts, ops=bound.ops, values=bound.values, nulls=bound.nulls)
        arrays = key_columns(rows.batch, self._keys, touched.rows)
        if self._window is not None:
            arrays.append(pa.array(starts[touched.rows]).view(TIME))
        arrays += self._totals.partials(gather(self._table.words, touched.slots, self._totals.columns))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0])
        return (Rows(batch, rows.partition[touched.rows], hashes[touched.rows]),)


def spread(rows: Rows, window: TimeWindow) -> tuple[Rows, np.ndarray]:
    """Each row once per window that it belongs to, and the windows' starts. Rows without a time are left out."""
    times = rows.batch.column(window.column)
    index, starts, _ = assign_windows(frozen(integers_of(times)), nulls_of(times), window.size_us, window.slide_us, NO_WATERMARK)
    if index.size == rows.count and window.size_us == window.slide_us:
        return rows, starts
    return rows.take(index), starts
