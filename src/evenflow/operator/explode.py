"""Explode: a row per element of a list column (Spark's explode, explode_outer and posexplode)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.operator import Stateless
from evenflow.query.aggregates import exploded_schema
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Explode(Stateless):
    """Each row once per element of its list, in order of the elements. Selectivity: mean length. Cost: O(rows in + rows out).

    column: of lists. into: name of the element's column, which takes the list's place. position: name of a column before it with the
    element's index from 0, or None. outer: a row whose list is null or empty comes out once, with nulls; else not at all.
    """

    def __init__(self, schema: pa.Schema, column: str, into: str, position: str | None = None, outer: bool = False) -> None:
        self._at, self._outer, self._numbered = schema.get_field_index(column), outer, position is not None
        self.schemas: tuple[pa.Schema, ...] = (exploded_schema(schema, column, into, position),)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        lists = rows.batch.column(self._at)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.maximum(lengths, 1) if self._outer else lengths
        row = np.repeat(np.arange(rows.count), counts)
        position = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
        empty = (lengths == 0)[row] if self._outer and (lengths == 0).any() else None
        # Flattened, null and empty lists take no place.
        place = np.repeat(np.cumsum(lengths) - lengths, counts) + position
        made = [lists.flatten().take(pa.array(place, mask=empty))]
        if self._numbered:
            made.insert(0, pa.array(position.astype(np.int32), mask=empty))
        index = pa.array(row)
        arrays: list[pa.Array] = []
        for at, column in enumerate(rows.batch.columns):
            arrays += made if at == self._at else [column.take(index)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0])
        return (Rows(batch, rows.partition[row], None if rows.hash is None else rows.hash[row]),)
