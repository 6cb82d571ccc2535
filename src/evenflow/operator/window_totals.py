"""WindowTotals: the totals per key and window start that windows of event time and sessions are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import Hashes
from evenflow.kernels.table import HEADER
from evenflow.operator.aggregate import is_object
from evenflow.operator.tabled import Tabled
from evenflow.operator.text_totals import fold_objects
from evenflow.operator.totals import Bound, Totals
from evenflow.query.aggregates import AggCall, SessionWindow, TimeWindow, result_schema
from evenflow.state.keys import KeptKeys, key_columns, to_array
from evenflow.state.pages import PagedTable, Touched
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

Int64s = npt.NDArray[np.int64]


class WindowTotals(Tabled):
    """A row of the table per key and start (its `extra`): `own` words of the subclass, totals, and the key. late_rows: so far.

    schema: of the input; partial: it is that of a `Combine`. time: see `result_schema`. own: what they are in a new row, from HEADER on.
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
    ) -> None:
        self._keys, first = tuple(keys), HEADER + len(own)
        self._totals = Totals(calls, schema, first=first, partial=partial)
        self._loose = [call for call in calls if is_object(self._totals, call)]
        self._kept, self._keys_at = KeptKeys(schema, keys), first + self._totals.template.size
        template = np.concatenate([np.array(own, np.int64), self._totals.template, np.zeros(self._kept.words, np.int64)])
        self._table = PagedTable(template, [*(call.type for call in self._loose), *self._kept.object_types])
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
        new = np.ascontiguousarray(touched.slots[touched.new])
        if new.size:
            columns = key_columns(rows.batch, self._keys, touched.rows[touched.new])
            self._kept.keep(self._table.words, self._keys_at, self._table.objects[len(self._loose) :], new, columns)
            self._opened(new)
        return touched

    def _keys_of(self, slots: Int64s) -> list[pa.Array]:
        return self._kept.read(self._table.words, self._keys_at, self._table.objects[len(self._loose) :], slots)

    def _bounds(self, *edges: Int64s) -> list[pa.Array]:
        """Starts and ends, microseconds, as columns of the result."""
        kind = self.schemas[0].field(len(self._keys)).type
        return [to_array(edge, kind, None) for edge in edges]

    def _installed(self, slots: Int64s) -> None:
        self._opened(slots)
