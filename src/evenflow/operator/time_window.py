"""TimeWindowAggregate: totals per key and event-time window, put out once when the watermark says that a window is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.aggregate import is_object, read_results
from evenflow.operator.kernels.columns import integers_of, nulls_of
from evenflow.operator.kernels.table import CHECK, EXTRA, HASH, HEADER
from evenflow.operator.kernels.windows import assign_windows
from evenflow.operator.keys import KeptKeys, describe, identity, key_columns, to_array
from evenflow.operator.pages import PagedTable, Touched, frozen
from evenflow.operator.tabled import Tabled
from evenflow.operator.text_totals import fold_objects
from evenflow.operator.totals import Totals
from evenflow.query.aggregates import WINDOW_START, AggCall, TimeWindow, result_schema
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

Int64s = npt.NDArray[np.int64]
_ROWS_COLUMN: Final = "rows(*)"


class TimeWindowAggregate(Tabled):
    """Tumbling and sliding windows (append mode). Cost: O(rows x windows per row + results).

    schema: of the input, rows with the window's column, or with `partial` the output of a `Combine` of the same window.
    Port 0: keys, window_start, window_end, one column per call; a window is put out in the epoch in which window_end <=
    tick.watermark; per partition sorted by (window, hash, check). Port 1: late rows as they came: every window they belong to
    had window_end <= tick.before. `late_rows` counts them. A row without a time belongs to no window.
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
    ) -> None:
        self._keys, self._window, self._partial = tuple(keys), window, partial
        self._totals = Totals(calls, schema, first=HEADER, partial=partial)
        self._loose = [call for call in calls if is_object(self._totals, call)]
        self._kept = KeptKeys(schema, keys)
        self._keys_at = HEADER + self._totals.template.size
        template = np.concatenate([self._totals.template, np.zeros(self._kept.words, np.int64)])
        self._table = PagedTable(template, [*(call.type for call in self._loose), *self._kept.object_types])
        self._open: dict[int, list[Int64s]] = {}
        self.late_rows = 0
        self.schemas: tuple[pa.Schema, ...] = (result_schema(schema, keys, calls, window, time), schema)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        late = rows if rows.count == 0 else self._fold(rows, tick)
        return self._emit(tick), late

    def _fold(self, rows: Rows, tick: Tick) -> Rows:
        """Fold the rows that are not late, and return those that are."""
        index, starts, late = self._windows_of(rows, tick.before)
        left_out = np.flatnonzero(late)
        found = rows.take(left_out)
        if left_out.size:
            counted = self._partial and _ROWS_COLUMN in rows.batch.schema.names
            self.late_rows += int(integers_of(found.batch.column(_ROWS_COLUMN)).sum()) if counted else left_out.size
        if index.size == 0:
            return found
        if index.size != rows.count or not np.array_equal(index[[0, -1]], (0, rows.count - 1)):
            rows = rows.take(index)
        hashes, checks = identity(rows, self._keys)
        bound = self._totals.bind(rows.batch)
        touched = self._table.fold(
            rows.partition, hashes, checks,
            epoch=tick.epoch, extra=starts, ops=bound.ops, values=bound.values, nulls=bound.nulls,
        )  # fmt: skip
        for call, column in zip(self._loose, self._table.objects, strict=False):
            fold_objects(call, column, rows.batch, touched)
        self._open_windows(rows, touched)
        return found

    def _windows_of(self, rows: Rows, before: int) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
        if self._partial:
            starts = integers_of(rows.batch.column(WINDOW_START))
            late = starts + self._window.size_us <= before
            index = np.flatnonzero(~late)
            return index, np.ascontiguousarray(starts[index]), late.view(np.uint8)
        times = rows.batch.column(self._window.column)
        return assign_windows(frozen(integers_of(times)), nulls_of(times), self._window.size_us, self._window.slide_us, before)

    def _open_windows(self, rows: Rows, touched: Touched) -> None:
        """Keep the keys of new rows of the table, and remember them by window."""
        new = np.ascontiguousarray(touched.slots[touched.new])
        if new.size == 0:
            return
        columns = key_columns(rows.batch, self._keys, touched.rows[touched.new])
        self._kept.keep(self._table.words, self._keys_at, self._table.objects[len(self._loose) :], new, columns)
        self._remember(new)

    def _remember(self, slots: Int64s) -> None:
        starts = self._table.words[slots, EXTRA]
        for start in np.unique(starts).tolist():
            self._open.setdefault(start, []).append(slots[starts == start])

    def _emit(self, tick: Tick) -> Rows:
        """Results of the windows that are complete, which are forgotten."""
        due = sorted(start for start in self._open if start + self._window.size_us <= tick.watermark)
        if not due:
            return Rows.empty(self.schemas[0], keyed=True)
        slots = np.concatenate([part for start in due for part in self._open.pop(start)])
        words = self._table.words
        hashes = words[slots, HASH].view(np.uint64)
        slots = slots[np.lexsort((words[slots, CHECK].view(np.uint64), hashes, words[slots, EXTRA]))]
        hashes = words[slots, HASH].view(np.uint64)
        keys = self._kept.read(words, self._keys_at, self._table.objects[len(self._loose) :], slots)
        starts = np.ascontiguousarray(words[slots, EXTRA])
        results = read_results(self._totals, self._table, self._loose, slots, lambda group: describe(keys, self._keys, group))
        kind = self.schemas[0].field(len(keys)).type
        bounds = [to_array(edge, kind, None) for edge in (starts, starts + self._window.size_us)]
        batch = pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=self.schemas[0])
        out = Rows(batch, self._table.owner_of(slots), hashes)
        self._table.remove(slots, epoch=tick.epoch)
        return out

    def install(self, partition: int, state: bytes) -> None:
        self._remember(self._table.install(partition, state))

    def drop(self, partition: int) -> None:
        for start in list(self._open):
            kept = [part[self._table.owner_of(part) != partition] for part in self._open[start]]
            self._open[start] = [part for part in kept if part.size]
            if not self._open[start]:
                del self._open[start]
        self._table.drop(partition)
