"""Unpivot: a row per column of some, with its name and its value (Spark's unpivot and melt)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.operator.operator import Stateless
from evenflow.query.aggregates import unpivoted_schema
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Unpivot(Stateless):
    """Each row once per column of `values`, in their order. Selectivity: how many they are. Cost: O(rows out).

    ids: columns that each of them keeps. variable, value: names of the columns with the column's name, and with its value, null or not.
    """

    def __init__(self, schema: pa.Schema, ids: Sequence[str], values: Sequence[str], variable: str, value: str) -> None:
        self._ids, self._values, self._names = tuple(ids), tuple(values), pa.array(list(values), pa.string())
        self.schemas: tuple[pa.Schema, ...] = (unpivoted_schema(schema, ids, values, variable, value),)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        count, width = rows.count, len(self._values)
        row = np.repeat(np.arange(count), width)
        index = pa.array(row)
        # Of the columns one behind the other, value j of row i lies at j * count + i.
        columns = pa.concat_arrays([rows.batch.column(column) for column in self._values])
        place = np.tile(np.arange(width), count)
        arrays = [rows.batch.column(column).take(index) for column in self._ids]
        arrays += [self._names.take(pa.array(place)), columns.take(pa.array(place * count + row))]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0])
        return (Rows(batch, rows.partition[row], None if rows.hash is None else rows.hash[row]),)
