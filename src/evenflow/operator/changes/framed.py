"""Totals of frames: of rows low..high of a column, for each row other ones."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow
from evenflow.kernels.columns import floats_of
from evenflow.kernels.moments import moments_of_frames
from evenflow.operator.totals.deviations import deviation
from evenflow.operator.totals.extremes import first_of, look_alike, ranked
from evenflow.operator.totals.wide_sums import mean_of, sums, total_of, wide_of
from evenflow.stream.arrays import Bools, Floats, Int64s

Anchor = Literal["low", "high"] | None

_FEW = 8
"""Rows for each beginning of frames from which on a pass for each beginning is cheaper than one for each doubling."""


def framed(
    function: str, values: pa.Array | None, low: Int64s, high: Int64s, kind: pa.DataType, nth: int = 1, anchor: Anchor = None,
    known: bool = False,
) -> pa.Array:  # fmt: skip
    """`function` of values[low[i]:high[i]] for each i. low, high: int64 (n,), low <= high. values: None for count(*). kind: of the result.
    nth: which of them nth_value is. anchor: which end all frames of a key share, if they do. known: first_value, last_value and nth_value
    leave nulls out.

    A sum of floats is taken of its frame's rows alone, so nothing around them changes its last digits, and no NaN outlives its frame.

    Cost: O(n) for counts and exact sums, O(n log(longest frame)) for min and max, O(n + what the frames hold) for lists, for sums of floats
    and for deviations; of frames with an anchor these last two are O(n), too.
    """
    if not low.size:
        return pa.array([], kind)
    if values is None:
        return pa.array(high - low, pa.int64())
    if function == "collect_list" or (known and values.null_count):
        until = _until(values)  # Without the nulls, among which frames begin and end elsewhere.
        values, low, high = values.drop_null(), until[low], until[high]
    if function == "collect_list":
        return _lists(values, low, high, kind)
    if function in ("first_value", "last_value"):
        at = low if function == "first_value" else high - 1
        return _taken(values, at, low == high)
    if function == "nth_value":
        return _taken(values, low + nth - 1, low + nth > high)
    counted = _counts(values, low, high)
    if function == "count":
        return pa.array(counted, pa.int64())
    if function in ("min", "max"):
        return _extremes(function, values, low, high)
    if function == "stddev":
        return pa.array(*_deviations(values, low, high, anchor))
    empty = counted == 0
    if pa.types.is_floating(values.type):
        total = _float_sums(values.cast(pa.float64()).fill_null(0.0).to_numpy(), low, high, anchor)
        total = np.where(np.isnan(total), np.nan, total + 0.0)  # The one NaN, whatever made it; a sum begins with 0.0.
        return pa.array(total if function == "sum" else np.divide(total, np.maximum(counted, 1)), kind, mask=empty)
    exact = sums(wide_of(values), low, high)
    if function == "sum":
        return total_of(exact, kind, empty)
    return mean_of(exact, counted, kind, values.type.scale if pa.types.is_decimal(values.type) else 0)


def _taken(values: pa.Array, at: Int64s, none: Bools) -> pa.Array:
    return values.take(pa.array(np.where(none, 0, at), mask=none))


def _lists(values: pa.Array, low: Int64s, high: Int64s, kind: pa.DataType) -> pa.Array:
    """values: without nulls. kind: of a list of them."""
    ends = np.zeros(low.size + 1, np.int64)
    np.cumsum(high - low, out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ArithmeticOverflow(f"the frames of one epoch hold {ends[-1]} values, and at most {np.iinfo(np.int32).max} are there at once")
    index = np.arange(ends[-1]) + np.repeat(low - ends[:-1], high - low)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values.take(pa.array(index)), type=kind)


def _until(values: pa.Array) -> Int64s:
    """int64 (n + 1,): how many of the values before each place are no nulls."""
    until = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values.is_valid().to_numpy(zero_copy_only=False), out=until[1:])
    return until


def _counts(values: pa.Array, low: Int64s, high: Int64s) -> Int64s:
    until = _until(values)
    return until[high] - until[low]


def _deviations(values: pa.Array, low: Int64s, high: Int64s, anchor: Anchor) -> tuple[Floats, pa.DataType, Bools]:
    """As the arguments of an array. values: of doubles."""
    reals, counted = floats_of(values), values.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    if anchor == "high":  # From the shared end on, so that each frame goes on from another.
        reals, counted, low, high = reals[::-1], counted[::-1], (len(values) - high)[::-1], (len(values) - low)[::-1]
    counts, squares = np.empty(low.size, np.int64), np.empty(low.size)
    low, high = np.ascontiguousarray(low), np.ascontiguousarray(high)
    moments_of_frames(np.ascontiguousarray(reals), np.ascontiguousarray(counted), low, high, counts, squares)
    step = -1 if anchor == "high" else 1
    return deviation(counts[::step], squares[::step])


def _float_sums(values: Floats, low: Int64s, high: Int64s, anchor: Anchor) -> Floats:
    """(n,), 0 for empty frames. values: without nulls."""
    with np.errstate(invalid="ignore", over="ignore"):
        if anchor is None:
            ends = np.empty(2 * low.size, np.int64)
            ends[::2], ends[1::2] = low, high
            return np.where(low == high, 0.0, np.add.reduceat(np.append(values, 0.0), ends)[::2])
        shared, length = (low, high - low) if anchor == "low" else (high, high - low)
        sums = np.zeros(low.size)
        begins = np.flatnonzero(np.diff(shared, prepend=-1))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), low.size], strict=True):
            at, lengths = int(shared[begin]), length[begin:end]
            longest = int(lengths.max())
            run = np.add.accumulate(values[at : at + longest] if anchor == "low" else values[at - longest : at][::-1])
            sums[begin:end] = np.append(0.0, run)[lengths]
        return sums


def _extremes(function: str, values: pa.Array, low: Int64s, high: Int64s) -> pa.Array:
    """By how values are ordered: nulls are left out, NaN is the greatest, and of equal ones the frame's first is taken, as in Spark."""
    ranks, words = ranked(values)
    worst = -1 if function == "max" else len(words)
    if values.null_count:
        ranks = np.where(values.is_valid().to_numpy(zero_copy_only=False), ranks, worst)
    best = np.maximum if function == "max" else np.minimum
    begins = np.flatnonzero(np.diff(low, prepend=-1))
    held = np.maximum(np.maximum.reduceat(high, begins) - low[begins], 0)
    if begins.size * _FEW <= low.size and int(held.sum()) <= _FEW * low.size:
        found = _run_extremes(best, ranks, low, high, begins, worst)
    else:
        found = _sliding_extremes(best, ranks, low, high, worst)
    none = found == worst
    if not look_alike(values):
        return values.take(pa.array(first_of(ranks, found, low), mask=none))
    return words.take(pa.array(np.where(none, 0, found), mask=none))


