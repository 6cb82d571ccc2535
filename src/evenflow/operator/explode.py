"""Explode: a row per element of a list or map column (Spark's explode, inline, their outer forms, and posexplode)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.operator import Stateless
from evenflow.query.aggregates import exploded_schema
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Explode(Stateless):
    """Each row once per element of its list, in order of the elements. Selectivity: mean length. Cost: O(rows in + rows out).

    column: of lists. into: name of the element's column, which takes the list's place; several: of a map's key and value, or of
    the fields of elements that are structures. position: name of a column before it with the
    element's index from 0, or None. outer: a row whose list is null or empty comes out once, with nulls; else not at all.
    """

    def __init__(self, schema: pa.Schema, column: str, into: str | Sequence[str], position: str | None = None, outer: bool = False) -> None:
        self._whole = isinstance(into, str)
        self._at, self._outer, self._numbered = schema.get_field_index(column), outer, position is not None
        self.schemas: tuple[pa.Schema, ...] = (exploded_schema(schema, column, into, position),)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        lists = rows.batch.column(self._at)
        if pa.types.is_map(lists.type):
            lists = entries_of(lists)
        parts = [lists.flatten()] if self._whole else lists.flatten().flatten()
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.maximum(lengths, 1) if self._outer else lengths
        row = np.repeat(np.arange(rows.count), counts)
        position = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
        empty = (lengths == 0)[row] if self._outer and (lengths == 0).any() else None
        # Flattened, null and empty lists take no place.
        place = np.repeat(np.cumsum(lengths) - lengths, counts) + position
        taken = pa.array(place, mask=empty)
        made = [part.take(taken) for part in parts]
        if self._numbered:
            made.insert(0, pa.array(position.astype(np.int32), mask=empty))
        index = pa.array(row)
        arrays: list[pa.Array] = []
        for at, column in enumerate(rows.batch.columns):
            arrays += made if at == self._at else [column.take(index)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0])
        return (Rows(batch, rows.partition[row], None if rows.hash is None else rows.hash[row]),)


def entries_of(maps: pa.Array) -> pa.Array:
    """Maps as lists of structures."""
    kind = maps.type
    return maps.cast(pa.list_(pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])))
