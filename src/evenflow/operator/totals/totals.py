"""Totals: the cells of aggregate calls, bound to a schema. What to fold into a row, and what a row means.

Words of all cells lie one after the other; `template` is what they begin with. A batch is bound to `(ops, values, nulls)` for the
kernels of `kernels.fold`; gathered words become result columns. See `evenflow.query.aggregates` for the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow
from evenflow.kernels import fold
from evenflow.kernels.columns import fixed_view, floats_of, integers_of, nulls_of, ordered_floats, unordered_floats
from evenflow.kernels.exact import negated, rounded
from evenflow.kernels.hash import hash_columns
from evenflow.kernels.sketch import estimates
from evenflow.kernels.wide import averages, first_wide
from evenflow.query.aggregates import AggCall, Cell, cells, cells_of, partial_cells
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Int64s, arrow_of

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1

_FROM_ROWS: Final = {
    "rows": fold.ROWS,
    "count": fold.COUNT,
    "isum": fold.ISUM,
    "fsum": fold.FSUM,
    "min": fold.MIN,
    "max": fold.MAX,
    "moments": fold.MOMENTS,
    "first": fold.FIRST,
    "last": fold.LAST,
    "hll": fold.HLL,
    "xsum": fold.XSUM,
}
_FROM_PARTIALS: Final = {
    "rows": fold.ADD,
    "count": fold.ADD,
    "isum": fold.ISUM_MERGE,
    "fsum": fold.FSUM_MERGE,
    "min": fold.MIN,
    "max": fold.MAX,
    "moments": fold.MOMENTS_MERGE,
    "xsum": fold.XSUM_MERGE,
}
_FORM: Final = {"isum": "integer", "fsum": "float", "xsum": "float", "min": "ordered", "max": "ordered", "moments": "float", "hll": "hash"}
_AS_THEY_LIE: Final = frozenset(
    [(form, pa.int64().id) for form in ("integer", "plain", "ordered")] + [(form, pa.float64().id) for form in ("float", "plain")]
)
"""(form, id of the type) where the words are what is in memory."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A batch as the fold kernels want it: ops int64 (c, 4), values int64 (v, n), nulls uint8 (z, n)."""

    ops: Int64s
    values: Int64s
    nulls: npt.NDArray[np.uint8]


def value_words(array: pa.Array, form: str) -> Int64s:
    """int64 (n,): a column in the form that a cell folds: integer, float bits, words that sort, plain words, hashes."""
    if (form, array.type.id) in _AS_THEY_LIE:
        return fixed_view(array, np.int64)
    if pa.types.is_dictionary(array.type) and form != "hash":
        array = array.dictionary_decode()
    floating = pa.types.is_floating(array.type)
    if form == "hash":
        return hash_columns(pa.RecordBatch.from_arrays([array], ["value"]), ["value"]).view(np.int64)
    if pa.types.is_struct(array.type):
        return np.zeros(len(array), np.int64)  # Whether it is there say its nulls.
    if form == "float" or (form == "plain" and floating):
        return floats_of(array).view(np.int64)
    if form == "ordered" and floating:
        return ordered_floats(np.ascontiguousarray(floats_of(array)))
    return integers_of(array)


Read = tuple[str, tuple[int, ...] | None]
"""What is read of a batch: a column, or, by a path, a part of one that is a structure (see `Cell`)."""


def read_of(batch: pa.RecordBatch, read: Read) -> pa.Array:
    """Null too where a structure around the part is."""
    name, path = read
    array = batch.column(name)  # It is an object that Arrow makes anew when it is asked.
    for at in path or ():
        array = array.flatten()[at] if array.null_count else array.field(at)
    return array


