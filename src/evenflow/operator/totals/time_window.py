"""TimeWindowAggregate: totals per key and event-time window, put out once when the watermark says that a window is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import integers_of
from evenflow.kernels.table import CHECK, EXTRA, HASH
from evenflow.operator.operator import Reaching
from evenflow.operator.totals.ordered_totals import EventOrder
from evenflow.operator.totals.window_totals import WindowTotals
from evenflow.operator.totals.windowing import windows_of
from evenflow.query.aggregates import NEWEST_ROWS, WINDOW_START, AggCall, TimeWindow
from evenflow.state.keys import describe, identity
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE_FIELD, changed_rows
from evenflow.stream.epoch import Tick, behind
from evenflow.stream.rows import Rows

_ROWS_COLUMN: Final = "rows(*)"
_NONE: Final[Int64s] = np.empty(0, np.int64)


class TimeWindowAggregate(WindowTotals, Reaching):
    """Tumbling and sliding windows. Cost: O(rows x windows per row + results).

    schema: of the input, rows with the window's column, or with `partial` the output of a `Combine` of the same window.
    Port 0: keys, window_start, window_end, one column per call; per partition sorted by (window, hash, check). A window is put out in the
    epoch in which window_end <= tick.watermark, and in later ones in which rows come into it (`window.lateness_us`); in update mode in
    every epoch in which rows come into it, and only then; in changelog mode then as the row that it was and the row that it is, if they
    differ. It is forgotten when window_end + lateness_us <= tick.watermark. Port 1: late
    rows as they came: all windows they belong to were forgotten at tick.before. `late_rows` counts them. A row without a time belongs to
    no window.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        calls: Sequence[AggCall],
        *,
        window: TimeWindow,
        partial: bool = False,
        time: str | None = None,
        order: EventOrder | None = None,
    ) -> None:
        super().__init__(schema, keys, calls, window, time, partial=partial, order=order)
        self._window, self._partial = window, partial
        self._open: dict[int, list[Int64s]] = {}
        self._touched = _NONE
        self._before: tuple[Int64s, pa.RecordBatch] | None = None
        self._result_schema = self.schemas[0]
        if window.mode == "changelog":
            self.schemas = (self._result_schema.append(CHANGE_FIELD), schema)

    def oldest_us(self, watermark: int) -> int:
        return watermark - self._window.size_us - self._window.lateness_us

    def _fold(self, rows: Rows, tick: Tick) -> Rows:
        before = behind(tick.before, self._window.lateness_us)
        index, starts, late = self._windows_of(rows, before)
        left_out = np.flatnonzero(late)
        found = rows.take(left_out)
        if left_out.size:
            counted = self._partial and _ROWS_COLUMN in rows.batch.schema.names
            self.late_rows += self._rows_of(found.batch, before) if counted else left_out.size
        if index.size == 0:
            return found
        if index.size != rows.count or not np.array_equal(index[[0, -1]], (0, rows.count - 1)):
            rows = rows.take(index)
        hashes, checks = identity(rows, self._keys)
        if self._window.mode == "changelog":
            held = self._table.seek(hashes, checks, starts)
            held = np.unique(held[held >= 0])
            self._before = held, self._read(held)
        touched = self._add(rows, hashes, checks, starts, self._totals.bind(rows.batch), tick.epoch)
        if not self._window.final:
            self._touched = touched.slots.copy()
        return found

    def _rows_of(self, late: pa.RecordBatch, before: int) -> int:
        """How many rows have no other windows. late: partial results of those that were forgotten at `before`.

        A row is counted in each of its windows, n that follow each other, so every n-th window has it once. From the newest window on that
        may be the first one of a row that is late, every n-th is looked at. Where `slide_us` does not divide `size_us`, some rows have n
        windows and others n - 1: then it is said how many have no later one.
        """
        if NEWEST_ROWS in late.schema.names:
            return int(integers_of(late.column(NEWEST_ROWS)).sum())
        window = self._window
        newest = before - window.size_us
        newest -= (newest - window.start_us) % window.slide_us
        first = newest - window.size_us + window.slide_us
        starts = integers_of(late.column(WINDOW_START))
        rows = integers_of(late.column(_ROWS_COLUMN))
        return int(rows[(starts <= first) & ((first - starts) % window.size_us == 0)].sum())

    def _windows_of(self, rows: Rows, before: int) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
        if self._partial:
            starts = integers_of(rows.batch.column(WINDOW_START))
            late = starts + self._window.size_us <= before
            index = np.flatnonzero(~late)
            return index, np.ascontiguousarray(starts[index]), late.view(np.uint8)
        return windows_of(rows.batch.column(self._window.column), self._window, before)

    def _opened(self, slots: Int64s) -> None:
        starts = self._table.words[slots, EXTRA]
        order = np.argsort(starts, kind="stable")
        found, first = np.unique(starts[order], return_index=True)
        for start, some in zip(found.tolist(), np.split(slots[order], first[1:]), strict=True):
            self._open.setdefault(start, []).append(some)

    def _emit(self, tick: Tick) -> Rows:
        """Results of the windows that are complete, or have changed; those that nothing can change any more are forgotten."""
        over = behind(tick.watermark, self._window.lateness_us)
        due = [start for start in self._open if start + self._window.size_us <= over]
        gone = np.concatenate([_NONE, *(part for start in due for part in self._open.pop(start))])
        slots = gone if self._window.final else self._changed(tick, gone)
        out = Rows.empty(self.schemas[0], keyed=True) if slots.size == 0 else self._put_out(slots)
        if gone.size:
            self._table.remove(gone, epoch=tick.epoch)
        return out

    def _changed(self, tick: Tick, gone: Int64s) -> Int64s:
        """int64: the slots of windows into which rows have come in this epoch and, in append mode, that are complete, and for these or
        for the first time. gone: those that are about to be forgotten, which are in no list any more."""
        touched, self._touched = self._touched, _NONE
        if self._window.mode != "append":
            return touched
        size_us = self._window.size_us
        held = [part for start, parts in self._open.items() if tick.before < start + size_us <= tick.watermark for part in parts]
        ends = self._table.words[gone, EXTRA] + size_us
        again = touched[self._table.words[touched, EXTRA] + size_us <= tick.before]
        return np.unique(np.concatenate([_NONE, *held, gone[ends > tick.before], again]))

    def _put_out(self, slots: Int64s) -> Rows:
        """The windows at these slots as they are now or, in changelog mode, what the epoch has changed in them."""
        words = self._table.words
        order = np.lexsort((words[slots, CHECK].view(np.uint64), words[slots, HASH].view(np.uint64), words[slots, EXTRA]))
        slots = slots[order]
        batch, before, self._before = self._read(slots), self._before, None
        if before is not None:
            held, old = before
            of_old = np.flatnonzero(np.isin(slots, held))
            old = old.take(pa.array(np.searchsorted(held, slots[of_old])))
            batch, groups = changed_rows(old, of_old, batch, np.arange(slots.size), len(self._keys) + 2)
            slots = slots[groups]
        return Rows(batch, self._table.owner_of(slots), words[slots, HASH].view(np.uint64))

    def _read(self, slots: Int64s) -> pa.RecordBatch:
        """The windows at these slots."""
        words = self._table.words
        keys = self._keys_of(slots)
        starts = np.ascontiguousarray(words[slots, EXTRA])
        results = self._results_at(slots, lambda group: describe(keys, self._keys, group))
        bounds = self._bounds(starts, starts + self._window.size_us)
        return pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=self._result_schema)

    @property
    def shown(self) -> pa.Schema:
        """The windows that are open, as they would be put out now."""
        return self._result_schema

    def show(self, partition: int) -> pa.RecordBatch:
        return self._read(self._table.slots_of(partition))

    def drop(self, partition: int) -> None:
        for start in list(self._open):
            kept = [part[self._table.owner_of(part) != partition] for part in self._open[start]]
            self._open[start] = [part for part in kept if part.size]
            if not self._open[start]:
                del self._open[start]
        self._table.drop(partition)
