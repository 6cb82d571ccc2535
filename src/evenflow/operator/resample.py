"""Resample: the values of each key at regular times, interpolated between its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import floats_of, integers_of, nulls_of
from evenflow.kernels.table import HEADER
from evenflow.operator.operator import Shown
from evenflow.operator.tabled import Expiring
from evenflow.query.aggregates import How, resampled_schema, ways_of
from evenflow.state.deadlines import Deadlines
from evenflow.state.keys import KeptKeys, TracedKeys, identity, key_columns, to_array
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

LAST_TIME: Final = HEADER
"""Word of a key: the time of its last row. Its values follow."""


class Resample(Expiring, Shown):
    """For every multiple of `step_us` from the first row of a key to its last one: a row with the values at that time.

    Rows must come in order of event time. A time is put out with the first row of the key that reaches it. how: "linear" between the
    row before and the row after, null if either value is null; "previous", the value of the last row at or before. gap_us: where two
    rows are further apart nothing is put out between them, and a key is forgotten once the watermark is that far ahead of its last
    row; None: any distance. Rows without a time are left out. Of rows of equal time, the first gives the value at that time, the last
    the values after it. Output: keys, `time`, the columns (doubles if linear), in order of the rows that reached them. Cost: O(rows in +
    rows out). State: a row per key.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], time: str, step_us: int, columns: Sequence[str], how: How, gap_us: int | None = None
    ) -> None:  # fmt: skip
        self._keys, self._time, self._step, self._columns = tuple(keys), time, step_us, tuple(columns)
        self._ways, self._gap = ways_of(how, columns), gap_us
        self._kept, self._traced, self._given = KeptKeys(schema, columns), TracedKeys(schema, keys), schema
        self._table = PagedTable(np.zeros(1 + self._kept.words, np.int64), self._kept.object_types)
        self._deadlines = Deadlines()
        self.schemas: tuple[pa.Schema, ...] = (resampled_schema(schema, keys, time, columns, how),)
        self._none = Rows.empty(self.schemas[0], keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        missing = nulls_of(rows.batch.column(self._time))
        if missing.size:
            rows = rows.take(np.flatnonzero(missing == 0))
        out = self._none if rows.count == 0 else self._resample(rows, tick.epoch)
        if self._gap is not None:
            self._forget(tick, self._gap)
        return (out,)

    def _resample(self, rows: Rows, epoch: int) -> Rows:
        hashes, checks = identity(rows, self._keys)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=epoch)
        # Each key's rows one after the other, behind the row that is held of it.
        held = touched.slots[~touched.new]
        key = np.concatenate([np.flatnonzero(~touched.new), touched.ordinals])
        line = np.argsort(key, kind="stable")
        times = np.concatenate([self._table.words[held, LAST_TIME], integers_of(rows.batch.column(self._time))])[line]
        follows = np.zeros(line.size, np.bool_)
        follows[1:] = key[line][1:] == key[line][:-1]
        before = np.concatenate([times[:1], times[:-1]])
        if self._gap is not None:
            follows &= times - before <= self._gap
        # How many multiples of the step each row is the first to reach: the first row of a key only its own time.
        last = times // self._step
        counts = np.where(follows, last - before // self._step, times % self._step == 0)
        counts[line < held.size] = 0
        reached = np.repeat(np.arange(line.size), counts)
        nth = np.arange(reached.size) - np.repeat(np.cumsum(counts) - counts, counts)
        at = (last[reached] - counts[reached] + 1 + nth) * self._step
        new = key_columns(rows.batch, self._columns, np.arange(rows.count))
        columns = self._values(new, held, line)
        exact = at == times[reached]
        left = np.where(exact, reached, reached - 1)
        values = [self._value(column, way, left, reached, at, times) for column, way in zip(columns, self._ways, strict=True)]
        self._keep(rows, touched.slots, touched.new, touched.ordinals)
        row = line[reached] - held.size
        order = np.argsort(row, kind="stable")
        row = row[order]
        stamps = to_array(at, rows.batch.schema.field(self._time).type, None)
        index = pa.array(order)
        arrays = [*key_columns(rows.batch, self._keys, row), stamps.take(index), *(value.take(index) for value in values)]
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0]), rows.partition[row], hashes[row])

    def _values(self, new: list[pa.Array], held: Int64s, line: Int64s) -> list[pa.Array]:
        """The columns of the held rows and the new ones, each key's one after the other."""
        kept = self._kept.read(self._table.words, HEADER + 1, self._table.objects, held)
        index = pa.array(line)
        return [pa.concat_arrays(pair).take(index) for pair in zip(kept, new, strict=True)]

    def _value(self, column: pa.Array, way: str, left: Int64s, right: Int64s, at: Int64s, times: Int64s) -> pa.Array:
        if way != "linear":
            return column.take(pa.array(left))
        values, missing = floats_of(column), nulls_of(column).view(np.bool_)
        span = times[right] - times[left]
        share = np.divide(at - times[left], span, out=np.zeros(at.size), where=span != 0)
        with np.errstate(invalid="ignore", over="ignore"):  # Infinities, and whatever lies where a value is null.
            made = np.where(left == right, values[right], values[left] + (values[right] - values[left]) * share)
        made[np.isnan(made)] = np.nan  # the one NaN, whatever made it
        return pa.array(made, mask=missing[left] | missing[right] if missing.size else None)

    def _keep(self, rows: Rows, slots: Int64s, new: npt.NDArray[np.bool_], ordinals: Int64s) -> None:
        """Hold the last row of each key."""
        last = np.empty(slots.size, np.int64)
        last[ordinals] = np.arange(ordinals.size)
        index = pa.array(last)
        self._table.words[slots, LAST_TIME] = integers_of(rows.batch.column(self._time))[last]
        self._kept.keep(
            self._table.words, HEADER + 1, self._table.objects, slots, [rows.batch.column(c).take(index) for c in self._columns]
        )
        if self._gap is not None and new.any():
            self._deadlines.set(slots[new], self._table.words[slots[new], LAST_TIME] + (self._gap + 1))

    def _forget(self, tick: Tick, gap: int) -> None:
        slots = self._deadlines.take(tick.watermark)
        slots = slots[self._table.held(slots)]
        due = self._table.words[slots, LAST_TIME] + (gap + 1)
        later = due > tick.watermark
        self._deadlines.set(slots[later], due[later])
        if not later.all():
            self._table.remove(slots[~later], epoch=tick.epoch)

    @property
    def shown(self) -> pa.Schema:
        """The last row of each key."""
        return pa.schema([*self._traced.fields, *(self._given.field(name) for name in (self._time, *self._columns))])

    def show(self, partition: int) -> pa.RecordBatch:
        words, slots = self._table.words, self._table.slots_of(partition)
        times = to_array(np.ascontiguousarray(words[slots, LAST_TIME]), self._given.field(self._time).type, None)
        values = self._kept.read(words, HEADER + 1, self._table.objects, slots)
        return pa.RecordBatch.from_arrays([*self._traced.read(words, slots), times, *values], schema=self.shown)

    def _installed(self, slots: Int64s) -> None:
        if self._gap is not None:
            self._deadlines.set(slots, self._table.words[slots, LAST_TIME] + (self._gap + 1))
