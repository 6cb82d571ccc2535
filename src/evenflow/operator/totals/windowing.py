"""Windows of rows: the kernel that assigns them, asked in terms of a window and a column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import frozen, integers_of, nulls_of
from evenflow.kernels.windows import assign_windows
from evenflow.query.aggregates import TimeWindow
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import behind


def windows_of(times: pa.Array, window: TimeWindow, before: int) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
    """(row, start) of every window that a row belongs to and that ends after `before`; and which rows are late: none was left.

    See `assign_windows`. times: timestamps in microseconds; before: event time, microseconds.
    """
    given, start_us = integers_of(times), window.start_us
    if start_us:
        given, before = given - start_us, behind(before, start_us)
    index, starts, late = assign_windows(frozen(given), nulls_of(times), window.size_us, window.slide_us, before)
    return index, starts + start_us if start_us else starts, late
