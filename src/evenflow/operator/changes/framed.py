"""Totals of frames: of rows low..high of a column, for each row other ones."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from evenflow.operator.totals.extremes import ranked
from evenflow.operator.totals.wide_sums import mean_of, sums, total_of, wide_of
from evenflow.stream.arrays import Floats, Int64s

Anchor = Literal["low", "high"] | None


def framed(
    function: str, values: pa.Array | None, low: Int64s, high: Int64s, kind: pa.DataType, nth: int = 1, anchor: Anchor = None
) -> pa.Array:
    """`function` of values[low[i]:high[i]] for each i. low, high: int64 (n,), low <= high. values: None for count(*). kind: of the result.
    nth: which of them nth_value is. anchor: which end all frames of a key share, if they do.

    A sum of floats is taken of its frame's rows alone, so nothing around them changes its last digits, and no NaN outlives its frame.

    Cost: O(n) for counts and exact sums, O(n + what the frames hold) for the others; of frames with an anchor that is O(n), too.
    """
    if not low.size:
        return pa.array([], kind)
    if values is None:
        return pa.array(high - low, pa.int64())
    if function in ("first_value", "last_value"):
        at = low if function == "first_value" else high - 1
        return values.take(pa.array(np.maximum(at, 0), mask=low == high))
    if function == "nth_value":
        none = low + nth > high
        return values.take(pa.array(np.where(none, 0, low + nth - 1), mask=none))
    counted = _counts(values, low, high)
    if function == "count":
        return pa.array(counted, pa.int64())
    if function in ("min", "max"):
        return _extremes(function, values, low, high)
    empty = counted == 0
    if pa.types.is_floating(values.type):
        total = _float_sums(values.cast(pa.float64()).fill_null(0.0).to_numpy(), low, high, anchor)
        total[np.isnan(total)] = np.nan  # The one NaN, whatever made it.
        return pa.array(total if function == "sum" else np.divide(total, np.maximum(counted, 1)), kind, mask=empty)
    exact = sums(wide_of(values), low, high)
    if function == "sum":
        return total_of(exact, kind, empty)
    return mean_of(exact, counted, kind, values.type.scale if pa.types.is_decimal(values.type) else 0)


def _counts(values: pa.Array, low: Int64s, high: Int64s) -> Int64s:
    until = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values.is_valid().to_numpy(zero_copy_only=False), out=until[1:])
    return until[high] - until[low]


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
    """By how values are ordered: nulls are left out, and NaN is the greatest."""
    ranks, words = ranked(values)
    worst = -1 if function == "max" else len(words)
    if values.null_count:
        ranks = np.where(values.is_valid().to_numpy(zero_copy_only=False), ranks, worst)
    best = np.maximum if function == "max" else np.minimum
    found = np.full(low.size, worst, np.int64)
    begins = np.flatnonzero(np.diff(low, prepend=-1)) if low.size else low
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), low.size], strict=True):
        if (high[begin:end] > low[begin]).any() and (end - begin > 1 or high[begin] - low[begin] > 0):
            run = best.accumulate(ranks[low[begin] : int(high[begin:end].max())])
            length = high[begin:end] - low[begin]
            found[begin:end] = np.where(length > 0, run[np.maximum(length - 1, 0)], worst)
    none = found == worst
    return words.take(pa.array(np.where(none, 0, found), mask=none))
