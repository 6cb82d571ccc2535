"""Timers: which keys of a processor have one that has come, and the order in which rows and timers of a key reach the user's code.

A timer is a field of its key's state, a word like any other, so it moves, spills and survives with it. Beside the table there is only an
index by time, which is made again wherever rows come to be. Within an epoch a key's rows and timers are merged by time (`Merged`): a timer
of time t comes behind the rows up to t and before later ones, as if every row were an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.user.calls import Calls, Output
from evenflow.operator.user.declared import Field, TimeMode
from evenflow.operator.user.fields import Attempt, Column
from evenflow.operator.user.store import Base, KeyedStore
from evenflow.processor import Groups
from evenflow.state.deadlines import Deadlines
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick

NEVER: Final = 2**63 - 1
"""Later than every timer, microseconds."""


class _Index:
    """Slots of a table by the time of their next timer. A slot may be named too early, after a timeout was set again; never too late."""

    def __init__(self) -> None:
        self._deadlines = Deadlines()
        self._queued = np.empty(0, np.int64)

    def set(self, slots: Int64s, due: Int64s) -> None:
        """A slot that is named already for then or earlier is not named again: so a timeout costs memory once, not once per row."""
        if slots.size == 0:
            return
        top = int(slots.max()) + 1
        if top > self._queued.size:
            self._queued = np.append(self._queued, np.full(max(1024, 2 * top - self._queued.size), NEVER))
        earlier = due < self._queued[slots]
        self._queued[slots[earlier]] = due[earlier]
        self._deadlines.set(slots[earlier], due[earlier])

    def take(self, until: int) -> Int64s:
        slots = self._deadlines.take(until)
        self._queued[slots] = NEVER
        return slots

    @property
    def first_us(self) -> int:
        return self._deadlines.first_us(NEVER)


class Timers:
    """The timers of a processor, and an index of those that are set. fields: as declared, in that order."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.fields = [field for field in fields.values() if field.kind == "timer"]
        self._index: dict[TimeMode, _Index] = {}
        self.clear()

    def __bool__(self) -> bool:
        return bool(self.fields)

    def of(self, time: TimeMode) -> list[Field]:
        return [field for field in self.fields if field.time == time]

    def clear(self) -> None:
        """None is set."""
        self._index = {"event": _Index(), "processing": _Index()}

    def note(self, store: KeyedStore, slots: Int64s) -> None:
        """Look at the timers of these slots, which may hold a row. Cost: O(slots x timers)."""
        slots = slots[store.held(slots)]
        for time, index in self._index.items():
            if fields := self.of(time):
                due = _earliest(store, fields, slots)
                index.set(slots[due < NEVER], due[due < NEVER])

    def take(self, store: KeyedStore, tick: Tick) -> Int64s:
        """The slots with timers that have come by the end of the epoch, ascending; `note` them afterwards. Cost: O(those x timers)."""
        taken = []
        for time, until in limits(tick).items():
            slots = self._index[time].take(until)
            slots = slots[store.held(slots)]
            due = _earliest(store, self.of(time), slots)
            later = (due > until) & (due < NEVER)
            self._index[time].set(slots[later], due[later])
            taken.append(slots[due <= until])
        return np.unique(np.concatenate(taken))

    def next_us(self, stamp: int) -> int:
        """The least stamp at which a timer comes, in an epoch after that with this stamp; NEVER if none is set."""
        first = self._index["processing"].first_us
        return first if first == NEVER else max(first, stamp + 1)


def limits(tick: Tick) -> dict[TimeMode, int]:
    """The time up to which timers have come at the end of an epoch. At the end of the stream it is late for all of them."""
    if tick.last:
        return {"event": NEVER - 1, "processing": NEVER - 1}
    return {"event": max(tick.watermark, NO_WATERMARK + 1) - 1, "processing": tick.stamp}


def _earliest(store: KeyedStore, fields: Sequence[Field], slots: Int64s) -> Int64s:
    """int64 (n,): when the first of these timers comes, NEVER where none is set."""
    earliest = np.full(slots.size, NEVER)
    for field in fields:
        column = store.read(field, slots)
        assert column.words is not None
        np.minimum(earliest, column.words, out=earliest, where=column.given)
    return earliest


@dataclass(frozen=True)
class Piece:
    """What one call put out, m rows. group: int64 (m,), the key of each. time: int64 (m,), of the row or timer that it answers. row: int64
    (m,), the row of the epoch that it answers, -1 if it is a timer."""

    batch: pa.RecordBatch
    group: Int64s
    time: Int64s
    row: Int64s

    def take(self, wanted: Bools) -> Piece:
        """The rows of it that are wanted."""
        return Piece(self.batch.filter(pa.array(wanted)), self.group[wanted], self.time[wanted], self.row[wanted])


