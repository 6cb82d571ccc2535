"""OwnSessionAggregate: sessions whose rows have a gap each of their own: a row at ts is a session [ts, end) by itself, and those of a key
that overlap or touch are one.

A session is kept as **pieces**, rows of the table by key and number: 0, 1, 2 and so on without a hole. A row goes to the piece of the
session that it belongs to now, which grows by it; if it belongs to none it begins a piece; if it belongs to several, these are one session
from now on, which the bounds of their pieces say, and which nothing needs to be written for. So the numbers say nothing of time, and which
pieces make up a session is computed from the bounds of a key's pieces, when a row of the key comes and when one of them falls due.

What has been put out is **blank**, as if new, where pieces with higher numbers are there still; it is used again, or goes with those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.hash import Hashes
from evenflow.kernels.table import EXTRA, HASH, HEADER
from evenflow.operator.totals.session_totals import FIRST, LAST, SessionTotals
from evenflow.operator.totals.totals import GREATEST, LEAST
from evenflow.query.aggregates import AggCall, OwnSessions
from evenflow.state.keys import identity
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Pieces of some keys. key: int64 (n,), ascending, the number of each one's key. slots: int64 (n,). number: int64 (n,), ascending
    in each key. alive: bool (n,), whether it is not blank."""

    key: Int64s
    slots: Int64s
    number: Int64s
    alive: npt.NDArray[np.bool_]


