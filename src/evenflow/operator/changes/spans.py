"""Frames by value: RANGE BETWEEN 5 PRECEDING AND 3 FOLLOWING, of numbers and times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import nulls_of
from evenflow.operator.changes.columns import unscaled
from evenflow.query.ranked import months_on
from evenflow.stream.arrays import Int64s

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NULL, _VALUE, _NAN = 0, 1, 2


def spanned(
    group: Int64s,
    column: pa.Array,
    low: float | None,
    high: float | None,
    start: Int64s,
    stop: Int64s,
    descending: bool,
    months: bool = False,
) -> tuple[Int64s, Int64s]:
    """(first, behind the last) of the rows whose value is from `low` to `high` away from each row's own, int64 (n,) each.

    group: int64 (n,), rising. column: n values, in each group in order, nulls least. low, high: in the column's unit (days of dates,
    microseconds of times, the last digit of decimals) or in months, counted on in the order; None: to the edge, start and stop of each row.
    A row without a value is with those that have none, and NaN with NaN. Past the ends of bigint values stop. Cost: O(n log n).
    """
    values, kind = _ordered(column, descending)

    def moved(by: float) -> npt.NDArray[Any]:
        if not months:
            return _moved(values, by)
        return ~months_on(~values, -int(by), column.type) if descending else months_on(values, int(by), column.type)

    begins = start if low is None else _place(group, kind, values, moved(low), behind=False)
    ends = stop if high is None else _place(group, kind, values, moved(high), behind=True)
    return begins, ends


def _ordered(column: pa.Array, descending: bool) -> tuple[npt.NDArray[Any], Int64s]:
    """(values, what kind of value each is), so that both rise within a group, whichever way the order goes."""
    missing = nulls_of(column)
    kind = np.full(len(column), _VALUE, np.int64)
    values: npt.NDArray[Any]
    if pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy().copy()
        kind[np.isnan(values)] = _NAN
        values[np.isnan(values)] = 0.0
        values = -values if descending else values
    else:
        whole = column.cast(pa.int32()) if pa.types.is_date(column.type) else column
        if pa.types.is_decimal(column.type):
            whole = pa.array(unscaled(column), pa.int64())
        values = whole.cast(pa.int64()).fill_null(0).to_numpy()
        values = ~values if descending else values
    if missing.size:
        kind[missing != 0] = _NULL
    return values, -kind if descending else kind


def _moved(values: npt.NDArray[Any], by: float) -> npt.NDArray[Any]:
    if values.dtype.kind == "f":
        return values + by
    by = int(by)
    over = values > _MOST - by if by >= 0 else values < _LEAST - by
    return np.where(over, _MOST if by >= 0 else _LEAST, values + np.int64(by))


def _place(
    group: Int64s, kind: Int64s, values: npt.NDArray[Any], bounds: npt.NDArray[Any], *, behind: bool
) -> Int64s:  # fmt: skip
    """How many rows are before each bound, int64 (n,); with those that are equal to it, if behind."""
    n = values.size
    asks = np.repeat([1, 2 if behind else 0], n)  # Of equal ones, what is asked comes before the rows, or behind them.
    kinds = np.concatenate([kind, kind])
    of = np.concatenate([values, np.where(np.abs(kinds[:n]) == _VALUE, bounds, values)])
    order = np.lexsort((asks, of, kinds, np.concatenate([group, group])))
    rows = np.cumsum(order < n)
    found = np.empty(n, np.int64)
    asked = order >= n
    found[order[asked] - n] = rows[asked]
    return found
