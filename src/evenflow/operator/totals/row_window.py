"""RowWindowAggregate: totals over the last rows of each key, put out after every few of them (the Flux thesis' session monitor, 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels import ring
from evenflow.kernels.columns import frozen, nulls_of
from evenflow.kernels.fold import COUNT, FIRST, FSUM, HLL, ISUM, LAST, MAX, MIN, MOMENTS, ROWS
from evenflow.operator.operator import Shown
from evenflow.operator.tabled import Tabled
from evenflow.operator.totals.text_totals import object_total
from evenflow.operator.totals.totals import Totals, value_words
from evenflow.query.aggregates import AggCall, Cell, RowWindow, fixed_width, result_schema
from evenflow.state.keys import TracedKeys, describe, identity, key_columns, to_array, to_objects
from evenflow.state.pages import PagedTable, Touched
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

_OPS = {
    "rows": ROWS, "count": COUNT, "isum": ISUM, "fsum": FSUM, "min": MIN, "max": MAX, "moments": MOMENTS,
    "first": FIRST, "last": LAST, "hll": HLL,
}  # fmt: skip


class RowWindowAggregate(Tabled, Shown):
    """After every `window.slide` rows of a key: the totals over its last `window.history` rows, fewer at the beginning.

    Order-sensitive. Output: keys, the `time` column if one is given, one column per call, of the row that completed the slide,
    in the order of those rows. Sums are taken afresh, oldest row first, so a result is a function of the window's rows alone.
    Cost: O(rows + windows x history) in compiled code for fixed-width columns; min, max, first, last and collect_list of strings
    take a Python loop over the rows. State: `history` words per key and column.
    """

    shares = True

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        calls: Sequence[AggCall],
        *,
        window: RowWindow,
        partial: bool = False,
        time: str | None = None,
    ) -> None:
        assert not partial, "a row window has no partial results"
        self._keys, self._window, self._time, self._calls = tuple(keys), window, time, tuple(calls)
        self._given, self._traced = schema, TracedKeys(schema, keys)
        self._totals = Totals(calls, schema, first=0, apart=False)
        self._rings: list[tuple[str, int]] = []
        self._lists: list[tuple[AggCall, int]] = []
        self._loose: list[AggCall] = []
        for call in calls:
            if call.function == "collect_list" and fixed_width(call.type.value_type):
                self._lists.append((call, self._ring(schema, str(call.column), hashed=False)))
        self._ops = np.array([self._op(schema, cell) for cell in self._totals.cells if cell.words], np.int64)
        self._ops = self._ops.reshape(-1, 4)
        listed = {call.name for call, _ in self._lists}
        owners = {cell.call for cell in self._totals.cells if not cell.words}
        self._loose = [call for call in calls if call.name in owners - listed]
        size = 1 + len(self._rings) * ring.ring_words(window.history)
        kinds = [pa.list_(schema.field(call.column).type) for call in self._loose]
        self._table = PagedTable(np.zeros(size, np.int64), kinds)
        self.schemas: tuple[pa.Schema, ...] = (result_schema(schema, keys, calls, window, time),)

    def _ring(self, schema: pa.Schema, column: str, *, hashed: bool) -> int:
        kind = schema.field(column).type
        form = ring.HASHED if hashed else ring.FLOATS if pa.types.is_floating(kind) else ring.PLAIN
        if (column, form) not in self._rings:
            self._rings.append((column, form))
        return self._rings.index((column, form))

    def _op(self, schema: pa.Schema, cell: Cell) -> tuple[int, int, int, int]:
        at = int(self._totals.at(cell))
        if cell.column is None:
            return _OPS[cell.kind], at, 0, 0
        kept = self._ring(schema, cell.column, hashed=not fixed_width(schema.field(cell.column).type))
        return _OPS[cell.kind], at, kept, self._rings[kept][1]

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return (Rows.empty(self.schemas[0], keyed=True),)
        hashes, checks = identity(rows, self._keys)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=tick.epoch)
        words, at, lists, lengths = self._fold_rings(rows, touched)
        keys = key_columns(rows.batch, self._keys, at)
        results = self._totals.results(words, lambda group: describe(keys, self._keys, group))
        columns = {call.name: array for call, array in zip(self._calls, results, strict=True)}
        for which, (call, _) in enumerate(self._lists):
            columns[call.name] = list_array(lists[which, : at.size], lengths[which, : at.size], call.type)
        for call, history in zip(self._loose, self._table.objects, strict=True):
            columns[call.name] = self._fold_objects(call, history, rows, touched, at)
        times = [rows.batch.column(self._time).take(pa.array(at))] if self._time is not None else []
        batch = pa.RecordBatch.from_arrays([*keys, *times, *(columns[c.name] for c in self._calls)], schema=self.schemas[0])
        return (Rows(batch, rows.partition[at], hashes[at]),)

    def _fold_rings(self, rows: Rows, touched: Touched) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """(words of the totals (cells' words, w), completing rows (w,), lists, lengths)."""
        n, history, slide = rows.count, self._window.history, self._window.slide
        values = np.empty((len(self._rings), n), np.int64)
        nulls = np.zeros((len(self._rings), n), np.uint8)
        for i, (column, form) in enumerate(self._rings):
            values[i] = value_words(rows.batch.column(column), "hash" if form == ring.HASHED else "plain")
            if rows.batch.column(column).null_count:
                nulls[i] = nulls_of(rows.batch.column(column))
        most = min(n, n // slide + touched.slots.size)
        out = np.empty((most, self._totals.template.size), np.int64)
        at = np.empty(most, np.int64)
        lists = np.empty((len(self._lists), most if self._lists else 0, history), np.int64)
        lengths = np.empty((len(self._lists), most), np.int64)
        found = ring.fold_rings(
            self._table.words, touched.slot_of, frozen(values), frozen(nulls), history, slide, self._ops, self._totals.template,
            out, at, np.array([i for _, i in self._lists], np.int64), lists, lengths,
        )  # fmt: skip
        return np.ascontiguousarray(out[:found].T), at[:found], lists, lengths

    def _fold_objects(self, call: AggCall, column: npt.NDArray[Any], rows: Rows, touched: Touched, at: Int64s) -> pa.Array:
        """Keep the last values of each key as a tuple, and compute the call where a window is complete."""
        values = to_objects(rows.batch.column(call.column)).tolist()
        complete = set(at.tolist())
        results = []
        for row, (slot, value) in enumerate(zip(touched.slot_of.tolist(), values, strict=True)):
            held = ((column[slot] or ()) + (value,))[-self._window.history :]
            column[slot] = held
            if row in complete:
                results.append(object_total(call.function, held))
        return pa.array(results, call.type)

    @property
    def shown(self) -> pa.Schema:
        """What is kept of the last rows of each key: their values, oldest first. _rows: how many rows have come. A column of which only
        hashes are kept is not there."""
        kept = dict.fromkeys(
            [*(column for column, form in self._rings if form != ring.HASHED), *(str(call.column) for call in self._loose)]
        )
        lists = [pa.field(name, pa.list_(plain_type(self._given.field(name).type))) for name in kept]
        return pa.schema([*self._traced.fields, pa.field("_rows", pa.int64(), False), *lists])

    def show(self, partition: int) -> pa.RecordBatch:
        words, slots, history = self._table.words, self._table.slots_of(partition), self._window.history
        seen = np.ascontiguousarray(words[slots, ring.SEEN])
        made = {}
        for number, (column, form) in enumerate(self._rings):
            if form != ring.HASHED:
                first = ring.RING + number * ring.ring_words(history)
                made[column] = ring_lists(words, slots, seen, first, history, self.shown.field(column).type)
        for call, values in zip(self._loose, self._table.objects, strict=True):
            column = str(call.column)
            made[column] = pa.array([list(each or ()) for each in values[slots].tolist()], self.shown.field(column).type)
        names = self.shown.names[len(self._traced.fields) + 1 :]
        arrays = [*self._traced.read(words, slots), pa.array(seen), *(made[name] for name in names)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.shown)


def ring_lists(words: Int64s, slots: Int64s, seen: Int64s, first: int, history: int, kind: pa.DataType) -> pa.Array:
    """What is in the rings of one column, oldest first. seen: int64 (n,), rows of each key so far. first: word where the ring begins."""
    lengths = np.minimum(seen, history)
    owner = np.repeat(np.arange(slots.size), lengths)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    place = ((seen - lengths)[owner] + np.arange(owner.size) - offsets[owner]) % history
    values = np.ascontiguousarray(words[slots[owner], first + place])
    null = (words[slots[owner], first + history + (place >> 6)] >> (place & 63) & 1).astype(np.bool_)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), to_array(values, kind.value_type, null), type=kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Of the values, where it is of a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def list_array(values: Int64s, lengths: Int64s, kind: pa.DataType) -> pa.Array:
    """Arrow lists of fixed-width values. values: int64 (w, history), of which the first `lengths` of each row count."""
    inside = np.arange(values.shape[1]) < lengths[:, None]
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), to_array(values[inside], kind.value_type, None), type=kind)
