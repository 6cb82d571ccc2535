"""Results of 128-bit sums (low and high words, as `kernels.fold` keeps them)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenflow.kernels.columns import Words
from evenflow.kernels.jit import kernel
from evenflow.stream.arrays import Floats


@kernel("int64(int64[::1], int64[::1])")
def first_wide(low: Words, high: Words) -> int:
    """Position of the first sum that does not fit int64, or -1."""
    for row in range(low.size):
        if high[row] != low[row] >> 63:
            return row
    return -1


@kernel("float64[::1](int64[::1], int64[::1], int64[::1])")
def averages(low: Words, high: Words, count: Words) -> Floats:
    """float64 (n,): sum / count, 0 where count is 0. The sum is rounded once when it fits int64."""
    found: npt.NDArray[np.float64] = np.zeros(low.size, np.float64)
    for row in range(low.size):
        if count[row] != 0:
            total = np.float64(low[row])
            if high[row] != low[row] >> 63:
                total = np.float64(high[row]) * 18446744073709551616.0 + np.float64(np.uint64(low[row]))
            found[row] = total / count[row]
    return found
