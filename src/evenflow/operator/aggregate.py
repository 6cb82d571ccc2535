"""Aggregate: running totals per key. Every epoch puts out the current totals of the keys that it touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.kernels.table import HEADER, gather
from evenflow.operator.keys import describe, identity, key_columns
from evenflow.operator.pages import PagedTable
from evenflow.operator.tabled import Tabled
from evenflow.operator.text_totals import fold_objects, object_array
from evenflow.operator.totals import Totals
from evenflow.query.aggregates import AggCall, result_schema
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

Int64s = npt.NDArray[np.int64]


class Aggregate(Tabled):
    """Running totals (update mode). Selectivity: distinct keys of the epoch / rows. Cost: O(rows), whatever the state's size.

    schema: of the input, rows or with `partial` the output of a `Combine`. keys: the segment's key, whose hash the rows carry; with
    no keys there is one group. Output: keys as in the epoch's first row of each key, then one column per call; per partition in
    order of first appearance. Raises ArithmeticOverflow, naming the key.
    """

    timeless = True

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        calls: Sequence[AggCall],
        *,
        partial: bool = False,
        time: str | None = None,
    ) -> None:
        self._keys, self._calls = tuple(keys), tuple(calls)
        self._totals = Totals(calls, schema, first=HEADER, partial=partial)
        self._loose = [call for call in calls if is_object(self._totals, call)]
        self._table = PagedTable(self._totals.template, [call.type for call in self._loose])
        self.schemas: tuple[pa.Schema, ...] = (result_schema(schema, keys, calls, None, time),)
        self._nothing = (Rows.empty(self.schemas[0], keyed=True),)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return self._nothing
        hashes, checks = identity(rows, self._keys)
        bound = self._totals.bind(rows.batch)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=tick.epoch, ops=bound.ops, values=bound.values, nulls=bound.nulls)
        for call, column in zip(self._loose, self._table.objects, strict=True):
            fold_objects(call, column, rows.batch, touched)
        keys = key_columns(rows.batch, self._keys, touched.rows)
        results = read_results(self._totals, self._table, self._loose, touched.slots, lambda group: describe(keys, self._keys, group))
        batch = pa.RecordBatch.from_arrays([*keys, *results], schema=self.schemas[0])
        return (Rows(batch, rows.partition[touched.rows], hashes[touched.rows]),)


def is_object(totals: Totals, call: AggCall) -> bool:
    """Whether a call is kept as a Python object."""
    return any(cell.kind == "object" and cell.call == call.name for cell in totals.cells)


def read_results(
    totals: Totals, table: PagedTable, loose: Sequence[AggCall], slots: Int64s, key_of: Callable[[int], str]
) -> list[pa.Array]:
    """One column per call for the rows at `slots`. loose: the calls that the table's first object columns belong to."""
    columns = dict(zip((call.name for call in loose), table.objects, strict=False))
    slots = np.ascontiguousarray(slots)
    results = totals.results(gather(table.words, slots, totals.columns), key_of)
    return [
        object_array(columns[call.name], slots, call.type) if array is None else array
        for call, array in zip(totals.calls, results, strict=True)
    ]
