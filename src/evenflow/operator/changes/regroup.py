"""Regroup: totals that cannot be subtracted, of rows that come and go: made anew of what is left of the groups that an epoch has changed.

The greatest value of a group, its middle, or its different values follow from all its rows. So the rows are the state, each distinct one of
a group once, and the totals of a group that has changed are made of them twice: of the rows before the epoch, and of those after it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenflow.operator.changes.by_key import ByKey, Change
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.text_totals import total_of_none
from evenflow.query.aggregates import result_schema
from evenflow.query.regrouped import Regrouped
from evenflow.state.held_rows import join_rows
from evenflow.state.keys import key_columns
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE_FIELD, INSERT, all_say, changed_rows
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Regroup(ByKey):
    """See `query.regrouped.Regrouped`, which describes it. Cost: O(distinct rows of the groups that have changed).

    Without keys the one group is there at the end even if it has no rows, as in batch Spark.
    """

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], described: Regrouped) -> None:
        self._calls = described.calls
        names = list(dict.fromkeys([*keys, *(column for call in self._calls for column in call.columns)]))
        self._side = pa.schema([schema.field(name) for name in names])
        super().__init__(keys, [self._side], [names])
        self._arguments = [number for number, name in enumerate(names) if any(name in call.columns for call in self._calls)]
        # What it is given says that it is a changelog, so that sums of doubles are exact (`Totals`), and no row says that it goes.
        self._group = "_" + max([CHANGE_FIELD.name, *names], key=len)  # Longer than the name of any column beside it.
        inner = [self._side.field(number) for number in self._arguments]
        self._inner = pa.schema([pa.field(self._group, pa.int64()), *inner, CHANGE_FIELD])
        self._results = result_schema(schema, keys, self._calls, None, None)
        self.schemas: tuple[pa.Schema, ...] = (self._results.append(CHANGE_FIELD), schema)
        self._none, self._no_late = Rows.empty(self.schemas[0], keyed=True), Rows.empty(schema, keyed=True)
        self.timeless = bool(keys)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        made = self._none
        if rows.count:
            made = self._of_rows(rows, tick)
        if tick.ends and not self._keys and self._table.count == 0:
            made = join_rows([made, self._of_no_rows()], self.schemas[0]) if made.count else self._of_no_rows()
        return made, self._no_late

    def _of_rows(self, rows: Rows, tick: Tick) -> Rows:
        change = self._take_changes(rows, tick.epoch)
        made = self._made(change)
        self._settle(change, tick.epoch)
        return made

    def _of_no_rows(self) -> Rows:
        """The totals of no rows, which come into the result. The segment has one partition."""
        old = pa.RecordBatch.from_pylist([], schema=self._results)
        totals = [pa.array([0], pa.int64()) if call.function == "count" else total_of_none(call) for call in self._calls]
        none = pa.RecordBatch.from_arrays(totals, schema=self._results)
        batch, _ = changed_rows(old, np.empty(0, np.int64), none, np.zeros(1, np.int64), 0)
        return Rows(batch, np.zeros(1, np.int32), np.zeros(1, np.uint64))

    def _made(self, change: Change) -> Rows:
        heads, lead = change.keys()
        if not heads.size:
            return self._none
        at, slots = self._walk(heads, 0)
        before, after = (np.maximum(times, 0) for times in self._times(slots))
        keys = [self._column(0, number, lead) for number in range(len(self._keys))]
        keys = key_columns(pa.RecordBatch.from_arrays(keys, list(self._keys)), self._keys, np.arange(lead.size)) if self._keys else []
        tables = [self._totals(keys, at, slots, times) for times in (before, after)]
        (old, of_old), (new, of_new) = tables
        batch, groups = changed_rows(old, of_old, new, of_new, len(self._keys))
        words = self._table.words[lead[groups], 0].view(np.uint64)
        return Rows(batch, self._table.owner_of(lead[groups]), np.ascontiguousarray(words))

    def _totals(self, keys: list[pa.Array], at: Int64s, slots: Int64s, times: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """(results, the group of each) of rows that are there so often. at: int64, ascending, the group of each row."""
        index = np.repeat(np.arange(slots.size), times)
        if not index.size:
            return pa.RecordBatch.from_pylist([], schema=self._results), index
        groups, taken = at[index], pa.array(index)
        columns = [self._column(0, number, slots).take(taken) for number in self._arguments]
        batch = pa.RecordBatch.from_arrays([pa.array(groups), *columns, all_say(INSERT, index.size)], schema=self._inner)
        totals = Aggregate(self._inner, (self._group,), self._calls)
        (found,) = totals.process(Rows(batch, np.zeros(index.size, np.int32)), Tick(1, 1, 0, 0))
        of = found.batch.column(0).to_numpy()
        results = [column.take(pa.array(of)) for column in keys]
        return pa.RecordBatch.from_arrays([*results, *found.batch.columns[1:]], schema=self._results), of
