"""What partial matches know of the rows that they have taken: the aggregates that conditions of `Matching.tried` read.

A partial match is a column of words, its cells, an int64 array (words, partial matches): of each call what it needs to go on, a row more at
a time. Rows are places in the line that `look_at` was given. What is the same of two columns is the same in whatever comes.

    call                cells
    count               how many rows
    sum, avg            how many rows that are not null, and their sum: a double's bits, or the sums of the lower and upper 32 bits apart
    min, max            the rank of the value among those of the line, and -1 before there is one
    last, with offset   the last rows of the variable, the last one first, -1 where there are not so many
    first, with offset  how many rows of the variable, as far as it has to be known, and which is the one
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow
from evenflow.kernels.columns import floats_of
from evenflow.operator.arguments import Arguments, ArgumentsOf, argument
from evenflow.operator.totals.extremes import ranked
from evenflow.operator.totals.wide_sums import mean_of, wide, wide_of
from evenflow.query.matching import MeasureCall
from evenflow.stream.arrays import Bools, Int64s

Cells = npt.NDArray[np.int64]
"""(words, m), of m partial matches."""
_PART: Final = 0xFFFFFFFF


class SoFar:
    """Aggregates of partial matches. calls: by the names under which conditions read them. schema: of rows."""

    def __init__(self, calls: Mapping[str, MeasureCall], schema: pa.Schema) -> None:
        self._calls = dict(calls)
        self._arguments_of = ArgumentsOf(self._calls.values(), schema)
        self._at: dict[str, int] = {}
        begin: list[int] = []
        for name, call in self._calls.items():
            self._at[name] = len(begin)
            begin += self._beginning(call)
        self._begin = np.array(begin, np.int64)[:, None]
        self._arguments: Arguments = {}
        self._given: dict[str, tuple[Bools, Int64s]] = {}
        self._unsigned = {text for text, kind in self._arguments_of.types.items() if kind.id == pa.uint64().id}
        self._ranked: dict[str, pa.Array] = {}

    def _beginning(self, call: MeasureCall) -> list[int]:
        """The cells before there is a row."""
        match call.function:
            case "count":
                return [0]
            case "sum" | "avg":
                return [0, 0] if self._is_float(call) else [0, 0, 0]
            case "min" | "max":
                return [-1]
            case _ if call.variable is None:
                return []
            case "last":
                return [-1] * (call.offset + 1)
            case _:
                return [0, -1]

    def _is_float(self, call: MeasureCall) -> bool:
        return bool(pa.types.is_floating(self._arguments_of.types[str(call.argument)]))

    def look_at(self, line: pa.RecordBatch, masks: Int64s) -> None:
        """Rows from here on are those of `line`. masks: int64 (n,), bit v says that a row may be variable v. Cost: O(n), of min and max
        O(n log n)."""
        self._arguments = self._arguments_of.compute(line, lambda variable: masks >> variable & 1 != 0)
        self._given.clear()
        self._ranked.clear()
        for name, call in self._calls.items():
            if call.argument is None or call.function in ("first", "last"):
                continue
            values = argument(self._arguments, call)
            there = values.is_valid().to_numpy(zero_copy_only=False)
            words = np.zeros(len(values), np.int64)
            if call.function in ("min", "max"):
                words, self._ranked[name] = ranked(values)
            elif call.function != "count":
                words = np.where(there, floats_of(values), 0.0).view(np.int64) if self._is_float(call) else wide_of(values).low
            self._given[name] = there, words

    def none(self, count: int) -> Cells:
        """The cells of `count` partial matches without a row."""
        return np.repeat(self._begin, count, axis=1)

    def take(self, cells: Cells, variable: Int64s, row: Int64s) -> None:
        """Each partial match takes its row as its variable. cells: (words, m), written. variable, row: int64 (m,)."""
        for name, call in self._calls.items():
            if call.variable is None and call.function in ("first", "last"):
                continue
            mine = np.ones(row.size, np.bool_) if call.variable is None else variable == call.variable
            at = self._at[name]
            if call.function == "last":
                cells[at : at + call.offset + 1, mine] = np.concatenate([row[None, mine], cells[at : at + call.offset, mine]])
                continue
            if call.function == "first":
                here = mine & (cells[at] == call.offset)
                cells[at] += mine & (cells[at] <= call.offset)
                cells[at + 1, here] = row[here]
                continue
            if call.argument is None:
                cells[at] += mine
                continue
            there, words = self._given[name]
            mine &= there[row]
            self._add(call, cells[at:], mine, words[row])

    def _add(self, call: MeasureCall, cells: Cells, mine: Bools, words: Int64s) -> None:
        """Values that are not null. cells: from the call's on. words: int64 (m,)."""
        match call.function:
            case "min":
                cells[0] = np.where(mine & ((words < cells[0]) | (cells[0] < 0)), words, cells[0])
            case "max":
                cells[0] = np.where(mine & (words > cells[0]), words, cells[0])
            case _:
                cells[0] += mine
                if call.function == "count":
                    return
                if self._is_float(call):
                    with np.errstate(invalid="ignore", over="ignore"):
                        made = cells[1].view(np.float64) + words.view(np.float64)
                    made[np.isnan(made)] = np.nan  # The one NaN, whatever made it.
                    cells[1, mine] = made.view(np.int64)[mine]
                else:
                    cells[1] += np.where(mine, words & _PART, 0)
                    upper = words >> 32
                    cells[2] += np.where(mine, upper & _PART if call.argument in self._unsigned else upper, 0)

    def value(self, name: str, cells: Cells, begin: Int64s, row: Int64s) -> pa.Array:
        """The aggregate of the rows taken so far. begin, row: int64 (m,), the first and the last of them."""
        call = self._calls[name]
        at = self._at[name]
        if call.function in ("first", "last"):
            if call.variable is None:
                place = row - call.offset if call.function == "last" else begin + call.offset
                place = np.where((place >= begin) & (place <= row), place, -1)
            else:
                place = cells[at + (call.offset if call.function == "last" else 1)]
            return argument(self._arguments, call).take(pa.array(place, mask=place < 0))
        if call.function == "count":
            return pa.array(cells[at])
        if call.function in ("min", "max"):
            return self._ranked[name].take(pa.array(cells[at], mask=cells[at] < 0))
        count = cells[at]
        empty = count == 0
        if self._is_float(call):
            added = np.ascontiguousarray(cells[at + 1]).view(np.float64)
            return pa.array(added if call.function == "sum" else added / np.maximum(count, 1), call.type, mask=empty)
        low, high = cells[at + 1], cells[at + 2]
        high = high + (low >> 32)
        total = wide((high << 32) | (low & _PART), high >> 32)
        if call.function == "avg":
            return mean_of(total, count, call.type)
        if total.high is not None:
            raise ArithmeticOverflow("a sum of a match so far left the range of bigint: cast the column to double")
        return pa.array(total.low, mask=empty)
