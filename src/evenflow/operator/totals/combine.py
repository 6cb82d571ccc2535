"""Combine: partial totals of an epoch per producer partition and key, before the exchange.

Per producer partition, because a frame's content may depend on nothing else (protocol E3). Stateless: totals live for one epoch, and
so does the sketch that tells which keys are hot (`kernels.hot`, docs/decisions/0020-hot-keys.md). A row of a cold key leaves as the
partial totals of one row, so whoever merges them cannot tell it from many rows of a hot one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.kernels.columns import frozen, integers_of
from evenflow.kernels.hash import hash_columns
from evenflow.kernels.hot import PLACES, fold_groups, group_hot
from evenflow.operator.operator import Stateless
from evenflow.operator.totals.totals import Totals
from evenflow.operator.totals.user_states import first_states
from evenflow.operator.totals.windowing import windows_of
from evenflow.query.aggregates import NEWEST_ROWS, AggCall, TimeWindow, partial_schema
from evenflow.state.held_rows import join_rows
from evenflow.state.keys import identity, key_columns
from evenflow.state.pages import NO_EXTRA
from evenflow.stream.change import is_changelog, taken_back
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows


class Combine(Stateless):
    """Partial totals per (partition, key, window), several where a key was not hot for a while. Cost: O(rows).

    Selectivity: distinct keys per partition / rows, up to `places` keys; of more, the hottest are combined and the rest pass.
    schema: of the input. keys, calls: of the aggregate behind the exchange (`combinable`). window: its time window, or None; a
    sliding window's rows are counted once per window. places: a power of two, at least 4. Output: `partial_schema`, per partition in
    order of first appearance. Of a changelog, rows that are taken back have totals of their own, which are negative.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], calls: Sequence[AggCall], window: TimeWindow | None = None, *, places: int = PLACES
    ) -> None:
        self._keys, self._window, self._places = tuple(keys), window, places
        self._totals = Totals(calls, schema, first=0, every_cell=True)
        self.schemas: tuple[pa.Schema, ...] = (partial_schema(schema, keys, calls, window),)
        self._made = [call for call in calls if call.made is not None]
        self._retracts = is_changelog(schema)
        self._nothing = Rows.empty(self.schemas[0], keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if not self._retracts or rows.count == 0:
            return (self._combined(rows, sign=1),)
        back = taken_back(rows.batch)
        made = [self._combined(rows.take(np.flatnonzero(part)), sign) for part, sign in ((~back, 1), (back, -1))]
        return (join_rows(made, self.schemas[0]),)

    def _combined(self, rows: Rows, sign: int) -> Rows:
        """The partial totals of rows that come (1), or of rows that are taken back (-1)."""
        starts = NO_EXTRA
        if rows.count:
            # Hashes that come with the rows are of the key that brought them here, not of the one behind the exchange.
            rows = Rows(rows.batch, rows.partition, hash_columns(rows.batch, self._keys))
            if self._window is not None:
                rows, starts = spread(rows, self._window)
        if rows.count == 0:
            return self._nothing
        hashes, checks = identity(rows, self._keys)
        ordinals, first_row = np.empty(rows.count, np.int64), np.empty(rows.count, np.int64)
        groups = group_hot(frozen(hashes), frozen(checks), frozen(starts), frozen(rows.partition), self._places, ordinals, first_row)
        bound = self._totals.bind(rows.batch)
        words = fold_groups(self._totals.template, groups, ordinals, bound.ops, frozen(bound.values), frozen(bound.nulls))
        if sign < 0:
            words = self._totals.negative(words)
        at = first_row[:groups]
        arrays = key_columns(rows.batch, self._keys, at)
        if self._window is not None:
            arrays.append(pa.array(starts[at]).view(self.schemas[0].field(len(self._keys)).type))
        states = {call.name: first_states(call, call.made, rows.batch, ordinals, groups) for call in self._made if call.made is not None}
        arrays += self._totals.partials(words, states)
        if self._window is not None and NEWEST_ROWS in self.schemas[0].names:
            newest = integers_of(rows.batch.column(self._window.column)) - starts < self._window.slide_us
            arrays.append(pa.array(sign * np.bincount(ordinals[newest], minlength=groups)))
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0]), rows.partition[at], hashes[at])


def spread(rows: Rows, window: TimeWindow) -> tuple[Rows, np.ndarray]:
    """Each row once per window that it belongs to, and the windows' starts. Rows without a time are left out."""
    times = rows.batch.column(window.column)
    index, starts, _ = windows_of(times, window, NO_WATERMARK)
    if index.size == rows.count and window.size_us == window.slide_us:
        return rows, starts
    return rows.take(index), starts
