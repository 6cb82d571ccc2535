"""Spanned: each row with neighbours, and with totals of the rows of its key around it, by time or by number.

Rows come in order of event time, those of one time in one epoch, so what a row's frame holds of the past is there when the row is. What is
kept of a key are the last rows, as many and from as long a time as frames reach: times and values, a run of bytes for each column of fixed
width, a list for each other one.

Where frames reach ahead, a row waits until rows of its key are as far behind it in the order as they reach, or time is. One timer of a key
is enough for that: it is of the newest row, and comes where a key is silent. No time says that no row of a key will come any more, so what
waits for a number of rows waits for them or for the end of the stream, which is the other timer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import integers_of, is_word, nulls_of
from evenflow.operator.changes.around import Ordered, around, numbers_of
from evenflow.operator.order import sort_key
from evenflow.operator.totals.totals import value_words
from evenflow.operator.user.carried import Fields, Run, carried_on, runs, total
from evenflow.operator.user.process import Process
from evenflow.processor import BatchProcessor, Groups, Timers
from evenflow.query import spanned as described
from evenflow.query.ranked import Place
from evenflow.state.keys import to_array
from evenflow.stream.arrays import Bools, Int64s, Objects
from evenflow.stream.values import plain_values

TIMES, WAITS, DUE, END = "times__", "waits__", "due__", "end__"
NEVER: Final = -(2**62)
OVER: Final = 2**63 - 2
"""A timer that comes at the end of the stream, and at no watermark before."""


class Spanned(Process):
    """See `query.spanned.Spanned`, which describes it. Cost: O(n log n) of the rows of the epoch and those that are kept of their keys."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], description: described.Spanned) -> None:
        called = (Waiting if description.ahead_us or description.ahead_rows else Totals)(description, schema)
        super().__init__(keys, called, schema, "over", verify=False, time=description.time)


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows of all keys of a call, one key's after the other, those that were kept first. rows: whose they are. order: where each is,
    among the kept ones and then the new ones. at: int64 (n,), microseconds; NEVER where there is no time. begin, end: int64 (g,), where
    the rows of each key begin, and behind which they end. held: int64 (g,), how many were kept of each key.
    runs: of frames that begin with the first row."""

    rows: Ordered
    order: Int64s
    times: pa.Array
    at: Int64s
    values: Mapping[str, pa.Array]
    begin: Int64s
    end: Int64s
    held: Int64s
    runs: list[Run]


class Totals(BatchProcessor):
    """What is called with the rows of an epoch."""

    keeps_key = True

    def __init__(self, description: described.Spanned, schema: pa.Schema) -> None:
        self.output = description.output  # type: ignore[misc]
        self._described = description
        self._rows = pa.schema([schema.field(name) for name in description.output.names if name in schema.names])
        self._from_first = [place for place in description.places if place.from_first]
        of_first = [None if place.column is None else self._rows.field(place.column).type for place in self._from_first]
        self._carried = Fields(self._from_first, of_first)
        self._tied = any(place.peers or place.function in ("rank", "dense_rank") for place in description.places)
        self._of = list(dict.fromkeys([*self._columns(), *(description.ties if self._tied else ())]))
        self._fields = {name: (f"of{at}__", f"null{at}__") for at, name in enumerate(self._of)}

    def _columns(self) -> Iterable[str]:
        """What is kept of a row besides its time."""
        return (place.column for place in self._described.places if place.column is not None)

    def open(self, store: Any) -> None:
        store.plain = True
        store.value(TIMES, "binary")
        if self._from_first:
            self._carried.open(store)
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
        self._keep(state, line, self._needed(line, _newest(line), line.end))
        return out, np.arange(rows.num_rows)

    def _line(self, state: Any, count: int, rows: pa.RecordBatch | None, ids: Int64s) -> _Line:
        """The kept rows of the keys, and new ones. rows: None if there are none. ids: whose each of these is."""
        words, held = _words(getattr(state, TIMES).get())
        group = np.concatenate([np.repeat(np.arange(count), held), ids])
        order = np.argsort(group, kind="stable")
        taken = pa.array(order)

        def joined(kept: pa.Array, name: str) -> pa.Array:
            return (kept if rows is None else pa.concat_arrays([kept, rows.column(name)])).take(taken)

        times = joined(to_array(words, self._time_type, words == NEVER), self._described.time)
        values = {name: joined(self._kept(state, name, self._rows.field(name).type), name) for name in self._of}
        group, keys, at = group[order], np.arange(count), integers_of(times)
        at = np.where(nulls_of(times), NEVER, at) if times.null_count else at
        begin, end = np.searchsorted(group, keys), np.searchsorted(group, keys, "right")
        line = Ordered(group, begin[group], end[group], times, ties=self._ties(group, at, values) if self._tied else None)
        found: list[Run] = []
        if self._from_first:
            found = runs(self._from_first, self._carried.read(state), line, begin, {**values, self._described.time: times})
        return _Line(line, order, times, at, values, begin, end, held, found)

    def _ties(self, group: Int64s, at: Int64s, values: Mapping[str, pa.Array]) -> Int64s:
        """int64 (n,): equal where rows of a key are equal in the order."""
        new = (np.diff(group, prepend=-1) != 0) | (np.diff(at, prepend=NEVER) != 0)
        for name in self._described.ties:
            new |= np.diff(numbers_of(sort_key(values[name])), prepend=-1) != 0
        return np.cumsum(new)

    @property
    def _time_type(self) -> pa.DataType:
        return self._rows.field(self._described.time).type

    def _totals(self, line: _Line, of: Int64s) -> dict[str, pa.Array]:
        """What is added to some rows, by name."""
        found = {}
        for run in line.runs:
            found[run.place.name] = total(run, line.rows, line.begin, of, run.place.type(self._rows))
        for place in self._described.places:
            if place.from_first:
                continue
            values = None if place.column is None else line.values.get(place.column, line.times)
            found[place.name] = around(place, values, line.rows, place.type(self._rows), of)
        return found

    def _needed(self, line: _Line, passed: Int64s, first: Int64s) -> Int64s:
        """Places in the line of the rows that others need, now or later. passed: int64 (g,), the time that later rows have at least.
        first: int64 (g,), place of the first row of each key that has not come out, or behind its last one."""
        described, group, here = self._described, line.rows.group, np.arange(line.at.size)
        kept = here >= (first - described.held_rows)[group] if described.by_rows else np.zeros(line.at.size, np.bool_)
        for place in described.among_known:
            valid, until = self._known(place, line)
            kept |= valid & (until[first][group] - until[:-1] <= -int(place.low or 0))
        if described.by_time:
            oldest, timed = passed.copy(), line.at != NEVER
            left = timed & (here >= first[group])
            np.minimum.at(oldest, group[left], line.at[left])
            kept |= timed & (line.at >= oldest[group] - described.held_us)
        return np.flatnonzero(kept)

    def _known(self, place: Place, line: _Line) -> tuple[Bools, Int64s]:
        """(bool (n,), which rows of the line have no null there; int64 (n + 1,), how many such rows are before each)."""
        values = line.times if place.column == self._described.time else line.values[str(place.column)]
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return valid, np.append(0, np.cumsum(valid))

    def _kept(self, state: Any, name: str, kind: pa.DataType) -> pa.Array:
        values, missing = self._fields[name]
        if not is_word(kind):
            return pa.array([value for each in getattr(state, values).get() for value in each], kind)
        words, _ = _words(getattr(state, values).get())
        null = np.frombuffer(b"".join(each or b"" for each in getattr(state, missing).get()), np.bool_)
        return to_array(words, kind, null)

    def _keep(self, state: Any, line: _Line, kept: Int64s) -> None:
        """Of each key these rows are needed later. kept: their places in the line."""
        ends = np.cumsum(np.bincount(line.rows.group[kept], minlength=line.end.size))
        getattr(state, TIMES).put(_cut(line.at[kept], ends))
        if self._from_first:
            gone = line.end - line.begin - np.diff(ends, prepend=0)
            self._carried.write(state, [carried_on(run, gone) for run in line.runs])
        for name, (words, missing) in self._fields.items():
            column = line.values[name].take(pa.array(kept))
            if is_word(column.type):
                null = nulls_of(column)
                getattr(state, words).put(_cut(value_words(column, "plain"), ends))
                getattr(state, missing).put(_cut(null.view(np.bool_) if null.size else np.zeros(kept.size, np.bool_), ends))
            else:
                listed, begin = plain_values(column), 0
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
        if self._described.ahead_us:
            store.timer(DUE)
        if self._described.ahead_rows:
            store.timer(END)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        line = self._line(state, len(groups), rows, groups.ids)
        newest = _newest(line)
        if self._described.ahead_us:
            known = newest > NEVER
            due = np.where(known, newest, 0) + self._described.ahead_us + 1
            getattr(state, DUE).put(due.view("datetime64[us]"), known)
        if self._described.ahead_rows:
            getattr(state, END).put(np.full(newest.size, OVER).view("datetime64[us]"))
        made, out = self._passed(state, line, newest)
        return out, groups.last[line.rows.group[made]]

    def expired(self, timers: Timers, state: Any) -> Any:  # type: ignore[override]
        """Keys that are silent, or the end of all: what waited for that comes out."""
        line = self._line(state, len(timers), None, np.empty(0, np.int64))
        made, out = self._passed(state, line, timers.times.astype("datetime64[us]").astype(np.int64))
        return out, line.rows.group[made]

    def _passed(self, state: Any, line: _Line, passed: Int64s) -> tuple[Int64s, dict[str, pa.Array]]:
        """(places in the line, the rows) of what has all of its frames. passed: int64 (g,), the time that later rows of each key have at
        least; OVER: there are none."""
        here, group = np.arange(line.at.size), line.rows.group
        first = line.begin + line.held - getattr(state, WAITS).get(0).astype(np.int64)
        there = line.rows.stop - here > (0 if self._described.among_known else self._described.ahead_rows)
        for place in self._described.among_known:
            _, until = self._known(place, line)
            there &= until[line.rows.stop] - until[1:] >= int(place.low or 0)
        there |= (passed == OVER)[group]
        there &= (line.at == NEVER) | (line.at <= (passed - self._described.ahead_us)[group])
        made = np.flatnonzero(there & (here >= first[group]))
        first += np.bincount(group[made], minlength=first.size)
        self._keep(state, line, self._needed(line, passed, first))
        getattr(state, WAITS).put(line.end - first)
        taken = pa.array(made)
        rows = {name: (line.times if name == self._described.time else line.values[name]).take(taken) for name in self._rows.names}
        return made, rows | self._totals(line, made)


def _newest(line: _Line) -> Int64s:
    """int64 (g,): the time of each key's last row, NEVER if it has none. Rows without a time are before the others."""
    newest = np.full(line.end.size, NEVER, np.int64)
    some = line.end > line.begin
    newest[some] = line.at[line.end[some] - 1]
    return newest


def _words(parts: Objects) -> tuple[Int64s, Int64s]:
    """(the words of all keys one after the other, how many each has)."""
    lengths = np.array([len(part) // 8 if part else 0 for part in parts], np.int64)
    return np.frombuffer(b"".join(part or b"" for part in parts), np.int64), lengths


def _cut(values: Int64s | Bools, ends: Int64s) -> list[bytes]:
    """The bytes of each key's values."""
    whole, size = values.tobytes(), values.itemsize
    begins = [0, *(ends[:-1] * size).tolist()]
    return [whole[begin:end] for begin, end in zip(begins, (ends * size).tolist(), strict=True)]