class Totals:
    """The cells of `calls` over `schema`: rows, or partial results of rows (`partial`). first: column of a row's first cell.

    every_cell: also count rows, as partial results must. apart: structures may be kept in parts.
    """

    def __init__(
        self,
        calls: Sequence[AggCall],
        schema: pa.Schema,
        *,
        first: int,
        partial: bool = False,
        every_cell: bool = False,
        apart: bool = True,
    ) -> None:
        self.calls = tuple(calls)
        self.cells = partial_cells(calls, schema) if every_cell else cells(calls, schema, apart=apart)
        self._parts = {call.name: cells_of(call, schema, apart=apart) for call in calls}
        self._at: dict[Cell, int] = {}
        template: list[int] = []
        for cell in self.cells:
            self._at[cell] = len(template)
            begin = {"min": GREATEST, "max": LEAST}.get(cell.kind, 0)
            template += [begin] * cell.words
        self.template = np.array(template, np.int64)
        self._where = {name: (self._at[parts[0]], self._at[parts[-1]]) for name, parts in self._parts.items() if parts[0].words}
        self.first = first
        self.columns = np.arange(first, first + len(template), dtype=np.int64)
        self._values: dict[tuple[Read, str], int] = {}
        self._nulls: dict[Read, int] = {}
        self._ops = [self._op(cell, partial) for cell in self.cells if cell.words]
        self._columns = tuple(dict.fromkeys([*(column for column, _ in self._values), *self._nulls]))
        self._fixed_ops = np.array([op[:4] for op in self._ops], np.int64).reshape(-1, 4)
        self._ops_without_nulls = self._fixed_ops.copy()
        self._ops_without_nulls[:, 3] = -1

    def _op(self, cell: Cell, partial: bool) -> tuple[int, int, int, int]:
        at = self.first + self._at[cell]
        if partial:
            rows = [self._values.setdefault(((name, None), "plain"), len(self._values)) for name in cell.partial_names]
            return _FROM_PARTIALS[cell.kind], at, rows[0], -1
        if cell.column is None:
            return fold.ROWS, at, 0, -1
        read = cell.column, cell.path
        null = self._nulls.setdefault(read, len(self._nulls))
        if cell.kind == "count":
            return fold.COUNT, at, 0, null
        value = self._values.setdefault((read, _FORM.get(cell.kind, "plain")), len(self._values))
        return _FROM_ROWS[cell.kind], at, value, null

    def at(self, cell: Cell) -> int:
        """Where the words of a cell begin, counted from the first cell."""
        return self._at[cell]

    def bind(self, batch: pa.RecordBatch) -> Bound:
        """What to fold for a batch. A single int64 or double column is not copied."""
        n = batch.num_rows
        arrays = {read: read_of(batch, read) for read in self._columns}
        found = [value_words(arrays[column], form) for column, form in self._values]
        values = found[0].reshape(1, n) if len(found) == 1 else np.empty((len(found), n), np.int64)
        if len(found) > 1:
            for row, words in enumerate(found):
                values[row] = words
        with_nulls = [(i, nulls_of(arrays[name])) for name, i in self._nulls.items() if arrays[name].null_count]
        if not with_nulls:
            return Bound(self._ops_without_nulls, values, np.empty((0, n), np.uint8))
        ops = self._fixed_ops
        nulls = np.empty((len(with_nulls), n), np.uint8)
        place = np.full(len(self._nulls) + 1, -1, np.int64)
        for row, (i, null) in enumerate(with_nulls):
            nulls[row], place[i] = null, row
        if ops.size:
            ops = ops.copy()
            ops[:, 3] = place[ops[:, 3]]
        return Bound(ops, values, nulls)

    def partials(self, words: Int64s, states: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Columns of partial results. words: int64 (all cells' words, g). states: of the user's aggregators, by call."""
        arrays = []
        for cell in self.cells:
            if cell.kind == "state":
                arrays.append(states[cell.call])
                continue
            for i, kind in enumerate(cell.partial_types):
                arrays.append(to_array(words[self._at[cell] + i], kind, None))
        return arrays

    def negative(self, words: Int64s) -> Int64s:
        """What takes these totals back when it is added. words: int64 (all cells' words, g), of counts and exact sums only."""
        made = -words
        for cell in self.cells:
            if cell.kind == "isum":  # One number of 128 bits: the high word has what the low one borrows.
                high = self._at[cell] + 1
                made[high] = ~words[high] + (words[high - 1] == 0)
            elif cell.kind == "xsum":
                at = self._at[cell]
                made[at : at + cell.words] = negated(words[at : at + cell.words])
        return made

    def results(self, words: Int64s, key_of: Callable[[int], str]) -> list[pa.Array | None]:
        """One column per call, None for those kept as objects. words: int64 (all cells' words, g), C order.

        Raises ArithmeticOverflow when a sum of integers is out of range, naming the key by `key_of(group)`.
        """
        return [self._result(call, words, key_of) for call in self.calls]

    def _result(self, call: AggCall, words: Int64s, key_of: Callable[[int], str]) -> pa.Array | None:
        where = self._where.get(call.name)
        if where is None:
            return None
        parts, (counted, at) = self._parts[call.name], where
        if parts[0].path is not None:
            return _structure(words, {part.path: self._at[part] for part in parts}, call.type)
        main = parts[-1]
        empty = words[counted] == 0 if len(parts) == 2 and np.count_nonzero(words[counted]) < words.shape[1] else None
        match main.kind:
            case "rows" | "count":
                return arrow_of(words[at], pa.int64())
            case "isum" if call.function == "sum":
                return to_array(_checked_sum(words[at], words[at + 1], call, key_of), call.type, empty)
            case "isum":
                return to_array(averages(words[at], words[at + 1], words[counted]).view(np.int64), call.type, empty)
            case "fsum" if call.function == "sum":
                return to_array(words[at], call.type, empty)
            case "fsum":
                found = _divide(words[at].view(np.float64), words[counted], empty)
                return arrow_of(found, pa.float64()) if empty is None else pa.array(found, mask=empty)
            case "xsum":
                total = rounded(words[at : at + main.words])
                return pa.array(total if call.function == "sum" else _divide(total, words[counted], empty), call.type, mask=empty)
            case "min" | "max":
                back = unordered_floats(words[at]).view(np.int64) if pa.types.is_floating(call.type) else words[at]
                return to_array(back if empty is None else np.where(empty, 0, back), call.type, empty)
            case "moments":
                return _deviation(words[at], words[at + 2].view(np.float64))
            case "hll":
                return pa.array(estimates(words[at : at + main.words]))
            case _:
                return to_array(words[at], call.type, words[at + 1] != 1)


def _structure(words: Int64s, at: Mapping[tuple[int, ...] | None, int], kind: pa.DataType, path: tuple[int, ...] = ()) -> pa.Array:
    """A structure of its parts, or one of these. at: where the words of each begin."""
    value, state = words[at[path] : at[path] + 2]
    missing = state != 1
    if not pa.types.is_struct(kind):
        return to_array(value, kind, missing)
    parts = [_structure(words, at, field.type, (*path, number)) for number, field in enumerate(kind)]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(missing) if missing.any() else None)


def _divide(total: npt.NDArray[np.float64], count: Int64s, empty: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
    """empty: where the count is 0, None if it is nowhere."""
    return np.divide(total, count) if empty is None else np.divide(total, count, out=np.zeros(count.size), where=~empty)


def _checked_sum(low: Int64s, high: Int64s, call: AggCall, key_of: Callable[[int], str]) -> Int64s:
    wrong = first_wide(low, high)
    if wrong >= 0:
        raise ArithmeticOverflow(f"sum({call.column}) of key {key_of(wrong)} left the range of bigint: cast the column to double")
    return low


def _deviation(count: Int64s, square: npt.NDArray[np.float64]) -> pa.Array:
    few = count < 2
    spread = np.sqrt(np.divide(square, count - 1, out=np.zeros(count.size), where=~few))
    return pa.array(spread, mask=few if few.any() else None)