class OwnSessionAggregate(SessionTotals):
    """Session windows with a gap of each row's own (append mode), as Spark's session_window with a column. Cost: O(rows + pieces of their
    keys) x log of it, and a step more for each piece of the key that has most.

    Port 0: keys, window_start (the first row's time), window_end (the latest of the rows' ends), one column per call; a session is put out
    in the epoch in which window_end <= tick.watermark; per partition sorted by (window_start, hash, check). Port 1: late rows as they
    came: their own end is at or before tick.before. `late_rows` counts them. A row without a time or an end, or that ends before it has
    begun, belongs to no session. State: a row per session, and some more where late rows have joined sessions.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall], *, window: OwnSessions, **more: Any) -> None:
        super().__init__(schema, keys, calls, window=window, **more)
        self._time, self._ends = window.column, window.ends
        self._blank = np.concatenate([np.array([GREATEST, LEAST], np.int64), self._totals.template])

    def _fold(self, rows: Rows, tick: Tick) -> Rows:
        given, until = rows.batch.column(self._time), rows.batch.column(self._ends)
        times, ends = integers_of(given), integers_of(until)
        there = ~(nulls_of(given).view(np.bool_) if given.null_count else np.zeros(times.size, np.bool_))
        if until.null_count:
            there &= ~nulls_of(until).view(np.bool_)
        there &= ends > times
        in_time = there & (ends > tick.before)
        late = rows.take(np.flatnonzero(there & ~in_time))
        self.late_rows += late.count
        if not in_time.all():
            index = np.flatnonzero(in_time)
            rows, times, ends = rows.take(index), times[index], ends[index]
        if rows.count == 0:
            return late
        hashes, checks = identity(rows, self._keys)
        numbers, used_again = self._placed(hashes, checks, times, ends)
        bound = self._with_ends(self._totals.bind(rows.batch), times, ends)
        self._add(rows, hashes, checks, numbers, bound, tick.epoch)
        self._opened(used_again)
        return late

    def _opened(self, slots: Int64s) -> None:
        ends = self._table.words[slots, LAST]
        alive = ends > LEAST
        self._deadlines.set(slots[alive], ends[alive])

    def _placed(self, hashes: Hashes, checks: Hashes, times: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """(the number of each row's piece; slots of blank pieces that are used again)."""
        key, firsts = _keys_in(hashes, checks)
        pieces = self._pieces(hashes[firsts], checks[firsts])
        alive, words = pieces.slots[pieces.alive], self._table.words
        session, count = _sessions(
            np.concatenate([key, pieces.key[pieces.alive]]),
            np.concatenate([times, words[alive, FIRST]]),
            np.concatenate([ends, words[alive, LAST]]),
        )
        of_rows, of_pieces = session[: key.size], session[key.size :]
        home = np.full(count, GREATEST)
        np.minimum.at(home, of_pieces, pieces.number[pieces.alive])
        key_of = np.zeros(count, np.int64)
        key_of[of_rows] = key
        begun = np.flatnonzero(home == GREATEST)  # Sessions ascend by key, so these do.
        owner = key_of[begun]
        nth = np.arange(begun.size) - np.searchsorted(owner, owner)
        blank = np.flatnonzero(~pieces.alive)
        first_blank = np.searchsorted(pieces.key[blank], owner)
        blanks = np.searchsorted(pieces.key[blank], owner, side="right") - first_blank
        held = np.searchsorted(pieces.key, owner, side="right") - np.searchsorted(pieces.key, owner)
        home[begun] = held + nth - blanks
        again = np.flatnonzero(nth < blanks)
        taken = blank[first_blank[again] + nth[again]]
        home[begun[again]] = pieces.number[taken]
        return home[of_rows], pieces.slots[taken]

    def _pieces(self, hashes: Hashes, checks: Hashes) -> _Pieces:
        """All pieces of distinct keys."""
        left, number = np.arange(hashes.size), 0
        keys, slots, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while left.size:
            found = self._table.seek(hashes[left], checks[left], np.full(left.size, number))
            left, found = left[found >= 0], found[found >= 0]
            keys.append(left)
            slots.append(found)
            numbers.append(np.full(left.size, number))
            number += 1
        key = np.concatenate(keys)
        order = np.argsort(key, kind="stable")
        all_slots = np.concatenate(slots)[order]
        return _Pieces(key[order], all_slots, np.concatenate(numbers)[order], self._table.words[all_slots, LAST] > LEAST)

    def _emit(self, tick: Tick) -> Rows:
        """Results of the sessions that are over, which are forgotten."""
        slots = self._deadlines.take(tick.watermark)
        slots = slots[self._table.held(slots)]
        slots = slots[self._table.words[slots, LAST] > LEAST]
        if slots.size == 0:
            return Rows.empty(self.schemas[0], keyed=True)
        hashes, checks = self._table.identity_of(slots)
        _, firsts = _keys_in(hashes, checks)
        pieces = self._pieces(hashes[firsts], checks[firsts])
        alive, words = pieces.slots[pieces.alive], self._table.words
        session, count = _sessions(pieces.key[pieces.alive], words[alive, FIRST], words[alive, LAST])
        over = np.full(count, LEAST)
        np.maximum.at(over, session, words[alive, LAST])
        due = over[session] <= tick.watermark
        waits = np.isin(alive, slots) & ~due
        self._deadlines.set(alive[waits], over[session[waits]])
        if not due.any():
            return Rows.empty(self.schemas[0], keyed=True)
        batch, last = self._read(session[due], alive[due])
        out = Rows(batch, self._table.owner_of(last), self._table.words[last, HASH].view(np.uint64))
        self._forget(pieces, alive[due], tick.epoch)
        return out

    def _read(self, session: Int64s, slots: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """(sessions, by (start, hash, check); a piece of each). session: of each slot; all pieces of a session are there."""
        words = self._table.words
        order = np.lexsort((words[slots, EXTRA], words[slots, FIRST], session))
        slots = slots[order]
        new = np.append(True, np.diff(session[order]) != 0)
        session, firsts = np.cumsum(new) - 1, np.flatnonzero(new)
        batch, placed = self._put(
            session, slots, slots[firsts], words[slots[firsts], FIRST], np.maximum.reduceat(words[slots, LAST], firsts)
        )
        return batch, slots[firsts][placed]

    def _forget(self, pieces: _Pieces, gone: Int64s, epoch: int) -> None:
        """Pieces that have been put out: those behind which none is alive are removed, with blank ones there, the others become blank."""
        stays = pieces.alive & ~np.isin(pieces.slots, gone)
        highest = np.full(int(pieces.key[-1]) + 1, -1)
        np.maximum.at(highest, pieces.key[stays], pieces.number[stays])
        behind = pieces.number > highest[pieces.key]
        blank = pieces.slots[~behind & pieces.alive & ~stays]
        self._table.remove(pieces.slots[behind], epoch=epoch)
        if blank.size:
            hashes, checks = self._table.identity_of(blank)
            numbers = np.ascontiguousarray(self._table.words[blank, EXTRA])
            slots = self._table.fold(self._table.owner_of(blank), hashes, checks, epoch=epoch, extra=numbers).slots
            self._table.words[slots, HEADER : HEADER + self._blank.size] = self._blank
            for column in self._table.objects[: self._in_order.stop]:
                column[slots] = None

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        slots = slots[self._table.words[slots, LAST] > LEAST]
        if slots.size == 0:
            return pa.RecordBatch.from_pylist([], schema=self.shown)
        key, _ = _keys_in(*self._table.identity_of(slots))
        session, _ = _sessions(key, self._table.words[slots, FIRST], self._table.words[slots, LAST])
        return self._read(session, slots)[0]


def _keys_in(hashes: Hashes, checks: Hashes) -> tuple[Int64s, Int64s]:
    """(the number of each row's key, from 0 on; for each key a row that has it)."""
    order = np.lexsort((checks, hashes))
    new = np.ones(order.size, np.bool_)
    new[1:] = (np.diff(hashes[order]) != 0) | (np.diff(checks[order]) != 0)
    key = np.empty(order.size, np.int64)
    key[order] = np.cumsum(new) - 1
    return key, order[new]


def _sessions(key: Int64s, starts: Int64s, ends: Int64s) -> tuple[Int64s, int]:
    """(the number of each interval's session, ascending by (key, start); how many there are): what overlaps or touches is one."""
    order = np.lexsort((starts, key))
    by_end = np.argsort(ends, kind="stable")
    rank = np.empty(ends.size, np.int64)
    rank[by_end] = np.arange(ends.size)
    latest = np.maximum.accumulate(rank[order] + key[order] * ends.size) - key[order] * ends.size
    new = np.ones(order.size, np.bool_)
    new[1:] = (np.diff(key[order]) != 0) | (starts[order][1:] > ends[by_end[latest]][:-1])
    session = np.empty(order.size, np.int64)
    session[order] = np.cumsum(new) - 1
    return session, int(new.sum())
