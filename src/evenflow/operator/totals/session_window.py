"""SessionWindowAggregate: totals per key and session, put out once when the watermark says that the session is over.

A session is kept as **stretches**: one row of the table per key and stretch [k * gap, (k + 1) * gap) of event time that has rows. Rows of
one stretch are less than a gap apart, so they are of one session whatever comes; a stretch and the next one are of one session if the
first row of the one follows the last row of the other by at most a gap; stretches that are further apart never touch. So rows are
folded as into tumbling windows, in any order, two sessions that a late row joins are joined by that row's stretch alone, and stretches
become sessions only when a session is put out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import integers_of, nulls_of
from evenflow.kernels.fold import MAX, MIN
from evenflow.kernels.table import CHECK, EXTRA, HASH, HEADER, gather
from evenflow.operator.tabled import Expiring
from evenflow.operator.totals.merging import merge_objects, merge_totals
from evenflow.operator.totals.ordered_totals import EventOrder
from evenflow.operator.totals.totals import GREATEST, LEAST, Bound
from evenflow.operator.totals.window_totals import WindowTotals
from evenflow.query.aggregates import AggCall, SessionWindow
from evenflow.state.deadlines import Deadlines
from evenflow.state.keys import describe, identity
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

FIRST_ROW, LAST_ROW = HEADER, HEADER + 1
"""Words of a stretch: times of its first and its last row."""


class SessionWindowAggregate(WindowTotals, Expiring):
    """Session windows (append mode), as Spark's session_window. Cost: O(rows + stretches put out x log open stretches).

    Port 0: keys, window_start (the first row's time), window_end (the last row's time + gap), one column per call; a session is put
    out in the epoch in which window_end <= tick.watermark; per partition sorted by (window_start, hash, check). Port 1: late rows as
    they came: a session of that row alone would have ended at or before tick.before. `late_rows` counts them. A row without a time
    belongs to no session. Without an order, first, last and collect_list need rows that come by event time. State: a row per stretch.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        calls: Sequence[AggCall],
        *,
        window: SessionWindow,
        partial: bool = False,
        time: str | None = None,
        order: EventOrder | None = None,
    ) -> None:
        assert not partial, "sessions have no partial results"
        super().__init__(schema, keys, calls, window, time, own=(GREATEST, LEAST), order=order)
        self._time, self._gap = window.column, window.gap_us
        self._deadlines = Deadlines()

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
        bound = self._with_times(self._totals.bind(rows.batch), times)
        self._add(rows, hashes, checks, times - times % self._gap, bound, tick.epoch)
        return found

    def _opened(self, slots: Int64s) -> None:
        self._deadlines.set(slots, self._table.words[slots, LAST_ROW] + self._gap)

    def _with_times(self, bound: Bound, times: Int64s) -> Bound:
        """Fold the times of the first and the last row as well."""
        at = bound.values.shape[0]
        ops = np.array([[MIN, FIRST_ROW, at, -1], [MAX, LAST_ROW, at, -1]], np.int64)
        return Bound(np.concatenate([bound.ops, ops]), np.concatenate([bound.values, times[None, :]]), bound.nulls)

    def _emit(self, tick: Tick) -> Rows:
        """Results of the sessions that are over, which are forgotten."""
        slots = self._deadlines.take(tick.watermark)
        slots = slots[self._table.held(slots)]
        over = self._table.words[slots, LAST_ROW] + self._gap
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
        starts = words[stretches[firsts], FIRST_ROW]
        order = np.lexsort((words[ends, CHECK].view(np.uint64), words[ends, HASH].view(np.uint64), starts))
        keys = [array.take(pa.array(order)) for array in self._keys_of(ends)]
        results = self._results(session, stretches, ends.size, order, keys)
        bounds = self._bounds(starts[order], words[ends[order], LAST_ROW] + self._gap)
        return pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=self.schemas[0]), ends[order], stretches

    @property
    def shown(self) -> pa.Schema:
        """The sessions that are open, as they would be put out if no other row came."""
        return self.schemas[0]

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        if slots.size == 0:
            return pa.RecordBatch.from_pylist([], schema=self.shown)
        return self._read(slots[self._neighbours(slots, 1) < 0])[0]

    def _neighbours(self, slots: Int64s, step: int) -> Int64s:
        """int64 (n,): the slot of the stretch one gap later (step 1) or earlier (-1) that is of the same session, else -1."""
        words = self._table.words
        hashes, checks = words[slots, HASH].view(np.uint64), words[slots, CHECK].view(np.uint64)
        found = self._table.seek(hashes, checks, words[slots, EXTRA] + step * self._gap)
        before, after = (slots, found) if step > 0 else (found, slots)
        apart = words[after, FIRST_ROW] - words[before, LAST_ROW] > self._gap
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

    def _results(self, session: Int64s, stretches: Int64s, count: int, order: Int64s, keys: list[pa.Array]) -> list[pa.Array]:
        """One column per call; sessions in `order`."""
        words = merge_totals(self._totals, gather(self._table.words, stretches, self._totals.columns), session, count)
        loose = dict(zip((call.name for call in self._loose), self._table.objects, strict=False))

        def key_of(group: int) -> str:
            return describe(keys, self._keys, group)

        results = self._totals.results(np.ascontiguousarray(words[:, order]), key_of)
        made = []
        for call, array in zip(self._totals.calls, results, strict=True):
            if array is None:
                values = merge_objects(call, loose[call.name][stretches], session, count)
                array = pa.array([values[at] for at in order.tolist()], call.type)
            made.append(array)
        return self._with_ordered(made, stretches, np.argsort(order)[session], count, key_of)
