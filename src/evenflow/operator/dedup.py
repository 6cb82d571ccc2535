"""Dedup: of rows that are equal in some columns only the first passes (Spark's dropDuplicates and dropDuplicatesWithinWatermark)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.kernels.table import HEADER
from evenflow.operator.operator import Late, Shown
from evenflow.operator.order import event_time
from evenflow.operator.tabled import Expiring
from evenflow.state.deadlines import Deadlines
from evenflow.state.keys import TracedKeys, identity, key_columns, to_array
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.stream.values import has_floats

DUE = HEADER
"""Word of a key: from which watermark on it is forgotten."""


class Dedup(Expiring, Late, Shown):
    """The first row of each key, in input order. Selectivity: new keys / rows. Cost: O(rows + keys forgotten).

    keys: columns that make rows equal; null equals null, NaN equals NaN. time: event-time column by which keys are forgotten, or None:
    they are kept for ever. A key is forgotten when the watermark has passed its first row's time + delay_us. Port 1: with `time`, the
    rows that came with a time < tick.before. Where `time` is one of the keys, a row whose time is null is never late, and its key is kept
    for ever, as in Spark: rows that equal it may always come. State: 32 bytes per key held, 64 with `time`.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], *, time: str | None = None, delay_us: int = 0) -> None:
        self._keys, self._time, self._delay = tuple(keys), time, delay_us
        self._nulls_stay = time in self._keys
        self._table = PagedTable(np.zeros(0 if time is None else 1, np.int64))
        self._deadlines, self._traced = Deadlines(), TracedKeys(schema, keys)
        self.late_rows = 0
        self.schemas: tuple[pa.Schema, ...] = (schema, schema)
        self._none = Rows.empty(schema, keyed=True)
        # Where rows that are equal in all columns come as they arrive, the first one's zeros would be any replica's own.
        self._plain = set(keys) == set(schema.names) and any(has_floats(field.type) for field in schema)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        first, late = (self._none, self._none) if rows.count == 0 else self._fold(rows, tick)
        self._forget(tick)
        return first, late

    def _fold(self, rows: Rows, tick: Tick) -> tuple[Rows, Rows]:
        """(first rows of keys, late rows)."""
        late, times = self._none, np.empty(0, np.int64)
        if self._time is not None:
            times = event_time(rows.batch.column(self._time))
            too_old = times < tick.before
            if self._nulls_stay and too_old.any():
                too_old &= times != NO_WATERMARK
            if too_old.any():
                late, kept = rows.take(np.flatnonzero(too_old)), np.flatnonzero(~too_old)
                rows, times = rows.take(kept), times[kept]
                self.late_rows += late.count
        if rows.count == 0:
            return self._none, late
        hashes, checks = identity(rows, self._keys)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=tick.epoch)
        firsts = touched.rows[touched.new]
        if self._time is not None and firsts.size:
            slots, due = touched.slots[touched.new], times[firsts] + (self._delay + 1)
            if self._nulls_stay:
                due[times[firsts] == NO_WATERMARK] = END_OF_STREAM
            self._table.words[slots, DUE] = due
            self._deadlines.set(slots, due)
        if self._plain:
            names = rows.batch.schema.names
            plain = pa.RecordBatch.from_arrays(key_columns(rows.batch, names, firsts), schema=rows.batch.schema)
            return Rows(plain, rows.partition[firsts], None if rows.hash is None else rows.hash[firsts]), late
        return (rows if firsts.size == rows.count else rows.take(firsts)), late

    def _forget(self, tick: Tick) -> None:
        slots = self._deadlines.take(tick.watermark)
        slots = slots[self._table.held(slots)]
        if slots.size:
            # A slot may hold another key by now, whose own deadline is set as well.
            slots = slots[self._table.words[slots, DUE] <= tick.watermark]
            self._table.remove(slots, epoch=tick.epoch)

    @property
    def shown(self) -> pa.Schema:
        """The keys that have been. _kept_until: the watermark up to which, null if that of their
        first row's time is not known."""
        kept = [] if self._time is None else [pa.field("_kept_until", self.schemas[0].field(self._time).type)]
        return pa.schema([*self._traced.fields, *kept])

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        arrays = self._traced.read(self._table.words, slots)
        if self._time is not None:
            until = self._table.words[slots, DUE] - 1
            unknown = (until - self._delay == NO_WATERMARK) | (until + 1 == END_OF_STREAM)
            arrays.append(to_array(until, self.shown.field("_kept_until").type, unknown))
        return pa.RecordBatch.from_arrays(arrays, schema=self.shown)

    def _installed(self, slots: Int64s) -> None:
        if self._time is not None:
            self._deadlines.set(slots, self._table.words[slots, DUE])
