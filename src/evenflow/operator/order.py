"""Order: rows leave in event-time order, behind the watermark (protocol E8).

The buffer is a list of parts, each sorted by event time over all partitions of the site, so what a watermark releases is a prefix of
every part (see `runs`). Nothing is done per partition, and an epoch that releases nothing costs its own rows. Parts never change, so a
snapshot is a list.

A null event time is before all others, as `ORDER BY` in batch Spark sorts it. So it is released with the first watermark, and is
late once there has been one: whatever is not late comes out exactly as batch Spark would order it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import TypeMismatch, UnknownColumn
from evenflow.operator.holding import Holding
from evenflow.operator.operator import Late, Reaching, Shown
from evenflow.operator.runs import Part, Piece, Runs, joined
from evenflow.state.apart import NOWHERE_AT_ALL, Lying
from evenflow.state.held_changes import HeldChanges
from evenflow.state.held_rows import Captured, Frozen, divide_rows, picked, rows_from, rows_of, rows_to_bytes
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from evenflow.stream.values import as_bits, comparable, has_floats, plain_values


class Order(Shown, Late, Holding, Reaching):
    """Buffer rows until the watermark has passed them; then release them in order of (event time, tie-break, arrival).

    time: event-time column, timestamp; null is before all others. tie_break: columns that order rows of equal time, ascending,
    nulls first, NaN last, -0.0 equal to 0.0. Ports: 0 the rows with time < watermark (END_OF_STREAM: all), 1 the rows that came
    with time < `tick.before`, in input order; `late_rows` counts them. Selectivity 1 over the life of a stream. Cost: O(rows in +
    rows out), amortised.
    """

    def __init__(self, time: str, tie_break: Sequence[str], schema: pa.Schema, box: str = "order") -> None:
        for name in (time, *tie_break):
            if name not in schema.names:
                raise UnknownColumn(f"box {box!r} orders by {name!r}, but its input has {', '.join(schema.names)}")
        if not pa.types.is_timestamp(schema.field(time).type):
            raise TypeMismatch(f"box {box!r}: event time {time!r} is {schema.field(time).type}: cast it to timestamp")
        self.schemas: tuple[pa.Schema, ...] = (schema, schema)
        self._schema, self._time, self._tie_break = schema, time, tuple(tie_break)
        self._runs = Runs()
        self._none = Rows.empty(schema, keyed=True)
        self._frozen: _Frozen | None = None
        self._dropped = False
        self.late_rows = 0
        self._numbered = 0
        self._changes = HeldChanges(lambda: (self.frozen,))

    def oldest_us(self, watermark: int) -> int:
        return watermark

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        late = self._none
        self._changes.go_on()
        if self._dropped:
            # Once for all partitions that have left since the last epoch: copying for each of them would cost too much.
            self._runs.each(Part.without_dead)
            self._frozen, self._dropped = None, False
        if rows.count:
            if rows.hash is None:
                self._none.hash = None
            late = self._add(rows, tick.before)
            self._frozen = None
        return self._release(tick.watermark), late

    def _add(self, rows: Rows, before: int) -> Rows:
        """Buffer the rows that are in time as a new run and return the late ones."""
        time, late = event_time(rows.batch.column(self._time)), self._none
        too_old = time < before
        if too_old.any():
            late, in_time = rows.take(np.flatnonzero(too_old)), np.flatnonzero(~too_old)
            self.late_rows += late.count
            rows, time = rows.take(in_time), time[in_time]
        if rows.count:
            self._runs.add(Piece(rows, time, self._numbers(rows.count)))
        return late

    def _numbers(self, count: int) -> Int64s:
        """Of rows that come now."""
        self._numbered += count
        return np.arange(self._numbered - count, self._numbered)

    def _release(self, watermark: int) -> Rows:
        pieces = self._runs.release(watermark)
        if not pieces:
            return self._none
        self._frozen = None
        piece = joined(pieces)
        order = arrange(piece.rows.batch, piece.time, self._tie_break)
        return piece.rows if order is None else piece.rows.take(order)

    @property
    def frozen(self) -> _Frozen:
        """All rows as of now."""
        if self._frozen is None:
            self._frozen = _Frozen(tuple(self._runs.parts), self._tie_break)
        return self._frozen

    def capture(self, partition: int) -> Captured | None:
        return self.frozen.capture(partition)

    def install(self, partition: int, state: bytes) -> None:
        rows = rows_from(state, partition)
        numbers = self._numbers(rows.count)
        self._runs.add(Piece(rows, event_time(rows.batch.column(self._time)), numbers))
        self._frozen = None
        self._changes.installed(partition, numbers)

    def divide(self, states: Sequence[bytes], groups: npt.NDArray[np.int32]) -> dict[int, bytes]:
        return divide_rows(states, groups)

    def drop(self, partition: int) -> None:
        self._changes.forget(partition)
        self._runs.each(lambda part: part.without(partition))
        self._frozen, self._dropped = None, True

    @property
    def shown(self) -> pa.Schema:
        """The rows that wait for the watermark."""
        return self._schema

    def show(self, partition: int) -> pa.RecordBatch:
        return rows_of(self.capture(partition), partition, self._schema).batch

    def state_bytes(self) -> int:
        return sum(part.bytes for part in self._runs.parts) + self._changes.state_bytes()

    def partition_bytes(self, partitions: Int64s) -> Int64s:
        return sum([part.held_by(partitions) for part in self._runs.parts], np.zeros(partitions.size, np.int64))


@dataclass(frozen=True, slots=True)
class _Arranged:
    """Rows of some partitions, in order, one partition after the other. spans: by partition, where its rows begin and end. places: int64
    (n,), where they lie. number: int64 (n,), their imprints. rows: themselves; None: they are many, and only some may be wanted."""

    spans: dict[int, tuple[int, int]]
    places: Int64s
    number: Int64s
    rows: Rows | None


class _Frozen(Frozen):
    """The buffer, taken apart when first needed. _arranged: what was asked for last, since who asks for imprints wants the bytes next."""

    def __init__(self, parts: tuple[Part, ...], tie_break: tuple[str, ...]) -> None:
        self._parts, self._tie_break = parts, tie_break
        self._arranged = _Arranged({}, NOWHERE_AT_ALL, NOWHERE_AT_ALL, None)

    def counts(self) -> Iterable[Int64s]:
        return [part.counts for part in self._parts]

    def lying(self) -> Iterable[Lying]:
        return [Lying(part.rows.partition, part.start, dead=part.dead) for part in self._parts]

    @cached_property
    def _ties(self) -> list[pa.RecordBatch]:
        """The columns of each part that order rows of equal time."""
        return [part.rows.batch.select(list(self._tie_break)) for part in self._parts]

    def prepare(self, partitions: Sequence[int]) -> None:
        apart = self.take_apart()
        places = [apart.of(partition) for partition in partitions]
        ends = np.cumsum([mine.size for mine in places])
        starts = ends - [mine.size for mine in places]
        owner = np.repeat(np.arange(ends.size), ends - starts)
        spans = dict(zip(partitions, zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
        arranged = self._arrange(spans, np.concatenate(places), owner)
        self._arranged = replace(arranged, rows=self._rows(arranged.places) if owner.size else None)

    def _arrange(self, spans: dict[int, tuple[int, int]], places: Int64s, owner: Int64s | None) -> _Arranged:
        """By time, tie-break and arrival. places: by partition, and by arrival there. owner: number of the partition; None: it is one."""
        time = self._gathered([part.time for part in self._parts], places)
        order = np.argsort(time, kind="stable") if owner is None else np.lexsort((time, owner))
        if places.size and self._tie_break:
            moment = time[order]
            if owner is not None:  # The same for rows of one partition and time, else a later one.
                moment = np.cumsum((np.diff(moment, prepend=moment[0]) != 0) | (np.diff(owner[order], prepend=0) != 0))
            arranged = arrange(picked(self._ties, places[order]), moment, self._tie_break)
            order = order if arranged is None else order[arranged]
        return _Arranged(spans, places[order], self._gathered([part.number for part in self._parts], places)[order], None)

    def _gathered(self, arrays: Sequence[Int64s], places: Int64s) -> Int64s:
        """What an array for each part has at these places, in whatever order. Those of one partition are ascending, and may be many."""
        apart = self.take_apart()
        if (places[1:] >= places[:-1]).all():
            found: Int64s = apart.gather(arrays, places)
            return found
        ascending = np.sort(places)
        return apart.gather(arrays, ascending)[np.searchsorted(ascending, places)]

    def _rows(self, places: Int64s) -> Rows:
        batch = picked([part.rows.batch for part in self._parts], places)
        hashes = [part.rows.hash.view(np.int64) for part in self._parts if part.rows.hash is not None]
        mine = None if not hashes or len(hashes) < len(self._parts) else self._gathered(hashes, places).view(np.uint64)
        return Rows(batch, np.zeros(places.size, np.int32), mine)

    def _of(self, partition: int) -> tuple[_Arranged, slice]:
        if partition not in self._arranged.spans:
            places = self.take_apart().of(partition)
            self._arranged = self._arrange({partition: (0, places.size)}, places, None)
        return self._arranged, slice(*self._arranged.spans[partition])

    def imprints(self, partition: int) -> Int64s:
        arranged, mine = self._of(partition)
        return arranged.number[mine]

    def some_to_bytes(self, partition: int, which: Int64s) -> bytes:
        arranged, mine = self._of(partition)
        rows = self._rows(arranged.places[which]) if arranged.rows is None else arranged.rows.take(which + mine.start)
        return rows_to_bytes(rows)


def event_time(column: pa.Array) -> Int64s:
    """Microseconds of a timestamp column; null becomes NO_WATERMARK, before every other time."""
    time = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
    if time.null_count:
        time = time.fill_null(NO_WATERMARK)
    return time.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def arrange(batch: pa.RecordBatch, time: Int64s, tie_break: Sequence[str]) -> Int64s | None:
    """Row numbers in order of (time, tie_break, position), or None if the rows are in that order already. Of equal floats that with
    the least bits, -0.0, comes first: replicas that get rows as they arrive have one order, too.

    Only rows that share their time with another are compared by the tie-break.
    """
    order: Int64s | None = None
    if len(time) > 1 and (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
        time = time[order]
    same = np.flatnonzero(time[1:] == time[:-1]) if tie_break else np.empty(0, np.int64)
    if not len(same):
        return order
    tied = np.zeros(len(time), np.bool_)
    tied[same] = tied[same + 1] = True
    place = np.flatnonzero(tied)
    row = place if order is None else order[place]
    some = batch.take(pa.array(row))
    keys: list[Any] = [time[place], *(sort_key(some.column(name)) for name in tie_break)]
    keys += [sort_key(as_bits(some.column(name))) for name in tie_break if has_floats(some.schema.field(name).type)]
    names = [str(i) for i in range(len(keys))]
    table = pa.table([pa.array(key) if isinstance(key, np.ndarray) else key for key in keys], names=names)
    ranked = pc.sort_indices(table, sort_keys=[(name, "ascending", "at_start") for name in names]).to_numpy()
    order = np.arange(len(time)) if order is None else order
    order[place] = row[ranked]
    return order


def exact_keys(column: pa.Array) -> list[pa.Array | Int64s]:
    """Columns that Arrow sorts as `sort_key`, and of values that are equal in that and look different, -0.0 and 0.0, -0.0 first."""
    return [sort_key(column), *([sort_key(as_bits(column))] if has_floats(column.type) else [])]


def sort_key(column: pa.Array) -> pa.Array | Int64s:
    """A column that Arrow sorts, ascending and nulls first, as Spark sorts `column`: NaN above all, -0.0 equal to 0.0."""
    if pa.types.is_floating(column.type):
        # The bits of a float, as a signed integer, order positive floats; negative ones the other way round.
        value = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        value[np.isnan(value)] = np.nan
        bits = value.view(np.int64)
        key = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        return pa.array(key, mask=column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(column.type):
        values = [comparable(value) for value in plain_values(column)]
        rank = {value: i for i, value in enumerate(sorted(set(values)))}
        return np.array([rank[value] for value in values], np.int64)
    return column
