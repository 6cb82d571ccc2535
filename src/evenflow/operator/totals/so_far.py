"""So far: what an aggregate is of the rows of a group up to each of them, all in one pass.

Each value is what `Aggregate` makes of these rows alone, to the last bit: floats add up one after the other from the group's first row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import floats_of, integers_of, is_word, ordered_floats, unordered_floats
from evenflow.operator.totals.extremes import first_of, look_alike, ranked
from evenflow.operator.totals.wide_sums import mean_of, sums, total_of, wide_of
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Floats, Int64s
from evenflow.stream.schema import has_map

FUNCTIONS: Final = frozenset(("count", "sum", "avg", "min", "max", "first", "last"))
LONG_ROWS: Final = 64
"""Groups of more rows are added up one by one, shorter ones all at once, a row of each after the other."""


def can_be_so_far(function: str, kind: pa.DataType) -> bool:
    """Whether `so_far` has the aggregate of a column of this type."""
    if function in ("count", "first", "last"):
        return True
    if function in ("min", "max"):
        return kind.id not in (pa.null().id, pa.uint64().id) and not has_map(kind)
    return function in FUNCTIONS and (pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.id != pa.uint64().id))


def so_far(
    function: str, values: pa.Array | None, start: Int64s, kind: pa.DataType, of: Bools | None = None, *, earliest: bool = False
) -> pa.Array:
    """(n,), the aggregate of the rows of its group up to each row.

    function: one of FUNCTIONS. values: its argument, (n,); None: the rows are counted. start: int64 (n,), rising: where each row's group
    begins. kind: of the result. of: bool (n,), which rows count; all if None. earliest: of values that are equal, as both zeros are, the
    first is the least and the greatest. Raises ArithmeticOverflow where a sum of integers leaves
    bigint. Cost: O(n), O(n log n) for min and max.
    """
    rows = np.ones(start.size, np.bool_) if of is None else of
    if not start.size:
        return pa.array([], kind)
    if function in ("first", "last"):
        assert values is not None, "a place is of a column"
        return _place(function, values, start, rows)
    if values is not None and values.null_count:
        rows = rows & values.is_valid().to_numpy(zero_copy_only=False)
    counted = _counts(rows, start)
    if function == "count":
        return pa.array(counted)
    assert values is not None, "only rows are counted without a column"
    empty = counted == 0
    if function in ("min", "max"):
        if earliest and not look_alike(values):
            ranks, _ = ranked(values)
            count = int(ranks.max()) + 1
            best = _best_ranks(function, ranks, rows, start, count)
            return values.take(pa.array(first_of(np.where(rows, ranks, count), best, start), mask=empty))
        return _best(function, values, rows, start, kind, empty)
    if pa.types.is_floating(values.type):
        total = _float_sums(np.where(rows, floats_of(values), 0.0), start)
        return pa.array(total if function == "sum" else np.divide(total, np.maximum(counted, 1)), kind, mask=empty)
    given = wide_of(values)
    exact = sums(given if rows.all() else given.where(rows), start, np.arange(1, start.size + 1))
    if function == "sum":
        return total_of(exact, kind, empty)
    return mean_of(exact, counted, kind, values.type.scale if pa.types.is_decimal(values.type) else 0)


def _counts(rows: Bools, start: Int64s) -> Int64s:
    until = np.cumsum(rows)
    return until - (until[start] - rows[start])


def _place(function: str, values: pa.Array, start: Int64s, rows: Bools) -> pa.Array:
    """The value of the group's first row that counts, or of its last one so far; null if there is none yet."""
    here = np.arange(start.size)
    if function == "last":
        at = np.maximum.accumulate(np.where(rows, here, -1))
        none = at < start
    else:
        begins = np.flatnonzero(start == here)
        firsts = np.minimum.reduceat(np.where(rows, here, start.size), begins)
        at = firsts[np.searchsorted(begins, start)]
        none = at > here
    return values.take(pa.array(np.where(none, 0, at), mask=none))


def _float_sums(values: Floats, start: Int64s) -> Floats:
    sums = values + 0.0
    begins = np.flatnonzero(start == np.arange(start.size))
    ends = np.append(begins[1:], start.size)
    with np.errstate(invalid="ignore", over="ignore"):
        for begin, end in zip(begins[ends - begins > LONG_ROWS].tolist(), ends[ends - begins > LONG_ROWS].tolist(), strict=True):
            sums[begin:end] = np.add.accumulate(sums[begin:end])
        short = ends - begins <= LONG_ROWS
        begins, ends = begins[short], ends[short]
        for place in range(1, LONG_ROWS):
            more = begins + place < ends
            begins, ends = begins[more], ends[more]
            if not begins.size:
                break
            sums[begins + place] += sums[begins + place - 1]
    sums[np.isnan(sums)] = np.nan  # The one NaN, whatever made it.
    return sums


def _best(function: str, values: pa.Array, rows: Bools, start: Int64s, kind: pa.DataType, empty: Bools) -> pa.Array:
    """NaN is the greatest; of zeros the one with a sign is less."""
    if is_word(values.type) and values.type.id != pa.uint64().id:
        floating = pa.types.is_floating(values.type)
        words, ranks = np.unique(ordered_floats(floats_of(values)) if floating else integers_of(values), return_inverse=True)
        best = words[_best_ranks(function, ranks, rows, start, words.size)]
        return to_array(unordered_floats(best).view(np.int64) if floating else best, kind, empty)
    ranks, named = ranked(values)
    found = _best_ranks(function, ranks, rows, start, len(named))
    return named.take(pa.array(found, mask=empty))


def _best_ranks(function: str, ranks: Int64s, rows: Bools, start: Int64s, count: int) -> Int64s:
    # A group's ranks are above those of all groups before, so the greatest up to a row is of its group.
    above = np.cumsum(start == np.arange(start.size)) * (count + 1)
    ranks = ranks if function == "max" else count - 1 - ranks
    found: Int64s = np.maximum(np.maximum.accumulate(above + np.where(rows, ranks + 1, 0)) - above - 1, 0)
    return found if function == "max" else np.maximum(count - 1 - found, 0)


__all__ = ["FUNCTIONS", "can_be_so_far", "so_far"]
