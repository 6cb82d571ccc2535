"""So far: what an aggregate is of the rows of a group up to each of them, all in one pass.

Each value is what `Aggregate` makes of these rows alone, to the last bit: floats add up one after the other from the group's first row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow
from evenflow.kernels.columns import floats_of, integers_of, is_word, ordered_floats, unordered_floats
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Floats, Int64s

FUNCTIONS: Final = frozenset(("count", "sum", "avg", "min", "max", "first", "last"))
LONG_ROWS: Final = 64
"""Groups of more rows are added up one by one, shorter ones all at once, a row of each after the other."""


def can_be_so_far(function: str, kind: pa.DataType) -> bool:
    """Whether `so_far` has the aggregate of a column of this type."""
    if function in ("count", "first", "last"):
        return True
    if function in ("min", "max"):
        return is_word(kind) and kind.id not in (pa.null().id, pa.uint64().id)
    return function in FUNCTIONS and (pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.id != pa.uint64().id))


def so_far(function: str, values: pa.Array | None, start: Int64s, kind: pa.DataType, of: Bools | None = None) -> pa.Array:
    """(n,), the aggregate of the rows of its group up to each row.

    function: one of FUNCTIONS. values: its argument, (n,); None: the rows are counted. start: int64 (n,), rising: where each row's group
    begins. kind: of the result. of: bool (n,), which rows count; all if None. Raises ArithmeticOverflow where a sum of integers leaves
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
        return _best(function, values, rows, start, kind, empty)
    if pa.types.is_floating(values.type):
        total = _float_sums(np.where(rows, floats_of(values), 0.0), start)
        return pa.array(total if function == "sum" else np.divide(total, np.maximum(counted, 1)), kind, mask=empty)
    sums = _integer_sums(np.where(rows, integers_of(values), 0), start)
    if function == "sum":
        if sums.dtype == object and any(not -(2**63) <= total < 2**63 for total in sums):
            raise ArithmeticOverflow("a sum of rows so far left the range of bigint: cast the column to double")
        return pa.array(sums.astype(np.int64), kind, mask=empty)
    return pa.array(sums.astype(np.float64) / np.maximum(counted, 1), kind, mask=empty)


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


def _integer_sums(values: Int64s, start: Int64s) -> npt.NDArray[Any]:
    """int64 (n,), or objects where sums of all rows together could leave int64."""
    most = max(abs(int(values.min())), abs(int(values.max())))
    plain: npt.NDArray[Any] = values if most * values.size < 2**63 else values.astype(object)
    until: npt.NDArray[Any] = np.cumsum(plain)
    return np.asarray(until - (until[start] - plain[start]))


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
    """NaN is the greatest, and of zeros the one without a sign."""
    floating = pa.types.is_floating(values.type)
    words, ranks = np.unique(ordered_floats(floats_of(values)) if floating else integers_of(values), return_inverse=True)
    # A group's ranks are above those of all groups before, so the greatest up to a row is of its group.
    above = np.cumsum(start == np.arange(start.size)) * (words.size + 1)
    ranks = ranks if function == "max" else words.size - 1 - ranks
    found = np.maximum(np.maximum.accumulate(above + np.where(rows, ranks + 1, 0)) - above - 1, 0)
    best = words[found if function == "max" else words.size - 1 - found]
    return to_array(unordered_floats(best).view(np.int64) if floating else best, kind, empty)


__all__ = ["FUNCTIONS", "can_be_so_far", "so_far"]
