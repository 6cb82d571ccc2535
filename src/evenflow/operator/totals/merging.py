"""Totals of totals: the cells of several rows of a table united into one, in a given order, for every kind of cell."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels import fold
from evenflow.kernels.columns import frozen
from evenflow.operator.totals.text_totals import object_total
from evenflow.operator.totals.totals import Totals
from evenflow.operator.totals.user_states import united_states
from evenflow.query.aggregates import COLLECT_ROWS, AggCall
from evenflow.stream.arrays import Int64s

_MERGED_BY: Final = {
    "rows": fold.ADD, "count": fold.ADD, "isum": fold.ISUM_MERGE, "fsum": fold.FSUM_MERGE, "min": fold.MIN, "max": fold.MAX,
    "moments": fold.MOMENTS_MERGE, "xsum": fold.XSUM_MERGE, "first": fold.FIRST, "last": fold.LAST,
}  # fmt: skip
_REGISTERS_PER_WORD: Final = 10
_REGISTER_BITS: Final = 6
_NULL: Final = 2
"""State of a first or last cell whose value is null."""


def merge_totals(totals: Totals, words: Int64s, group: Int64s, count: int) -> Int64s:
    """int64 (cells' words, count): the united totals of each group.

    words: int64 (cells' words, m), of m rows. group: int64 (m,), ascending, the group of each row; every group has a row. Rows of a
    group are united in the order given, which counts for first, last and the last bits of float sums.
    """
    made = np.repeat(totals.template[None, :], count, axis=0)
    ops: list[tuple[int, int, int, int]] = []
    nulls: list[npt.NDArray[np.uint8]] = []
    for cell in totals.cells:
        at = totals.at(cell)
        if cell.kind in ("first", "last"):
            ops.append((_MERGED_BY[cell.kind], at, at, len(nulls)))
            nulls.append((words[at + 1] == _NULL).astype(np.uint8))
        elif cell.kind == "hll":
            made[:, at : at + cell.words] = _highest_registers(words[at : at + cell.words], group, count).T
        elif cell.words:
            ops.append((_MERGED_BY[cell.kind], at, at, -1))
    marks = np.array(nulls, np.uint8).reshape(len(nulls), group.size)
    table = np.array(ops, np.int64).reshape(-1, 4)
    if table.size:
        fold.fold_at(made, np.ascontiguousarray(group), table, frozen(words), frozen(marks))
    return np.ascontiguousarray(made.T)


def _highest_registers(words: Int64s, group: Int64s, count: int) -> Int64s:
    """int64 (words, count): the union of HyperLogLog sketches, register by register."""
    starts = np.searchsorted(group, np.arange(count))
    made = np.zeros((words.shape[0], count), np.int64)
    for register in range(_REGISTERS_PER_WORD):
        shift = register * _REGISTER_BITS
        made |= np.maximum.reduceat(words >> shift & 63, starts, axis=1) << shift
    return made


def merge_objects(call: AggCall, values: npt.NDArray[np.object_], group: Int64s, count: int) -> list[Any]:
    """The united object totals of each group: strings' min, max, first and last, lists, and states of the user's aggregators.

    values: object (m,), as in `merge_totals`.
    """
    bounds = [*np.searchsorted(group, np.arange(count)).tolist(), group.size]
    if call.made is not None:
        return [united_states(call.made, values[start:stop].tolist()) for start, stop in pairwise(bounds)]
    if call.function == COLLECT_ROWS:
        return [list(chain.from_iterable(values[start:stop])) for start, stop in pairwise(bounds)]
    united = [object_total(call.function, values[start:stop].tolist()) for start, stop in pairwise(bounds)]
    return [list(chain.from_iterable(lists)) for lists in united] if call.function == "collect_list" else united
