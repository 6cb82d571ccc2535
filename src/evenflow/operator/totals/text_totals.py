"""Totals that are kept as Python objects: strings' min, max, first and last, first and last of any type that ignore nulls, and lists.

Each epoch is first reduced per key with vectorised code; the loop in Python is over the epoch's distinct keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.kernels.columns import nulls_of
from evenflow.operator.totals.user_states import fold_states
from evenflow.query.aggregates import COLLECT_ROWS, AggCall
from evenflow.query.user.aggregator import pack
from evenflow.state.keys import to_objects
from evenflow.state.pages import Touched
from evenflow.stream.arrays import Int64s
from evenflow.stream.values import comparable, has_floats, plain_values


def fold_objects(call: AggCall, column: npt.NDArray[np.object_], batch: pa.RecordBatch, touched: Touched) -> None:
    """Fold an epoch into the object column of a call."""
    if call.made is not None:
        fold_states(call, call.made, column, batch, touched)
        return
    array = batch.column(call.column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if call.function in ("collect_list", COLLECT_ROWS):
        _fold_lists(column, array, touched, nulls=call.function == COLLECT_ROWS)
        return
    match call.function:
        case "first":
            values = to_objects(array.take(pa.array(touched.rows[touched.new])))
            column[touched.slots[touched.new]] = values
        case "last":
            last = np.empty(touched.slots.size, np.int64)
            last[touched.ordinals] = np.arange(touched.ordinals.size)
            column[touched.slots] = to_objects(array.take(pa.array(last)))
        case "first_known" | "last_known":
            _fold_known(column, array, touched, last=call.function == "last_known")
        case _:
            _fold_extremes(column, array, touched, greatest=call.function == "max")


def _fold_extremes(column: npt.NDArray[Any], array: pa.Array, touched: Touched, *, greatest: bool) -> None:
    if pa.types.is_nested(array.type):
        _fold_nested(column, array, touched, greatest=greatest)
        return
    row_of_rank = np.asarray(pc.array_sort_indices(array, order="descending" if greatest else "ascending")).astype(np.int64)
    rank = np.empty(row_of_rank.size, np.int64)
    rank[row_of_rank] = np.arange(rank.size)
    best = np.full(touched.slots.size, rank.size, np.int64)
    np.minimum.at(best, touched.ordinals, rank)  # nulls are ranked last
    values = plain_values(array.take(pa.array(row_of_rank[best])))
    for slot, value in zip(touched.slots.tolist(), values, strict=True):
        held = column[slot]
        if value is not None and (held is None or (value > held if greatest else value < held)):
            column[slot] = value


def _fold_nested(column: npt.NDArray[Any], array: pa.Array, touched: Touched, *, greatest: bool) -> None:
    """Structures and lists, which Arrow does not sort: part by part, as Spark compares them."""
    floats = has_floats(array.type)
    for ordinal, value in zip(touched.ordinals.tolist(), plain_values(array), strict=True):
        if value is None:
            continue
        slot = touched.slots[ordinal]
        held = column[slot]
        if held is None or _before(value, held, greatest=greatest, floats=floats):
            column[slot] = value


def _before(value: Any, held: Any, *, greatest: bool, floats: bool) -> bool:
    """Whether it takes the place of what is held. Of equal ones, that with the lesser zeros stays, whichever came first."""
    new, old = comparable(value), comparable(held)
    if new == old:
        return floats and repr(value) < repr(held)
    return new > old if greatest else new < old


def _fold_known(column: npt.NDArray[Any], array: pa.Array, touched: Touched, *, last: bool) -> None:
    """The first or last value that is not null; a group without one has None."""
    known = np.flatnonzero(nulls_of(array) == 0) if array.null_count else np.arange(len(array))
    at = np.full(touched.slots.size, -1, np.int64)
    in_turn = known if last else known[::-1]  # Of several the one written last stays.
    at[touched.ordinals[in_turn]] = in_turn
    found = np.flatnonzero(at >= 0)
    values = plain_values(array.take(pa.array(at[found])))
    for slot, value in zip(touched.slots[found].tolist(), values, strict=True):
        if last or column[slot] is None:
            column[slot] = value


def _fold_lists(column: npt.NDArray[Any], array: pa.Array, touched: Touched, *, nulls: bool) -> None:
    keep = np.flatnonzero(nulls_of(array) == 0) if array.null_count and not nulls else np.arange(len(array))
    groups = touched.ordinals[keep]
    order = keep[np.argsort(groups, kind="stable")]
    values = plain_values(array.take(pa.array(order)))
    ends = np.cumsum(np.bincount(groups, minlength=touched.slots.size)).tolist()
    start = 0
    for slot, end in zip(touched.slots.tolist(), ends, strict=True):
        held = column[slot]
        column[slot] = (held or ()) + tuple(values[start:end])
        start = end


def object_array(column: npt.NDArray[np.object_], slots: Int64s, kind: pa.DataType) -> pa.Array:
    """Arrow array of an object column at some slots."""
    values: Sequence[Any] = column[slots].tolist()
    return pa.array(values, kind)


def total_of_none(call: AggCall) -> pa.Array:
    """One value: what a call is of no rows."""
    if call.made is not None:
        return pa.array([pack(call.made, call.made.zero())], call.type)
    return pa.array([[] if call.function in ("collect_list", COLLECT_ROWS) else None], call.type)


def object_total(function: str, values: Sequence[Any]) -> Any:
    """min, max, first, last, these two ignoring nulls, or collect_list of Python values in order, at least one; null is None, which first
    and last do not skip."""
    if function == "first":
        return values[0]
    if function == "last":
        return values[-1]
    if function == COLLECT_ROWS:
        return list(values)
    known = [value for value in values if value is not None]
    if function == "collect_list":
        return known
    if not known:
        return None
    if function in ("first_known", "last_known"):
        return known[0] if function == "first_known" else known[-1]
    key = comparable if isinstance(known[0], dict | list | tuple) else None
    return max(known, key=key) if function == "max" else min(known, key=key)
