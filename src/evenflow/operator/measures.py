"""Measures of matches: aggregates over the rows of each match, of one variable or of all, and expressions over them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.arguments import Arguments, ArgumentsOf, argument
from evenflow.operator.bsort import numbered
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.so_far import can_be_so_far, so_far
from evenflow.query.aggregates import AggCall
from evenflow.query.expression import compile_expression
from evenflow.query.matching import CLASSIFIER, MATCH_NUMBER, Matching, MeasureCall
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

MATCH: Final = "_match"
NOW: Final = Tick(0, 0, NO_WATERMARK, NO_WATERMARK)
FOLDED_ROWS: Final = 1 << 18
"""Rows of beginnings of matches that are folded at once, but for a match that has more by itself."""


class Measures:
    """Computes the results of a `Matching`. Rows of a match are folded in order, so floats add up to the same bits whenever they come."""

    def __init__(self, matching: Matching) -> None:
        self._calls = tuple(matching.calls)
        self._arguments_of = ArgumentsOf(self._calls, matching.schema)
        self._results = [compile_expression(text, matching.measured) for _, text, _ in matching.results]
        self._measured = matching.measured
        self._all_rows, self._names = matching.all_rows, pa.array(matching.program.variables, pa.string())
        calls = [(at, call) for at, call in enumerate(self._calls) if call.running]
        self._once = [
            at for at, call in calls if call.argument is None or can_be_so_far(call.function, self._arguments_of.types[call.argument])
        ]
        self._again = [at for at, _ in calls if at not in self._once]
        self._totals = {running: self._made(running) for running in (False, True)}

    def compute(self, rows: pa.RecordBatch, match: Int64s, variable: Int64s, number: Int64s) -> list[pa.Array]:
        """A column per measure, a value per match, or, where all rows come out, per row of each match.

        rows: of all matches, one match after the other, each in order; the columns that `Matching.read` names. match: int64 (n,), the
        number of each row's, ascending from 0, each at least once. variable: int64 (n,). number: int64, of each match among its key's.
        """
        count = number.size
        arguments = self._arguments_of.compute(rows, lambda mine: variable == mine)
        final = self._final(arguments, match, variable, count)
        final |= {at: pa.array(number) for at, call in enumerate(self._calls) if call.function == MATCH_NUMBER}
        if self._all_rows:
            each = pa.array(match)
            final = {number: column.take(each) for number, column in final.items()}
        columns = final | self._running(arguments, match, variable)
        batch = pa.RecordBatch.from_arrays([columns[number] for number in range(len(self._calls))], schema=self._measured)
        if not self._calls:  # A batch of no columns has no rows.
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * (match.size if self._all_rows else count), pa.struct([])))
        return [result(batch) for result in self._results]

    def _running(self, arguments: Arguments, match: Int64s, variable: Int64s) -> dict[int, pa.Array]:
        """Of each row, the calls of the rows of its match up to it."""
        if not any(call.running for call in self._calls):
            return {}
        start = np.flatnonzero(np.diff(match, prepend=-1) != 0)[match]
        columns: dict[int, pa.Array] = {}
        for number in self._once:
            call = self._calls[number]
            if call.function == CLASSIFIER:
                columns[number] = self._names.take(pa.array(variable))
                continue
            of = None if call.variable is None else variable == call.variable
            values = None if call.argument is None else argument(arguments, call)
            columns[number] = so_far(call.function, values, start, call.type, of)
        return columns | (self._beginnings(arguments, match, variable, start) if self._again else {})

    def _beginnings(self, arguments: Arguments, match: Int64s, variable: Int64s, start: Int64s) -> dict[int, pa.Array]:
        """Calls that one pass does not have: as if each beginning of a match were a match. A match of n rows has n (n + 1) / 2 rows in
        them, so they are folded some at a time."""
        place = np.arange(match.size) - start + 1
        parts: list[dict[int, pa.Array]] = []
        ends = np.cumsum(place)
        at = 0
        while at < match.size:
            upto = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + FOLDED_ROWS, "right")))
            which, back = numbered(place[at:upto])
            row = (np.arange(at, upto) - place[at:upto])[which] + back
            taken = pa.array(row)
            some = {of: values.take(taken) for of, values in arguments.items()}
            parts.append(self._fold(some, which, variable[row], running=True))
            at = upto
        return {number: pa.concat_arrays([part[number] for part in parts]) for number in parts[0]}

    def _final(self, arguments: Arguments, match: Int64s, variable: Int64s, count: int) -> dict[int, pa.Array]:
        """The calls that are of all rows, by number: a value per match."""
        columns: dict[int, pa.Array] = {}
        for number, call in enumerate(self._calls):
            if call.running or call.function == MATCH_NUMBER:
                continue
            if call.function == CLASSIFIER:
                last = np.flatnonzero(np.diff(match, append=-1) != 0)
                columns[number] = self._names.take(pa.array(variable[last]))
            elif call.argument is None:
                mine = match if call.variable is None else match[variable == call.variable]
                columns[number] = pa.array(np.bincount(mine, minlength=count))
            elif _is_place(call):
                columns[number] = _placed(call, argument(arguments, call), match, variable, count)
        return columns | self._fold(arguments, match, variable, running=False)

    def _fold(self, arguments: Arguments, match: Int64s, variable: Int64s, *, running: bool) -> dict[int, pa.Array]:
        """Totals over the rows; those of other variables count as null, which no total but first and last looks at."""
        totals, folded = self._totals[running]
        if totals is None:
            return {}
        arrays = [pa.array(match)]
        for number in folded:
            call = self._calls[number]
            values = argument(arguments, call)
            if call.variable is not None:
                values = pc.if_else(pa.array(variable == call.variable), values, pa.scalar(None, values.type))
            arrays.append(values)
        batch = pa.RecordBatch.from_arrays(arrays, names=[MATCH, *[f"_{number}" for number in folded]])
        (found,) = totals.process(Rows(batch, np.zeros(match.size, np.int32), None), NOW)
        totals.drop(0)
        return {number: found.batch.column(f"_measure{number}") for number in folded}

    def _made(self, running: bool) -> tuple[Aggregate | None, list[int]]:
        """What folds the calls of one sort, and which these are."""
        final = (at for at, call in enumerate(self._calls) if not call.running and call.argument is not None and not _is_place(call))
        mine = self._again if running else list(final)
        fields = [pa.field(f"_{at}", self._arguments_of.types[str(self._calls[at].argument)]) for at in mine]
        calls = [AggCall(f"_measure{at}", self._calls[at].function, f"_{at}", self._calls[at].type) for at in mine]
        return Aggregate(pa.schema([pa.field(MATCH, pa.int64()), *fields]), (MATCH,), calls) if calls else None, mine


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
