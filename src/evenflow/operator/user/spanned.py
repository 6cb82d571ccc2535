"""Spanned: each row with totals of the rows of its key in a span of time around it.

Rows come in order of event time, those of one time in one epoch, so what a row's frame holds of the past is there when the row is. What is
kept of a key are the rows of the last span: times and values, a run of bytes for each column of fixed width, a list for each other one.

Where frames reach ahead, a row waits until a row of its key is as far behind it in the order as they reach, or time is. One timer of a key
is enough for that: it is of the newest row, and comes where a key is silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import integers_of, is_word, nulls_of
from evenflow.operator.changes.framed import framed
from evenflow.operator.changes.spans import spanned
from evenflow.operator.totals.totals import value_words
from evenflow.operator.user.process import Process
from evenflow.processor import BatchProcessor, Groups, Timers
from evenflow.query import spanned as described
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Int64s, Objects

TIMES, WAITS, DUE = "times__", "waits__", "due__"
NEVER: Final = -(2**62)


class Spanned(Process):
    """See `query.spanned.Spanned`, which describes it. Cost: O(n log n) of the rows of the epoch and those that are kept of their keys."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], description: described.Spanned) -> None:
        called = (Waiting if description.ahead_us else Totals)(description, schema)
        super().__init__(keys, called, schema, "over", verify=False, time=description.time)


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows of all keys of a call, one key's after the other, those that were kept first. group: int64 (n,), whose. order: where each is,
    among the kept ones and then the new ones. start, stop: int64 (n,), where its key's begin, and behind which they end. held: int64 (g,),
    how many were kept of each key."""

    group: Int64s
    order: Int64s
    times: pa.Array
    values: Mapping[str, pa.Array]
    start: Int64s
    stop: Int64s
    held: Int64s


class Totals(BatchProcessor):
    """What is called with the rows of an epoch."""

    keeps_key = True

    def __init__(self, description: described.Spanned, schema: pa.Schema) -> None:
        self.output = description.output  # type: ignore[misc]
        self._described = description
        self._rows = pa.schema([schema.field(name) for name in description.output.names if name in schema.names])
        self._of = list(dict.fromkeys(self._columns()))
        self._fields = {name: (f"of{at}__", f"null{at}__") for at, name in enumerate(self._of)}

    def _columns(self) -> Iterable[str]:
        """What is kept of a row besides its time."""
        return (place.column for place in self._described.places if place.column is not None)

    def open(self, store: Any) -> None:
        store.value(TIMES, "binary")
        for name, (values, missing) in self._fields.items():
            kind = self._rows.field(name).type
            if is_word(kind):
                store.value(values, "binary")
                store.value(missing, "binary")
            else:
                store.list(values, kind)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        line = self._line(state, len(groups), rows, groups.ids)
        came = np.flatnonzero(line.order >= line.held.sum())
        out = {name: rows.column(name) for name in self._rows.names}
        out |= self._totals(line, came)
        at = integers_of(line.times)
        known = _known(line.times)
        self._keep(state, len(groups), line, known[at[known] >= at[line.stop[known] - 1] - self._described.held_us])
        return out, np.arange(rows.num_rows)

    def _line(self, state: Any, count: int, rows: pa.RecordBatch | None, ids: Int64s) -> _Line:
        """The kept rows of the keys, and new ones. rows: None if there are none. ids: whose each of these is."""
        words, held = _words(getattr(state, TIMES).get())
        group = np.concatenate([np.repeat(np.arange(count), held), ids])
        order = np.argsort(group, kind="stable")
        taken = pa.array(order)

        def joined(kept: pa.Array, name: str) -> pa.Array:
            return (kept if rows is None else pa.concat_arrays([kept, rows.column(name)])).take(taken)

        times = joined(to_array(words, self._time_type, None), self._described.time)
        values = {name: joined(self._kept(state, name, self._rows.field(name).type), name) for name in self._of}
        group = group[order]
        return _Line(group, order, times, values, np.searchsorted(group, group), np.searchsorted(group, group, "right"), held)

    @property
    def _time_type(self) -> pa.DataType:
        return self._rows.field(self._described.time).type

    def _totals(self, line: _Line, of: Int64s) -> dict[str, pa.Array]:
        """The totals of some rows, by name."""
        found = {}
        for place in self._described.places:
            low, high = spanned(line.group, line.times, place.low, place.high, line.start, line.stop, descending=False)
            low, high = low[of], np.maximum(low, high)[of]
            values = None if place.column is None else line.values.get(place.column, line.times)
            found[place.name] = framed(place.function, values, low, high, place.type(self._rows), place.number)
        return found

    def _kept(self, state: Any, name: str, kind: pa.DataType) -> pa.Array:
        values, missing = self._fields[name]
        if not is_word(kind):
            return pa.array([value for each in getattr(state, values).get() for value in each], kind)
        words, _ = _words(getattr(state, values).get())
        null = np.frombuffer(b"".join(each or b"" for each in getattr(state, missing).get()), np.bool_)
        return to_array(words, kind, null)

    def _keep(self, state: Any, count: int, line: _Line, kept: Int64s) -> None:
        """Of each key these rows are needed later. kept: their places in the line."""
        at = integers_of(line.times)
        ends = np.cumsum(np.bincount(line.group[kept], minlength=count))
        getattr(state, TIMES).put(_cut(at[kept], ends))
        for name, (words, missing) in self._fields.items():
            column = line.values[name].take(pa.array(kept))
            if is_word(column.type):
                null = nulls_of(column)
                getattr(state, words).put(_cut(value_words(column, "plain"), ends))
                getattr(state, missing).put(_cut(null.view(np.bool_) if null.size else np.zeros(kept.size, np.bool_), ends))
            else:
                listed, begin = column.to_pylist(), 0
                parts = []
                for end in ends.tolist():
                    parts.append(listed[begin:end])
                    begin = end
                getattr(state, words).put(parts)


class Waiting(Totals):
    """Where frames reach ahead: whole rows are kept, and the last ones of each key, WAITS of them, have not come out."""

    def _columns(self) -> Iterable[str]:
        return (name for name in self._rows.names if name != self._described.time)

    def open(self, store: Any) -> None:
        super().open(store)
        store.value(WAITS, "bigint")
        store.timer(DUE)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        line, count = self._line(state, len(groups), rows, groups.ids), len(groups)
        at, newest = integers_of(line.times), np.full(count, NEVER, np.int64)
        timed = np.zeros(at.size, np.bool_)
        timed[_known(line.times)] = True
        np.maximum.at(newest, line.group[timed], at[timed])
        waits = np.arange(at.size) - line.start >= (line.held - _counts(state))[line.group]
        out = waits & (~timed | (at <= newest[line.group] - self._described.ahead_us))
        left = waits & ~out
        oldest = newest.copy()
        np.minimum.at(oldest, line.group[left], at[left])
        self._keep(state, count, line, np.flatnonzero(timed & (at >= oldest[line.group] - self._described.held_us)))
        getattr(state, WAITS).put(np.bincount(line.group[left], minlength=count))
        known = newest > NEVER
        due = np.where(known, newest, 0) + self._described.ahead_us + 1
        getattr(state, DUE).put(due.view("datetime64[us]"), known)
        made = np.flatnonzero(out)
        return self._rows_of(line, made), groups.last[line.group[made]]

    def expired(self, timers: Timers, state: Any) -> Any:  # type: ignore[override]
        """Keys that are silent: all that waits has all of its frame."""
        count = len(timers)
        line = self._line(state, count, None, np.empty(0, np.int64))
        made = np.flatnonzero(np.arange(line.group.size) - line.start >= (line.held - _counts(state))[line.group])
        passed = timers.times.astype("datetime64[us]").astype(np.int64)
        self._keep(state, count, line, np.flatnonzero(integers_of(line.times) >= passed[line.group] - self._described.held_us))
        getattr(state, WAITS).put(np.zeros(count, np.int64))
        return self._rows_of(line, made), line.group[made]

    def _rows_of(self, line: _Line, made: Int64s) -> dict[str, pa.Array]:
        taken = pa.array(made)
        rows = {name: (line.times if name == self._described.time else line.values[name]).take(taken) for name in self._rows.names}
        return rows | self._totals(line, made)


def _counts(state: Any) -> Int64s:
    found: Int64s = getattr(state, WAITS).get(0).astype(np.int64)
    return found


def _known(times: pa.Array) -> Int64s:
    """Rows that have a time."""
    return np.flatnonzero(nulls_of(times) == 0) if times.null_count else np.arange(len(times))


def _words(parts: Objects) -> tuple[Int64s, Int64s]:
    """(the words of all keys one after the other, how many each has)."""
    lengths = np.array([len(part) // 8 if part else 0 for part in parts], np.int64)
    return np.frombuffer(b"".join(part or b"" for part in parts), np.int64), lengths


def _cut(values: Int64s | Bools, ends: Int64s) -> list[bytes]:
    """The bytes of each key's values."""
    whole, size = values.tobytes(), values.itemsize
    begins = [0, *(ends[:-1] * size).tolist()]
    return [whole[begin:end] for begin, end in zip(begins, (ends * size).tolist(), strict=True)]
