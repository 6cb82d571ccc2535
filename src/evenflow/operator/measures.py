"""Measures of matches: aggregates over the rows of each match, of one variable or of all, and expressions over them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.totals.aggregate import Aggregate
from evenflow.query.aggregates import AggCall
from evenflow.query.expression import compile_expression
from evenflow.query.matching import Matching, MeasureCall
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

MATCH: Final = "_match"
NOW: Final = Tick(0, 0, NO_WATERMARK, NO_WATERMARK)


class Measures:
    """Computes the results of a `Matching`. Rows of a match are folded in order, so floats add up to the same bits whenever they come."""

    def __init__(self, matching: Matching) -> None:
        self._calls = tuple(matching.calls)
        arguments = dict.fromkeys(call.argument for call in self._calls if call.argument is not None)
        self._arguments = {text: compile_expression(text, matching.schema) for text in arguments}
        self._results = [compile_expression(text, matching.measured) for _, text, _ in matching.results]
        self._measured = matching.measured
        self._folded = [number for number, call in enumerate(self._calls) if not _is_place(call) and call.argument is not None]
        fields = [pa.field(f"_{number}", self._arguments[str(self._calls[number].argument)].type) for number in self._folded]
        self._schema = pa.schema([pa.field(MATCH, pa.int64()), *fields])
        calls = [AggCall(f"_measure{n}", self._calls[n].function, f"_{n}", self._calls[n].type) for n in self._folded]
        self._totals = Aggregate(self._schema, (MATCH,), calls) if calls else None

    def compute(self, rows: pa.RecordBatch, match: Int64s, variable: Int64s, count: int) -> list[pa.Array]:
        """A column per measure, a value per match.

        rows: of all matches, one match after the other, each in order; the columns that `Matching.read` names. match: int64 (n,), the
        number of each row's, ascending from 0, each at least once. variable: int64 (n,). count: matches.
        """
        arguments = {text: compiled(rows) for text, compiled in self._arguments.items()}
        columns: dict[int, pa.Array] = {}
        for number, call in enumerate(self._calls):
            if call.argument is None:
                mine = match if call.variable is None else match[variable == call.variable]
                columns[number] = pa.array(np.bincount(mine, minlength=count))
            elif _is_place(call):
                columns[number] = _placed(call, arguments[call.argument], match, variable, count)
        columns |= self._fold(arguments, match, variable)
        batch = pa.RecordBatch.from_arrays([columns[number] for number in range(len(self._calls))], schema=self._measured)
        return [result(batch) for result in self._results]

    def _fold(self, arguments: dict[str, pa.Array], match: Int64s, variable: Int64s) -> dict[int, pa.Array]:
        """Totals over the rows; those of other variables count as null, which no total but first and last looks at."""
        if self._totals is None:
            return {}
        arrays = [pa.array(match)]
        for number in self._folded:
            call = self._calls[number]
            values = arguments[str(call.argument)]
            if call.variable is not None:
                values = pc.if_else(pa.array(variable == call.variable), values, pa.scalar(None, values.type))
            arrays.append(values)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        (found,) = self._totals.process(Rows(batch, np.zeros(match.size, np.int32), None), NOW)
        self._totals.drop(0)
        return {number: found.batch.column(f"_measure{number}") for number in self._folded}


def _is_place(call: MeasureCall) -> bool:
    return call.function in ("first", "last") and call.argument is not None


def _placed(call: MeasureCall, values: pa.Array, match: Int64s, variable: Int64s, count: int) -> pa.Array:
    """The value of the first or the last row of the variable; null if it has none."""
    rows = np.arange(match.size) if call.variable is None else np.flatnonzero(variable == call.variable)
    if call.function == "first":
        rows = rows[::-1]
    at = np.full(count, -1, np.int64)
    at[match[rows]] = rows  # Of several the one written last stays.
    return values.take(pa.array(at, mask=at < 0))
