"""Totals whose result depends on the order of a group's rows, over rows that come in any order (protocol E8).

The columns that such calls and the order of their rows read are kept beside the other totals of a window, a tuple per column. Whoever
reads a result sorts the rows by event time and tie-break and folds them as if they had come so. So a row counts for as long as its window
is open, however far behind the watermark it is. Where only the first and the last row matter, the others are forgotten now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import floats_of, frozen, integers_of, is_word, nulls_of
from evenflow.kernels.hot import fold_groups
from evenflow.operator.order import arrange, event_time
from evenflow.operator.totals.aggregate import is_object
from evenflow.operator.totals.text_totals import fold_objects, object_array
from evenflow.operator.totals.totals import Totals
from evenflow.query.aggregates import AggCall
from evenflow.state.keys import to_array
from evenflow.state.pages import Touched
from evenflow.stream.arrays import Int64s, Objects
from evenflow.stream.values import plain_values

ENOUGH: Final = 16
"""Rows of a group of which only the ends matter, at most: when there are more, those between are forgotten."""


@dataclass(frozen=True, slots=True)
class EventOrder:
    """Rows by event time, those of equal time by other columns, ascending as `order` sorts them, and then as they came."""

    time: str
    tie_break: tuple[str, ...]


class OrderedTotals:
    """The rows of each group that some calls need, in object columns of a table. calls: at least one. schema: of the input.

    object_types: of the table's object columns that are this one's. Cost: O(rows log rows) per epoch, and per result once again.
    """

    def __init__(self, calls: Sequence[AggCall], schema: pa.Schema, order: EventOrder) -> None:
        self.calls, self._order = tuple(calls), order
        names = dict.fromkeys([order.time, *order.tie_break, *(name for call in calls for name in call.columns)])
        self._schema = pa.schema([_plain(schema.field(name)) for name in names])
        self._totals = Totals(calls, self._schema, first=0)
        self._ends = all(call.made is None and call.function in ("first", "last") for call in calls)
        self.object_types = [pa.list_(pa.int64() if is_word(field.type) else field.type) for field in self._schema]

    def keep(self, objects: Sequence[Objects], batch: pa.RecordBatch, touched: Touched) -> None:
        """Keep the rows of an epoch with their groups. objects: this one's columns of the table."""
        rows = self._read(batch)
        if self._ends:
            order = self._arranged(rows, touched.ordinals)
            order = order[_ends(touched.ordinals[order])]
        else:
            order = np.argsort(touched.ordinals, kind="stable")
        parts = _parts(touched.ordinals[order], touched.slots.size)
        for column, array in zip(objects, rows.take(pa.array(order)).columns, strict=True):
            values, held = _values(array), column[touched.slots].tolist()
            _put(column, touched.slots, [(before or ()) + tuple(values[part]) for before, part in zip(held, parts, strict=True)])
        if self._ends:
            self._forget(objects, touched.slots)

    def results(self, objects: Sequence[Objects], slots: Int64s, group: Int64s, count: int, key_of: Callable[[int], str]) -> list[pa.Array]:
        """One column per call, of `count` groups, each with a row at least. group: int64, the group of the rows kept at each slot."""
        rows, groups = self._kept(objects, slots, group)
        order = self._arranged(rows, groups)
        rows, groups = rows.take(pa.array(order)), groups[order]
        bound = self._totals.bind(rows)
        words = fold_groups(self._totals.template, count, groups, bound.ops, frozen(bound.values), frozen(bound.nulls))
        made = self._totals.results(words, key_of)
        everything, firsts = np.arange(count), np.searchsorted(groups, np.arange(count))
        touched = Touched(everything, firsts, np.ones(count, np.bool_), groups, groups)
        for at, call in enumerate(self.calls):
            if is_object(self._totals, call):
                column = np.full(count, None, object)
                fold_objects(call, column, rows, touched)
                made[at] = object_array(column, everything, call.type)
        return [array for array in made if array is not None]

    def _forget(self, objects: Sequence[Objects], slots: Int64s) -> None:
        """Leave the first and the last row of the groups that have many."""
        full = slots[[len(each) > ENOUGH for each in objects[0][slots].tolist()]]
        if full.size == 0:
            return
        rows, groups = self._kept(objects, full, np.arange(full.size))
        order = self._arranged(rows, groups)
        order = order[_ends(groups[order])]
        parts = _parts(groups[order], full.size)
        for column, array in zip(objects, rows.take(pa.array(order)).columns, strict=True):
            values = _values(array)
            _put(column, full, [tuple(values[part]) for part in parts])

    def _kept(self, objects: Sequence[Objects], slots: Int64s, group: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """The rows at some slots, as they came, and the group of each."""
        kept = [column[slots].tolist() for column in objects]
        groups = np.repeat(group, [len(each) for each in kept[0]])
        arrays = [_array(chain.from_iterable(values), field.type) for values, field in zip(kept, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), groups

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are kept."""
        arrays = [batch.column(name) for name in self._schema.names]
        plain = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in arrays]
        return pa.RecordBatch.from_arrays(plain, schema=self._schema)

    def _arranged(self, rows: pa.RecordBatch, groups: Int64s) -> Int64s:
        """Row numbers by group, and in each in order."""
        time = event_time(rows.column(self._order.time))
        order = np.lexsort((time, groups))
        new = np.ones(order.size, np.bool_)
        new[1:] = (np.diff(time[order]) != 0) | (np.diff(groups[order]) != 0)
        place = np.empty(order.size, np.int64)
        place[order] = np.cumsum(new)
        found = arrange(rows, place, self._order.tie_break)
        return np.arange(order.size) if found is None else found


def _parts(groups: Int64s, count: int) -> list[slice]:
    """Where the rows of each group are. groups: int64 (n,), ascending, the group of each row."""
    bounds = np.searchsorted(groups, np.arange(count + 1)).tolist()
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _put(column: Objects, slots: Int64s, values: list[tuple[Any, ...]]) -> None:
    """Write tuples, which NumPy would take for a table if they were not in an array already."""
    array = np.empty(len(values), object)
    array[:] = values
    column[slots] = array


def _ends(groups: Int64s) -> npt.NDArray[np.bool_]:
    """bool (n,): which rows are the first or the last of their group. groups: int64 (n,), ascending."""
    last = np.ones(groups.size, np.bool_)
    last[:-1] = groups[1:] != groups[:-1]
    first = np.ones(groups.size, np.bool_)
    first[1:] = last[:-1]
    return first | last


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type
    return pa.field(field.name, kind.value_type if pa.types.is_dictionary(kind) else kind)


def _values(array: pa.Array) -> list[Any]:
    """Python values that are kept: of types of fixed width their words, exactly."""
    values: list[Any]
    if not is_word(array.type):
        values = plain_values(array)
        return values
    words = np.ascontiguousarray(floats_of(array)).view(np.int64) if pa.types.is_floating(array.type) else integers_of(array)
    values = words.tolist()
    for place in np.flatnonzero(nulls_of(array)).tolist():
        values[place] = None
    return values


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """The inverse of `_values`."""
    if not is_word(kind):
        return pa.array(list(values), kind)
    words = pa.array(list(values), pa.int64())
    null = nulls_of(words).view(np.bool_) if words.null_count else None
    return to_array(words.fill_null(0).to_numpy(zero_copy_only=False), kind, null)


__all__ = ["EventOrder", "OrderedTotals"]
