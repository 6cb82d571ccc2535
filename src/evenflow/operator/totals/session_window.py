"""SessionWindowAggregate: totals per key and session, put out once when the watermark says that the session is over.

A session is kept as **stretches**: one row of the table per key and stretch [k * gap, (k + 1) * gap) of event time that has rows. Rows of
one stretch are less than a gap apart, so they are of one session whatever comes; a stretch and the next one are of one session if the
first row of the one follows the last row of the other by at most a gap; stretches that are further apart never touch. So rows are
folded as into tumbling windows, in any order, two sessions that a late row joins are joined by that row's stretch alone, and stretches
become sessions only when a session is put out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.hash import Hashes
from evenflow.kernels.table import EXTRA, HASH
from evenflow.operator.totals.session_totals import FIRST, LAST, SessionTotals
from evenflow.operator.totals.totals import LEAST, Bound
from evenflow.query.aggregates import AggCall, SessionWindow
from evenflow.state.keys import identity
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE_FIELD, changed_rows
from evenflow.stream.epoch import Tick, behind
from evenflow.stream.rows import Rows

_NAME: Final = np.dtype([("start", np.int64), ("hash", np.uint64), ("check", np.uint64)])


class SessionWindowAggregate(SessionTotals):
    """Session windows, as Spark's session_window. Cost: O(rows + stretches put out x log open stretches).

    Port 0: keys, window_start (the first row's time), window_end (the last row's time + gap), one column per call; a session is put
    out in the epoch in which window_end <= tick.watermark; per partition sorted by (window_start, hash, check). Port 1: late rows as
    they came: a session of that row alone would have ended at or before tick.before. `late_rows` counts them. A row without a time
    belongs to no session. Without an order, first, last and collect_list need rows that come by event time. State: a row per stretch.

    A changelog has, in the epoch in which rows come into sessions, those that there were and those that there are, of the same key and
    start as one that has changed; rows that join two sessions delete both or, where one has the same start, the other. A session is
    forgotten, and rows are late, `window.lateness_us` after what is said above.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall], *, window: SessionWindow, **more: Any) -> None:
        super().__init__(schema, keys, calls, window=window, **more)
        self._time, self._gap, self._window = window.column, window.gap_us, window
        self._changed: Rows | None = None
        if not window.final:
            self.schemas = (self._result_schema.append(CHANGE_FIELD), schema)

    def _fold(self, rows: Rows, tick: Tick) -> Rows:
        column = rows.batch.column(self._time)
        times, missing = integers_of(column), nulls_of(column).view(np.bool_)
        before = behind(tick.before, self._window.lateness_us)
        late = times <= before - self._gap if before >= LEAST + self._gap else np.zeros(times.size, np.bool_)
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
        starts = times - times % self._gap
        if self._window.final:
            self._add(rows, hashes, checks, starts, bound, tick.epoch)
        else:
            self._changed = self._with_changes(rows, hashes, checks, starts, bound, tick)
        return found

    def _with_changes(self, rows: Rows, hashes: Hashes, checks: Hashes, starts: Int64s, bound: Bound, tick: Tick) -> Rows:
        """Fold the rows; what that changes in sessions."""
        near = np.concatenate([self._table.seek(hashes, checks, starts + step * self._gap) for step in (-1, 0, 1)])
        held = self._last(np.unique(near[near >= 0]))
        old, held, pieces = self._read(held)
        was = self._named(held, old)
        touched = self._add(rows, hashes, checks, starts, bound, tick.epoch)
        new, ends, _ = self._read(self._last(np.unique(np.concatenate([pieces, touched.slots]))))
        names, groups = np.unique(np.concatenate([was, self._named(ends, new)]), return_inverse=True)
        batch, at = changed_rows(old, groups[: held.size], new, groups[held.size :], len(self._keys) + 1)
        owners = np.empty(names.size, np.int32)
        owners[groups] = self._table.owner_of(np.concatenate([held, ends]))
        return Rows(batch, owners[at], np.ascontiguousarray(names["hash"][at]))

    def _named(self, ends: Int64s, sessions: pa.RecordBatch) -> Any:
        """What sessions are known by, in their order: start, hash and check. ends: the last stretch of each."""
        hashes, checks = self._table.identity_of(ends)
        found = np.empty(ends.size, _NAME)
        found["start"], found["hash"], found["check"] = integers_of(sessions.column(len(self._keys))), hashes, checks
        return found

    def _last(self, slots: Int64s) -> Int64s:
        """int64, ascending: the last stretches of the sessions that these stretches are of."""
        found = [slots[:0]]
        while slots.size:
            after = self._neighbours(slots, 1)
            found.append(slots[after < 0])
            slots = np.unique(after[after >= 0])
        return np.unique(np.concatenate(found))

    def _opened(self, slots: Int64s) -> None:
        self._deadlines.set(slots, self._table.words[slots, LAST] + self._gap)

    def _emit(self, tick: Tick) -> Rows:
        """Results of the sessions that are over, which are forgotten."""
        changed, self._changed = self._changed, None
        slots = self._deadlines.take(watermark := behind(tick.watermark, self._window.lateness_us))
        slots = slots[self._table.held(slots)]
        over = self._table.words[slots, LAST] + self._gap
        later = over > watermark
        self._deadlines.set(slots[later], over[later])
        slots = slots[~later]
        if slots.size:
            slots = slots[self._neighbours(slots, 1) < 0]  # The last stretch of a session answers for those before it.
        out = changed or Rows.empty(self.schemas[0], keyed=True)
        if slots.size == 0:
            return out
        if self._window.final:
            batch, ends, stretches = self._read(slots)
            out = Rows(batch, self._table.owner_of(ends), self._table.words[ends, HASH].view(np.uint64))
        else:
            stretches = self._sessions(slots)[1]
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
