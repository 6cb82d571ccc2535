"""Which time windows a row belongs to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenflow.kernels.columns import Nulls, Words
from evenflow.kernels.jit import kernel


@kernel(
    "Tuple((int64[::1], int64[::1], uint8[::1]))(Array(int64, 1, 'C', readonly=True), uint8[::1], int64, int64, int64)",
)
def assign_windows(times: Words, nulls: Nulls, size_us: int, slide_us: int, before: int) -> tuple[Words, Words, npt.NDArray[np.uint8]]:
    """(row, start) of every window that a row belongs to and that ends after `before`; and which rows are late: none was left.

    Windows of a row are in ascending order. A row without a time belongs to no window and is not late, as in Spark.
    """
    most = (size_us + slide_us - 1) // slide_us
    rows = np.empty(times.size * most, np.int64)
    starts = np.empty(times.size * most, np.int64)
    late = np.zeros(times.size, np.uint8)
    found = 0
    for row in range(times.size):
        if nulls.size and nulls[row]:
            continue
        time = times[row]
        last = time - time % slide_us
        late[row] = 1
        for back in range(most - 1, -1, -1):
            start = last - back * slide_us
            if start + size_us > time and start + size_us > before:
                rows[found] = row
                starts[found] = start
                found += 1
                late[row] = 0
    return rows[:found], starts[:found], late