def _run_extremes(best: np.ufunc, ranks: Int64s, low: Int64s, high: Int64s, begins: Int64s, worst: int) -> Int64s:
    """Of frames that begin together, the best so far. begins: where in `low` a new beginning is. Cost: O(n + what the runs hold)."""
    found = np.full(low.size, worst, np.int64)
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), low.size], strict=True):
        length = high[begin:end] - low[begin]
        if (length > 0).any():
            run = best.accumulate(ranks[low[begin] : int(high[begin:end].max())])
            found[begin:end] = np.where(length > 0, run[np.maximum(length - 1, 0)], worst)
    return found


def _sliding_extremes(best: np.ufunc, ranks: Int64s, low: Int64s, high: Int64s, worst: int) -> Int64s:
    """Of any frames: each is covered by two stretches of one power of two that may overlap; the best of a stretch is that of its halves.
    Source: the sparse table of Bender and Farach-Colton 2000, one level held at a time. Cost: O(n log(longest frame)), memory O(n)."""
    found = np.full(low.size, worst, np.int64)
    length = high - low
    longest, stretch = int(length.max()), 1
    level = ranks
    while stretch <= longest:
        at = np.flatnonzero((length >= stretch) & (length < 2 * stretch))
        found[at] = best(level[low[at]], level[high[at] - stretch])
        level = best(level[:-stretch], level[stretch:])
        stretch *= 2
    return found
