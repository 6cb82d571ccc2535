"""Count, mean and squared deviations of frames of rows, by Welford's update in the form Spark uses, oldest row first."""

from __future__ import annotations

import numpy as np

from evenflow.kernels.columns import Words
from evenflow.kernels.jit import inlined, kernel
from evenflow.stream.arrays import Floats, Int64s

_RO = "Array({}, 1, 'C', readonly=True)"
_REALS, _FLAGS, _WORDS = _RO.format("float64"), _RO.format("uint8"), _RO.format("int64")


@inlined
def updated(mean: float, square: float, value: float, count: np.int64) -> tuple[float, float]:
    """Mean and squared deviations with one row more. count: with it."""
    delta = value - mean
    step = delta / count
    return mean + step, square + delta * (delta - step)


@kernel(f"void({_REALS}, {_FLAGS}, {_WORDS}, {_WORDS}, int64[::1], float64[::1])")
def moments_of_frames(values: Floats, counted: Words, low: Int64s, high: Int64s, counts: Int64s, squares: Floats) -> None:
    """Of values[low[i]:high[i]] for each i. counted: whether a row counts. counts, squares: (n,), written. Frames that begin where the one
    before did and end no earlier go on from it; the others are added up anew."""
    begin, end = np.int64(-1), np.int64(0)
    count, mean, square = np.int64(0), 0.0, 0.0
    for at in range(low.size):
        if low[at] != begin or high[at] < end:
            begin, end = low[at], low[at]
            count, mean, square = np.int64(0), 0.0, 0.0
        while end < high[at]:
            if counted[end] != 0:
                count += 1
                mean, square = updated(mean, square, values[end], count)
            end += 1
        counts[at] = count
        squares[at] = square


@kernel(f"void({_REALS}, {_FLAGS}, {_WORDS}, {_WORDS}, float64[::1], float64[::1])")
def moments_so_far(values: Floats, counted: Words, start: Int64s, before: Int64s, means: Floats, squares: Floats) -> None:
    """Of the rows of its group up to each row. start: int64 (n,), where each row's group begins: that first one is no row, but what is
    known already. before: int64 (n,), how many rows that was of, read there alone. means, squares: (n,), read there, and written."""
    count, mean, square = np.int64(0), 0.0, 0.0
    for at in range(start.size):
        if start[at] == at:
            count, mean, square = before[at], means[at], squares[at]
            continue
        if counted[at] != 0:
            count += 1
            mean, square = updated(mean, square, values[at], count)
        means[at] = mean
        squares[at] = square
