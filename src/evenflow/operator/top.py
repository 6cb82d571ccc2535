"""Top: the first n rows of each key and time window in a given order, put out when the window is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.kernels.columns import integers_of
from evenflow.operator.holding import Holding
from evenflow.operator.operator import Late, Shown
from evenflow.operator.order import exact_keys, sort_key
from evenflow.operator.totals.windowing import windows_of
from evenflow.query.aggregates import TimeWindow, top_schema
from evenflow.state.held_changes import HeldChanges
from evenflow.state.held_rows import (
    Captured,
    HeldRows,
    Numbered,
    bytes_by_partition,
    divide_rows,
    held_bytes,
    join_numbered,
    join_rows,
    rows_from,
    rows_of,
)
from evenflow.state.keys import identity, key_columns, to_array
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

MERGE_RUNS: Final = 8
"""Runs of one level that become one run of the next."""

START: Final = "_window_start"
"""Column of the held rows, the last one: the start of their window. With more underscores where the rows have one of that name."""


class Top(Late, Shown, Holding):
    """Per key and window the first `count` rows in the order of `by`; rows equal in that, by all their columns, ascending, nulls first.

    by: (column, descending). As in Spark, nulls are first in ascending and last in descending order, and NaN is above all numbers.
    Port 0: keys, window_start, window_end, rank (from 1), the other columns; a window is put out in the epoch in which window_end <=
    tick.watermark; per partition by (window_start, hash, check, rank). Port 1: late rows, as those of a time window. Rows that cannot be
    among the first any more are dropped at once within an epoch, and between epochs when runs of rows are merged. Cost: O(rows log
    rows) per epoch, each row kept is sorted O(log epochs) times. State: rows kept, `count` per key and window and up to 8 times that.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], window: TimeWindow, count: int, by: Sequence[tuple[str, bool]]
    ) -> None:  # fmt: skip
        self._keys, self._window, self._count, self._order = tuple(keys), window, count, tuple(by)
        self._start = START
        while self._start in schema.names:
            self._start = f"_{self._start}"
        self._held_schema = schema.append(pa.field(self._start, pa.int64()))
        self._numbered = 0
        self._rest = [name for name in schema.names if name not in keys]
        self._runs: list[tuple[int, Numbered]] = []
        self._frozen: HeldRows | None = None
        self._gone: set[int] = set()
        self._changes = HeldChanges(lambda: (self.frozen,))
        self.late_rows = 0
        self.schemas: tuple[pa.Schema, ...] = (top_schema(schema, keys, window), schema)
        self._none, self._no_late = Rows.empty(self.schemas[0], keyed=True), Rows.empty(schema, keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        self._changes.go_on()
        self._forget_gone()
        late = self._no_late if rows.count == 0 else self._add(rows, tick.before)
        return self._emit(tick.watermark), late

    def _add(self, rows: Rows, before: int) -> Rows:
        """Hold the first rows of the epoch, and return the late ones."""
        index, starts, late = windows_of(rows.batch.column(self._window.column), self._window, before)
        left_out = np.flatnonzero(late)
        self.late_rows += left_out.size
        if index.size:
            hashes, _ = identity(rows, self._keys)
            kept = Rows(rows.batch, rows.partition, hashes).take(index)
            batch = pa.RecordBatch.from_arrays([*kept.batch.columns, pa.array(starts)], schema=self._held_schema)
            self._push(0, self._first(self._as_held(Rows(batch, kept.partition, kept.hash))))
        return rows.take(left_out)

    def _as_held(self, rows: Rows) -> Numbered:
        """Rows that come now, with their numbers."""
        self._numbered += rows.count
        return Numbered.of(rows, np.arange(self._numbered - rows.count, self._numbered))

    def _push(self, level: int, rows: Numbered) -> None:
        """Hold a run, sorted by window; merge the youngest ones, so that levels descend."""
        self._runs.append((level, rows))
        self._frozen = None
        while len(self._runs) >= MERGE_RUNS and self._runs[-MERGE_RUNS][0] == self._runs[-1][0]:
            level = self._runs[-1][0] + 1
            merged = self._first(join_numbered([run for _, run in self._runs[-MERGE_RUNS:]], self._held_schema))
            self._runs[-MERGE_RUNS:] = [(level, merged)]

    def _first(self, rows: Numbered) -> Numbered:
        """The first rows of each key and window, by (window, hash, check, rank)."""
        order, rank = self._ranked(rows.rows)
        return rows.take(order[rank < self._count])

    def _ranked(self, rows: Rows) -> tuple[Int64s, Int64s]:
        """(row numbers in order, rank from 0 of each within its key and window)."""
        assert rows.hash is not None
        _, checks = identity(rows, self._keys)
        starts = self._starts(rows)
        columns: list[Any] = [starts, rows.hash, checks]
        placing = [("ascending", "at_start")] * 3
        for name, descending in self._order:
            columns.append(sort_key(rows.batch.column(name)))
            placing.append(("descending", "at_end") if descending else ("ascending", "at_start"))
        for column in rows.batch.columns:
            columns += exact_keys(column)
        placing += [("ascending", "at_start")] * (len(columns) - len(placing))
        names = [str(i) for i in range(len(columns))]
        table = pa.table([pa.array(c) if isinstance(c, np.ndarray) else c for c in columns], names=names)
        sort_keys = [(name, order, nulls) for name, (order, nulls) in zip(names, placing, strict=True)]
        order = pc.sort_indices(table, sort_keys=sort_keys).to_numpy().astype(np.int64)
        new = np.zeros(order.size, np.bool_)
        new[:1] = True
        for values in (starts, rows.hash, checks):
            ordered = values[order]
            new[1:] |= ordered[1:] != ordered[:-1]
        first = np.flatnonzero(new)
        return order, np.arange(order.size) - first[np.cumsum(new) - 1]

    def _starts(self, rows: Rows) -> Int64s:
        """Of the windows of held rows, microseconds."""
        return integers_of(rows.batch.column(self._start))

    def _emit(self, watermark: int) -> Rows:
        """The first rows of the windows that are complete, which are forgotten."""
        due, kept = [], []
        last = max(watermark - self._window.size_us, NO_WATERMARK)
        for level, run in self._runs:
            stop = int(np.searchsorted(self._starts(run.rows), last, side="right"))
            if stop:
                due.append(run.rows.take(np.arange(stop)))
            if stop < run.count:
                kept.append((level, run.take(np.arange(stop, run.count)) if stop else run))
        if not due:
            return self._none
        self._runs, self._frozen = kept, None
        return self._ready(join_rows(due, self._held_schema))

    def _ready(self, rows: Rows) -> Rows:
        """The first of these rows, as they are put out."""
        order, rank = self._ranked(rows)
        found = rank < self._count
        rows, ranks = rows.take(order[found]), rank[found] + 1
        starts, kind = self._starts(rows), self.schemas[0].field(len(self._keys)).type
        bounds = [to_array(edge, kind, None) for edge in (starts, starts + self._window.size_us)]
        keys = key_columns(rows.batch, self._keys, np.arange(rows.count))
        arrays = [*keys, *bounds, pa.array(ranks.astype(np.int32)), *(rows.batch.column(name) for name in self._rest)]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0]), rows.partition, rows.hash)

    def _forget_gone(self) -> None:
        """Once for all partitions that have left since the last epoch: copying for each of them would cost too much."""
        if self._gone:
            gone = np.array(sorted(self._gone), np.int32)
            runs = [(level, run.take(np.flatnonzero(~np.isin(run.rows.partition, gone)))) for level, run in self._runs]
            self._runs, self._frozen = [(level, run) for level, run in runs if run.count], None
            self._gone.clear()

    @property
    def frozen(self) -> HeldRows:
        """All rows as of now."""
        self._forget_gone()
        if self._frozen is None:
            self._frozen = HeldRows(tuple(run for _, run in self._runs), self._held_schema, self._first)
        return self._frozen

    def capture(self, partition: int) -> Captured | None:
        return self.frozen.capture(partition)

    def install(self, partition: int, state: bytes) -> None:
        self._forget_gone()
        rows = self._as_held(rows_from(state, partition))
        self._push(0, self._first(rows))
        self._changes.installed(partition, rows.number)

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        return divide_rows(states, groups)

    def drop(self, partition: int) -> None:
        self._changes.forget(partition)
        self._gone.add(partition)

    @property
    def shown(self) -> pa.Schema:
        """The first rows of the windows that are open, as they would be put out now."""
        return self.schemas[0]

    def show(self, partition: int) -> pa.RecordBatch:
        return self._ready(rows_of(self.capture(partition), partition, self._held_schema)).batch

    def state_bytes(self) -> int:
        return sum(held_bytes(run.rows) + run.number.nbytes for _, run in self._runs) + self._changes.state_bytes()

    def partition_bytes(self, partitions: Int64s) -> Int64s:
        held = bytes_by_partition([run for _, run in self._runs], partitions)
        held[np.isin(partitions, list(self._gone))] = 0
        return held
