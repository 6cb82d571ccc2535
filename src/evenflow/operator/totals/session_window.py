"""SessionWindowAggregate: totals per key and session, put out once when the watermark says that the session is over.

A session is kept as **stretches**: one row of the table per key and stretch [k * gap, (k + 1) * gap) of event time that has rows. Rows of
one stretch are less than a gap apart, so they are of one session whatever comes; a stretch and the next one are of one session if the
first row of the one follows the last row of the other by at most a gap; stretches that are further apart never touch. So rows are
folded as into tumbling windows, in any order, two sessions that a late row joins are joined by that row's stretch alone, and stretches
become sessions only when a session is put out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.table import EXTRA, HASH
from evenflow.operator.totals.session_totals import FIRST, LAST, SessionTotals
from evenflow.operator.totals.totals import LEAST
from evenflow.query.aggregates import AggCall, SessionWindow
from evenflow.state.keys import identity
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class SessionWindowAggregate(SessionTotals):
    """Session windows (append mode), as Spark's session_window. Cost: O(rows + stretches put out x log open stretches).

    Port 0: keys, window_start (the first row's time), window_end (the last row's time + gap), one column per call; a session is put
    out in the epoch in which window_end <= tick.watermark; per partition sorted by (window_start, hash, check). Port 1: late rows as
    they came: a session of that row alone would have ended at or before tick.before. `late_rows` counts them. A row without a time
    belongs to no session. Without an order, first, last and collect_list need rows that come by event time. State: a row per stretch.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall], *, window: SessionWindow, **more: Any) -> None:
        super().__init__(schema, keys, calls, window=window, **more)
        self._time, self._gap = window.column, window.gap_us

    def _fold(self, rows: Rows, tick: Tick) -> Rows:
        column = rows.batch.column(self._time)
        times, missing = integers_of(column), nulls_of(column).view(np.bool_)
        late = times <= tick.before - self._gap if tick.before >= LEAST + self._gap else np.zeros(times.size, np.bool_)
        in_time = ~late
        if missing.size:
            late, in_time = late & ~missing, in_time & ~missing
        found = rows.take(np.flatnonzero(late))
        self.late_rows += found.count
        if not in_time.all():
            index = np.flatnonzero(in_time)
            rows, times = rows.take(index), times[index]
        if rows.count == 0:
            return found
        hashes, checks = identity(rows, self._keys)
        bound = self._with_ends(self._totals.bind(rows.batch), times, times)
        self._add(rows, hashes, checks, times - times % self._gap, bound, tick.epoch)
        return found

    def _opened(self, slots: Int64s) -> None:
        self._deadlines.set(slots, self._table.words[slots, LAST] + self._gap)

    def _emit(self, tick: Tick) -> Rows:
        """Results of the sessions that are over, which are forgotten."""
        slots = self._deadlines.take(tick.watermark)
        slots = slots[self._table.held(slots)]
        over = self._table.words[slots, LAST] + self._gap
        later = over > tick.watermark
        self._deadlines.set(slots[later], over[later])
        slots = slots[~later]
        if slots.size:
            slots = slots[self._neighbours(slots, 1) < 0]  # The last stretch of a session answers for those before it.
        if slots.size == 0:
            return Rows.empty(self.schemas[0], keyed=True)
        batch, ends, stretches = self._read(slots)
        out = Rows(batch, self._table.owner_of(ends), self._table.words[ends, HASH].view(np.uint64))
        self._table.remove(stretches, epoch=tick.epoch)
        return out

    def _read(self, ends: Int64s) -> tuple[pa.RecordBatch, Int64s, Int64s]:
        """(the sessions that end with these stretches, by (start, hash, check); the last stretch of each; all their stretches)."""
        session, stretches, firsts = self._sessions(ends)
        words = self._table.words
        starts, over = words[stretches[firsts], FIRST], words[ends, LAST] + self._gap
        batch, order = self._put(session, stretches, ends, starts, over)
        return batch, ends[order], stretches

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        if slots.size == 0:
            return pa.RecordBatch.from_pylist([], schema=self.shown)
        return self._read(slots[self._neighbours(slots, 1) < 0])[0]

    def _neighbours(self, slots: Int64s, step: int) -> Int64s:
        """int64 (n,): the slot of the stretch one gap later (step 1) or earlier (-1) that is of the same session, else -1."""
        words = self._table.words
        hashes, checks = self._table.identity_of(slots)
        found = self._table.seek(hashes, checks, words[slots, EXTRA] + step * self._gap)
        before, after = (slots, found) if step > 0 else (found, slots)
        apart = words[after, FIRST] - words[before, LAST] > self._gap
        found[apart] = -1
        return found

    def _sessions(self, ends: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """(session and slot of each stretch, where the first one of each session is), by session and time.

        ends: slots of the last stretches.
        """
        sessions, stretches = [np.arange(ends.size)], [ends]
        while True:
            before = self._neighbours(stretches[-1], -1)
            more = before >= 0
            if not more.any():
                break
            sessions.append(sessions[-1][more])
            stretches.append(before[more])
        session, slots = np.concatenate(sessions), np.concatenate(stretches)
        order = np.lexsort((self._table.words[slots, EXTRA], session))
        session, slots = session[order], slots[order]
        return session, slots, np.searchsorted(session, np.arange(ends.size))
