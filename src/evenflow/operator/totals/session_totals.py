"""SessionTotals: what sessions with one gap and those with a gap of each row's own have in common: pieces of sessions, put out whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.kernels.fold import MAX, MIN
from evenflow.kernels.table import CHECK, HASH, HEADER, gather
from evenflow.operator.operator import Reaching
from evenflow.operator.tabled import Expiring
from evenflow.operator.totals.merging import merge_objects, merge_totals
from evenflow.operator.totals.ordered_totals import EventOrder
from evenflow.operator.totals.totals import GREATEST, LEAST, Bound
from evenflow.operator.totals.window_totals import WindowTotals
from evenflow.query.aggregates import AggCall, SessionWindow
from evenflow.state.deadlines import Deadlines
from evenflow.state.keys import describe
from evenflow.stream.arrays import Int64s

FIRST, LAST = HEADER, HEADER + 1
"""Words of a piece: the time of its first row, and the greatest of what the subclass folds beside it."""


class SessionTotals(WindowTotals, Expiring, Reaching):
    """A session is one or several pieces, rows of the table, of the same key. Which ones is for the subclass to say."""

    by_watermark = False

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
        self._deadlines = Deadlines()
        self._result_schema = self.schemas[0]

    def oldest_us(self, watermark: int) -> int:
        """The first row of all sessions that are here. Cost: O(sessions)."""
        words = self._table.words[self._table.every_slot()]
        firsts = words[words[:, LAST] > LEAST, FIRST]
        return min(watermark, int(firsts.min())) if firsts.size else watermark

    @property
    def shown(self) -> pa.Schema:
        """The sessions that are open, as they would be put out if no other row came."""
        return self._result_schema

    def _with_ends(self, bound: Bound, times: Int64s, last: Int64s) -> Bound:
        """Fold the first time and the greatest of `last` as well."""
        at = bound.values.shape[0]
        ops = np.array([[MIN, FIRST, at, -1], [MAX, LAST, at + 1, -1]], np.int64)
        return Bound(np.concatenate([bound.ops, ops]), np.concatenate([bound.values, times[None, :], last[None, :]]), bound.nulls)

    def _put(self, session: Int64s, pieces: Int64s, last: Int64s, starts: Int64s, ends: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """(sessions as they are put out, by (start, hash, check); the number of each).

        session, pieces: int64, ascending, the session of each piece and its slot; pieces of one session by time. last, starts, ends: of
        each session the slot of its last piece, and its bounds in microseconds.
        """
        words = self._table.words
        order = np.lexsort((words[last, CHECK].view(np.uint64), words[last, HASH].view(np.uint64), starts))
        keys = [array.take(pa.array(order)) for array in self._keys_of(last)]
        results = self._results(session, pieces, last.size, order, keys)
        bounds = self._bounds(starts[order], ends[order])
        return pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=self._result_schema), order

    def _results(self, session: Int64s, pieces: Int64s, count: int, order: Int64s, keys: list[pa.Array]) -> list[pa.Array]:
        """One column per call; sessions in `order`."""
        words = merge_totals(self._totals, gather(self._table.words, pieces, self._totals.columns), session, count)
        loose = dict(zip((call.name for call in self._loose), self._table.objects, strict=False))

        def key_of(group: int) -> str:
            return describe(keys, self._keys, group)

        results = self._totals.results(np.ascontiguousarray(words[:, order]), key_of)
        made = []
        for call, array in zip(self._totals.calls, results, strict=True):
            if array is None:
                values = merge_objects(call, loose[call.name][pieces], session, count)
                array = pa.array([values[at] for at in order.tolist()], call.type)
            made.append(array)
        return self._with_ordered(made, pieces, np.argsort(order)[session], count, key_of)
