"""Aggregate: running totals per key. Every epoch puts out the current totals of the keys that it touched, or what it has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from evenflow.kernels.hash import Hashes, hash_columns
from evenflow.kernels.table import HEADER, gather
from evenflow.operator.operator import Shown, Timeless
from evenflow.operator.tabled import Tabled
from evenflow.operator.totals.text_totals import fold_objects, object_array, total_of_none
from evenflow.operator.totals.totals import Totals
from evenflow.operator.totals.user_states import timed
from evenflow.query.aggregates import ROWS, AggCall, result_schema
from evenflow.state.keys import TracedKeys, describe, identity, key_columns
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE_FIELD, changed_rows
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Aggregate(Tabled, Timeless, Shown):
    """Running totals (update mode). Selectivity: distinct keys of the epoch / rows. Cost: O(rows), whatever the state's size.

    schema: of the input, rows or with `partial` the output of a `Combine`. keys: the segment's key, whose hash the rows carry; with
    no keys there is one group. Output: keys as in the epoch's first row of each key, then one column per call; per partition in
    order of first appearance. Raises ArithmeticOverflow, naming the key.

    changes: put out a changelog: of each key whose totals are others than before the epoch, the row as it was and the row as it is. Without
    keys the one group is there even if it has no rows, as in batch Spark: if none has come by the last epoch, its totals come then.
    retracts: the input is the `Combine` of a changelog, so that a key may lose all its rows, and is forgotten then.
    """

    shares = True

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        calls: Sequence[AggCall],
        *,
        partial: bool = False,
        time: str | None = None,
        changes: bool = False,
        retracts: bool = False,
    ) -> None:
        self._keys, self._calls = tuple(keys), tuple(calls)
        self._changes, self._retracts, self._traced = changes, retracts, TracedKeys(schema, keys)
        self._totals = Totals(calls, schema, first=HEADER, partial=partial, every_cell=retracts)
        self._rows_at = HEADER + self._totals.at(ROWS) if retracts else 0
        self._loose = [call for call in calls if is_object(self._totals, call)]
        self._table = PagedTable(self._totals.template, [call.type for call in self._loose], timed(self._loose))
        self._results = result_schema(schema, keys, calls, None, time)
        self.schemas: tuple[pa.Schema, ...] = (self._results.append(CHANGE_FIELD) if changes else self._results,)
        self._nothing = (Rows.empty(self.schemas[0], keyed=True),)
        self._stays = changes and not self._keys
        if self._stays:
            self.timeless = False

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return self._of_no_rows() if self._stays and tick.ends and self._table.count == 0 else self._nothing
        hashes, checks = identity(rows, self._keys)
        before = self._before(hashes, checks) if self._changes else None
        bound = self._totals.bind(rows.batch)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=tick.epoch, ops=bound.ops, values=bound.values, nulls=bound.nulls)
        for call, column in zip(self._loose, self._table.objects, strict=True):
            fold_objects(call, column, rows.batch, touched)
        keys = key_columns(rows.batch, self._keys, touched.rows)
        results = read_results(self._totals, self._table, self._loose, touched.slots, lambda group: describe(keys, self._keys, group))
        batch, at = pa.RecordBatch.from_arrays([*keys, *results], schema=self._results), touched.rows
        if before is not None:
            batch, groups = self._changed(batch, touched.slots, *before)
            at = at[groups]
            self._forget(touched.slots, tick.epoch)
        return (Rows(batch, rows.partition[at], hashes[at]),)

    def _of_no_rows(self) -> tuple[Rows, ...]:
        """The totals of no rows, which come into the result. The segment has one partition."""
        words = np.ascontiguousarray(self._totals.template[:, None])
        results = self._totals.results(words, str)
        arrays = [total_of_none(call) if array is None else array for call, array in zip(self._calls, results, strict=True)]
        old = pa.RecordBatch.from_pylist([], schema=self._results)
        now = pa.RecordBatch.from_arrays(arrays, schema=self._results)
        batch, _ = changed_rows(old, np.empty(0, np.int64), now, np.zeros(1, np.int64), 0)
        return (Rows(batch, np.zeros(1, np.int32), hash_columns(batch, ())),)

    def _before(self, hashes: Hashes, checks: Hashes) -> tuple[Int64s, list[pa.Array]]:
        """Slots of those of the keys that have a result, ascending, and their results."""
        slots = self._table.seek(hashes, checks, np.zeros(hashes.size, np.int64))
        slots = np.unique(slots[slots >= 0])
        slots = slots[self._rows(slots) > 0]
        return slots, read_results(self._totals, self._table, self._loose, slots, str)

    def _changed(self, batch: pa.RecordBatch, slots: Int64s, held: Int64s, results: list[pa.Array]) -> tuple[pa.RecordBatch, Int64s]:
        """(changes, the number in `slots` of the key of each). batch: what is at `slots` now. results: what was at `held`."""
        of_old, of_new = np.flatnonzero(np.isin(slots, held)), np.flatnonzero(self._rows(slots) > 0)
        there, place = pa.array(of_old), pa.array(np.searchsorted(held, slots[of_old]))
        keys = [key.take(there) for key in batch.columns[: len(self._keys)]]
        old = pa.RecordBatch.from_arrays([*keys, *(result.take(place) for result in results)], schema=self._results)
        return changed_rows(old, of_old, batch.take(pa.array(of_new)), of_new, len(self._keys))

    def _rows(self, slots: Int64s) -> Int64s:
        """int64: how many rows the keys have; at least one where none is ever taken back, and where there is no key."""
        return self._table.words[slots, self._rows_at] if self._retracts and self._keys else np.ones(slots.size, np.int64)

    def _forget(self, slots: Int64s, epoch: int) -> None:
        """Keys all of whose rows were taken back."""
        if self._retracts and (empty := slots[self._rows(slots) == 0]).size:
            self._table.remove(empty, epoch=epoch)

    @property
    def shown(self) -> pa.Schema:
        """The totals of each key. Without keys, the totals alone."""
        return pa.schema([*self._traced.fields, *(self._results.field(call.name) for call in self._calls)])

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        slots = slots[self._rows(slots) > 0]
        keys = self._traced.read(self._table.words, slots)
        results = read_results(self._totals, self._table, self._loose, slots, str)
        return pa.RecordBatch.from_arrays([*keys, *results], schema=self.shown)


def is_object(totals: Totals, call: AggCall) -> bool:
    """Whether a call is kept as a Python object."""
    return any(not cell.words and cell.call == call.name for cell in totals.cells)


def read_results(
    totals: Totals, table: PagedTable, loose: Sequence[AggCall], slots: Int64s, key_of: Callable[[int], str]
) -> list[pa.Array]:
    """One column per call for the rows at `slots`. loose: the calls that the table's first object columns belong to."""
    columns = dict(zip((call.name for call in loose), table.objects, strict=False))
    slots = np.ascontiguousarray(slots)
    results = totals.results(gather(table.words, slots, totals.columns), key_of)
    return [
        object_array(columns[call.name], slots, call.type) if array is None else array
        for call, array in zip(totals.calls, results, strict=True)
    ]
