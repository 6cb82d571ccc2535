"""WindowTotals: the totals per key and window start that windows of event time and sessions are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from evenflow.kernels.hash import Hashes
from evenflow.kernels.table import HEADER
from evenflow.operator.operator import Late, Shown
from evenflow.operator.tabled import Tabled
from evenflow.operator.totals.aggregate import is_object, read_results
from evenflow.operator.totals.ordered_totals import EventOrder, OrderedTotals
from evenflow.operator.totals.text_totals import fold_objects
from evenflow.operator.totals.totals import Bound, Totals
from evenflow.operator.totals.user_states import timed
from evenflow.query.aggregates import AggCall, SessionWindow, TimeWindow, order_sensitive, result_schema
from evenflow.state.keys import KeptKeys, key_columns, to_array
from evenflow.state.pages import PagedTable, Touched
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class WindowTotals(Tabled, Late, Shown):
    """A row of the table per key and start (its `extra`): `own` words of the subclass, totals, and the key. late_rows: so far.

    schema: of the input; partial: it is that of a `Combine`. time: see `result_schema`. own: what they are in a new row, from HEADER on.
    order: of a window's rows, for the calls that depend on it by meaning, and where there is none of these, in its last bits. None: as
    they come.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        calls: Sequence[AggCall],
        window: TimeWindow | SessionWindow,
        time: str | None,
        *,
        partial: bool = False,
        own: Sequence[int] = (),
        order: EventOrder | None = None,
    ) -> None:
        self._keys, self._calls, first = tuple(keys), tuple(calls), HEADER + len(own)
        sorted_calls = [] if order is None else _in_order(calls, schema)
        self._ordered = None if order is None or not sorted_calls else OrderedTotals(sorted_calls, schema, order)
        self._totals = Totals([call for call in calls if call not in sorted_calls], schema, first=first, partial=partial)
        self._loose = [call for call in self._totals.calls if is_object(self._totals, call)]
        self._kept, self._keys_at = KeptKeys(schema, keys), first + self._totals.template.size
        template = np.concatenate([np.array(own, np.int64), self._totals.template, np.zeros(self._kept.words, np.int64)])
        in_order = [] if self._ordered is None else self._ordered.object_types
        types = [*(call.type for call in self._loose), *in_order, *self._kept.object_types]
        self._table = PagedTable(template, types, timed(self._loose))
        self._in_order = slice(len(self._loose), len(self._loose) + len(in_order))
        self.late_rows = 0
        self.schemas: tuple[pa.Schema, ...] = (result_schema(schema, keys, calls, window, time), schema)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        late = rows if rows.count == 0 else self._fold(rows, tick)
        return self._emit(tick), late

    def _fold(self, rows: Rows, tick: Tick) -> Rows:
        """Fold the rows that are not late, and return those that are."""
        raise NotImplementedError

    def _emit(self, tick: Tick) -> Rows:
        """What is due."""
        raise NotImplementedError

    def _opened(self, slots: Int64s) -> None:
        """There are new rows in the table."""
        raise NotImplementedError

    def _add(self, rows: Rows, hashes: Hashes, checks: Hashes, starts: Int64s, bound: Bound, epoch: int) -> Touched:
        """Fold rows into those of the table. hashes, checks: their `identity`. bound: to their columns."""
        touched = self._table.fold(
            rows.partition, hashes, checks, epoch=epoch, extra=starts, ops=bound.ops, values=bound.values, nulls=bound.nulls
        )
        for call, column in zip(self._loose, self._table.objects, strict=False):
            fold_objects(call, column, rows.batch, touched)
        if self._ordered is not None:
            self._ordered.keep(self._table.objects[self._in_order], rows.batch, touched)
        new = np.ascontiguousarray(touched.slots[touched.new])
        if new.size:
            columns = key_columns(rows.batch, self._keys, touched.rows[touched.new])
            self._kept.keep(self._table.words, self._keys_at, self._table.objects[self._in_order.stop :], new, columns)
            self._opened(new)
        return touched

    def _with_ordered(
        self, results: Sequence[pa.Array], slots: Int64s, group: Int64s, count: int, key_of: Callable[[int], str]
    ) -> list[pa.Array]:
        """One column per call. results: of those in the words of the table. slots, group: whose rows make up which of `count` results."""
        if self._ordered is None:
            return list(results)
        made = dict(zip((call.name for call in self._totals.calls), results, strict=True))
        in_order = self._ordered.results(self._table.objects[self._in_order], slots, group, count, key_of)
        made |= zip((call.name for call in self._ordered.calls), in_order, strict=True)
        return [made[call.name] for call in self._calls]

    def _results_at(self, slots: Int64s, key_of: Callable[[int], str]) -> list[pa.Array]:
        """One column per call for the rows at some slots."""
        results = read_results(self._totals, self._table, self._loose, slots, key_of)
        return self._with_ordered(results, slots, np.arange(slots.size), slots.size, key_of)

    def _keys_of(self, slots: Int64s) -> list[pa.Array]:
        return self._kept.read(self._table.words, self._keys_at, self._table.objects[self._in_order.stop :], slots)

    def _bounds(self, *edges: Int64s) -> list[pa.Array]:
        """Starts and ends, microseconds, as columns of the result."""
        kind = self.schemas[0].field(len(self._keys)).type
        return [to_array(edge, kind, None) for edge in edges]

    def _installed(self, slots: Int64s) -> None:
        self._opened(slots)


def _in_order(calls: Sequence[AggCall], schema: pa.Schema) -> list[AggCall]:
    """The calls for which a window's rows are brought into order."""
    by_meaning = [call for call in calls if call.ordered]
    return by_meaning or [call for call in calls if order_sensitive([call], schema)]