class Merged:
    """One run of the user's code over keys of an epoch: their rows and their timers, by time.

    base: the keys. batch, groups: their rows, grouped, or None. times: int64 (n,), of these rows, ascending within a key. keys: the key
    columns as the state has them, a row per key. Raises what the processor raises.
    """

    def __init__(
        self, calls: Calls, timers: Timers, attempt: Attempt, base: Base, keys: pa.RecordBatch, tick: Tick,
        batch: pa.RecordBatch | None = None, groups: Groups | None = None, times: Int64s | None = None,
    ) -> None:  # fmt: skip
        self._calls, self._fields, self._attempt, self._base, self._keys, self._tick = calls, timers.fields, attempt, base, keys, tick
        self._batch, self._groups, self._times = batch, groups, times
        self._event = np.array([field.time == "event" for field in self._fields])
        self._held = np.zeros((len(self._fields), len(base.slots)), np.bool_)
        # Timers that rows may set to a time before the next row.
        self._by_rows = [field for field in self._fields if field.time == "event" and field.after_us is None and groups is not None]
        self.pieces: list[Piece] = []

    def run(self) -> None:
        """Rows, each behind the timers that come before it; or, without rows, the timers that have come by the end of the epoch."""
        if self._groups is None or self._times is None:
            end = limits(self._tick)
            self._fire(np.full(len(self._base.slots), end["event"]), end["processing"])
            return
        at, stop = self._groups.starts.copy(), self._groups.starts + self._groups.counts
        while True:
            waiting = at < stop
            before = np.full(at.size, NO_WATERMARK)
            before[waiting] = np.maximum(self._times[at[waiting]], NO_WATERMARK + 1) - 1
            self._fire(before, self._tick.stamp - 1, waiting)
            if not waiting.any():
                return
            until = self._until(at, stop, waiting)
            of = np.flatnonzero(waiting)
            at[of] = self._give(of, at[of], until[of])

    # ------------------------------------------------------------ timers

    def _fire(self, event: Int64s, processing: int, of: Bools | None = None) -> None:
        """Fire timers up to these times, those of a key by time, also what is set meanwhile. event: int64 (g,). of: bool (g,), whose."""
        while True:
            which, when = self._next(event, processing)
            if of is not None:
                which[~of] = -1
            if (which < 0).all():
                return
            for number in range(len(self._fields)):
                mine = np.flatnonzero(which == number)
                if mine.size:
                    self._expire(number, mine, when[mine])

    def _next(self, event: Int64s, processing: int) -> tuple[Int64s, Int64s]:
        """(number of the timer that is each key's next, -1 if none has come; its time), int64 (g,) each."""
        which, when = np.full(event.size, -1), np.full(event.size, NEVER)
        for number, field in enumerate(self._fields):
            given, words = self._set(field)
            limit = event if self._event[number] else processing
            earlier = given & ~self._held[number] & (words <= limit) & ((words < when) | (which < 0))
            which[earlier], when[earlier] = number, words[earlier]
        return which, when

    def _expire(self, number: int, of: Int64s, when: Int64s) -> None:
        """These keys' timers of one name come. What is set to the present or the past then waits for rows or the next epoch, so that this
        one ends; behind the last row of the stream, all of it."""
        field, column = self._fields[number], self._attempt.column(self._fields[number].name)
        column.own()
        column.given[of] = False
        over = self._tick.last and self._groups is None
        before = [(given[of].copy(), words[of].copy()) for given, words in map(self._set, self._fields)]
        output = self._calls.expired(field, when, self._keys.take(pa.array(of)), self._attempt, of)
        for other, (was, word) in enumerate(before):
            given, words = self._set(self._fields[other])
            new = given[of] & (~was | (words[of] != word))
            self._held[other, of] |= new & ((words[of] <= when) | over)
        batch, at = output
        self.pieces.append(Piece(batch, of[at], when[at], np.full(at.size, -1)))

    def _set(self, field: Field) -> tuple[Bools, Int64s]:
        """(where a timer is set, to what)."""
        column = self._attempt.column(field.name)
        assert column.words is not None
        return column.given, column.words

    # ------------------------------------------------------------ rows

    def _until(self, at: Int64s, stop: Int64s, waiting: Bools) -> Int64s:
        """int64 (g,): the first row of each key that is not given with the one at `at`, since a timer comes, or may come, between them."""
        assert self._groups is not None and self._times is not None
        times, ids = self._times, self._groups.ids
        until = np.full(at.size, NEVER)
        timeouts = [field.after_us for field in self._fields if field.time == "event" and field.after_us is not None]
        for number, field in enumerate(self._fields):
            if field.time == "event" and field.after_us is None:
                given, words = self._set(field)
                np.minimum(until, words, out=until, where=given & ~self._held[number])
        apart = times > until[ids]
        if timeouts:
            known = times[:-1] != NO_WATERMARK
            apart[1:] |= known & (np.where(known, times[1:] - np.where(known, times[:-1], 0), 0) > min(timeouts))
        rows = np.arange(times.size)
        apart &= rows > at[ids]
        first: Int64s = np.minimum.reduceat(np.where(apart, rows, NEVER), self._groups.starts)
        return np.where(waiting, np.minimum(first, stop), at)

    def _give(self, of: Int64s, first: Int64s, stop: Int64s) -> Int64s:
        """Give these keys' rows from `first` on to the user's code, up to `stop` at most. Returns int64 (n,), up to where they were given.

        A key whose rows have set a timer that comes before the last of them was given too many: it is put back, and called with fewer.
        """
        assert self._times is not None
        self._held[:, of] = False  # What a timer had to wait for happens now.
        if not self._by_rows:
            self.pieces.append(self._call(of, first, stop))
            return stop
        columns = [self._attempt.column(name) for name in self._attempt.fields]
        before = [_values(column, of) for column in columns]
        watched = [self._attempt.column(field.name) for field in self._by_rows]
        for column in watched:
            column.least = np.full(len(self._base.slots), NEVER)
        piece = self._call(of, first, stop)
        least: Int64s = np.min([column.least[of] for column in watched if column.least is not None], axis=0)
        last = self._times[stop - 1]
        over = (last > least) & (last > self._times[first])
        given = stop.copy()
        if over.any():
            for column, values in zip(columns, before, strict=True):
                _put_back(column, of[over], [None if array is None else array[over] for array in values])
            piece = piece.take(~np.isin(piece.group, of[over]))
            for i in np.flatnonzero(over).tolist():
                times = self._times[first[i] : stop[i]]
                given[i] = first[i] + np.searchsorted(times, max(times[0], least[i]), side="right")
            given[over] = self._give(of[over], first[over], given[over])
        self.pieces.append(piece)
        return given

    def _call(self, of: Int64s, first: Int64s, stop: Int64s) -> Piece:
        """What the user's code makes of these keys' rows."""
        assert self._batch is not None and self._groups is not None and self._times is not None
        self._wind(of, self._times[stop - 1])
        counts = stop - first
        if counts.sum() == self._batch.num_rows:
            batch, at = self._calls.rows(self._batch, self._groups, self._attempt)
            ids = self._groups.ids[at]
        else:
            starts = np.cumsum(counts) - counts
            index = np.arange(counts.sum()) + np.repeat(first - starts, counts)
            starts.flags.writeable = counts.flags.writeable = False
            groups = Groups(starts, counts, self._groups.key_columns.take(pa.array(index)))
            batch, at = self._calls.rows(self._batch.take(pa.array(index)), groups, self._attempt, of)
            ids, at = of[groups.ids[at]], index[at]
        return Piece(batch, ids, self._times[at], self._base.order[at])

    def _wind(self, of: Int64s, times: Int64s) -> None:
        """Set the timeouts of these keys. times: int64 (n,), of their newest rows."""
        for field in self._fields:
            if field.after_us is not None:
                column = self._attempt.column(field.name)
                column.own()
                assert column.words is not None
                since = times if field.time == "event" else np.full(times.size, self._tick.stamp)
                known = since != NO_WATERMARK
                column.words[of[known]] = since[known] + field.after_us
                column.given[of[known]] = True


def _values(column: Column, of: Int64s) -> list[npt.NDArray[Any] | None]:
    """What a field holds for these keys, copied."""
    return [None if array is None else array[of] for array in (column.given, column.words, column.objects)]


def _put_back(column: Column, of: Int64s, values: Sequence[npt.NDArray[Any] | None]) -> None:
    column.own()
    for array, before in zip((column.given, column.words, column.objects), values, strict=True):
        if array is not None and before is not None:
            array[of] = before


def in_order(pieces: Sequence[Piece], identity: Sequence[npt.NDArray[np.uint64]]) -> Int64s:
    """int64 (m,): the rows of the pieces, one after the other, by time; of one time those that answer rows first, in the rows' order, then
    those of timers by key. identity: uint64 (g,) each, of the keys. So the order in a partition does not depend on what else is here."""
    group, time, row = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("group", "time", "row"))
    timers = row < 0
    keys = [np.where(timers, of_key[group], np.uint64(0)) for of_key in identity]
    order: Int64s = np.lexsort((*reversed(keys), row, timers, time))
    return order


__all__ = ["NEVER", "Merged", "Output", "Piece", "Timers", "in_order"]
