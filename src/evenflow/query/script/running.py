"""Boxes for results that go on changing: the best rows of a key so far, and what a newer state changes in a sum.

A running result is a stream of states, each replacing the one before of the same identity. Both boxes are vectorised over the keys of an
epoch; what they keep is Python objects in the keyed store, some microseconds a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.processor import BatchProcessor, Groups
from evenflow.stream.schema import parse_ddl

Int64s = npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def _schema(columns: str) -> pa.Schema:
    """Read once, not in every epoch. The boxes are described by plain values, so that a dataflow with them can be saved as JSON."""
    return parse_ddl(columns)


class KeptRows(BatchProcessor):
    """A box that keeps rows of each key, a list per column, and puts them out with one column more.

    columns: of the rows, as DDL. added: what the column more is.
    """

    columns: str
    keeps_key: ClassVar[bool] = True

    @property
    def added(self) -> pa.Field:
        raise NotImplementedError(f"{type(self).__name__} must say which column it adds")

    @property
    def schema(self) -> pa.Schema:
        return _schema(self.columns)

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        return pa.schema([*self.schema, self.added])

    def open(self, store: Any) -> None:
        for number, field in enumerate(self.schema):
            store.list(f"c{number}", field.type)

    def fields(self, state: Any) -> list[Any]:
        """The lists that are kept, one per column."""
        return [getattr(state, f"c{number}") for number in range(len(self.schema))]


@dataclass
class BestRows(KeptRows):
    """The first `count` rows of each key in an order, as they are so far: whenever a place is taken by another row, that row.

    by: (column, descending); as in Spark, nulls are least and NaN is greatest. Rows that are equal in it are ordered by their other
    columns, so that the result depends on no order of arrival. columns: of the rows, as DDL. place: name of the column of the place,
    from 1.
    State: `count` rows a key.
    """

    count: int
    by: tuple[tuple[str, bool], ...]
    columns: str
    place: str

    @property
    def added(self) -> pa.Field:
        return pa.field(self.place, pa.int32())

    def process(self, rows: Any, groups: Groups, state: Any) -> tuple[pa.RecordBatch, Int64s]:  # type: ignore[override]
        fields = self.fields(state)
        kept = [field.get() for field in fields]
        counts = np.fromiter((len(values) for values in kept[0]), np.int64, len(groups))
        total = int(counts.sum())
        columns = []
        for field, values, new in zip(self.schema, kept, rows.columns, strict=True):
            old = pa.array(list(chain.from_iterable(values)), field.type)
            columns.append(pa.concat_arrays([old, new.cast(field.type)]))
        both = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        group = np.concatenate([np.repeat(np.arange(len(groups)), counts), groups.ids])
        held = np.full(len(group), -1, np.int64)
        held[:total] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        order = self._sorted(both, group, held < 0)
        place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
        best = order[place < self.count]
        place, of = place[place < self.count], group[best]
        moved = held[best] != place
        self._keep(fields, both, best, of, of[moved], len(groups))
        out = both.take(pa.array(best[moved]))
        ranked = pa.RecordBatch.from_arrays([*out.columns, pa.array(place[moved] + 1, pa.int32())], schema=self.output)
        return ranked, groups.last[of[moved]]

    def _sorted(self, rows: pa.RecordBatch, group: Int64s, new: npt.NDArray[np.bool_]) -> Int64s:
        """Rows by group and then from best to worst; of equal ones those that are kept already come first."""
        keys: dict[str, Any] = {"group": pa.array(group)}
        sorting: list[tuple[str, str]] = [("group", "ascending")]
        ties = [(name, False) for name in rows.schema.names if name not in dict(self.by)]
        for number, (name, descending) in enumerate((*self.by, *ties)):
            column = rows.column(name)
            if pa.types.is_nested(column.type):
                continue
            rank = pc.if_else(pc.is_valid(column), 1, 0)
            if pa.types.is_floating(column.type):
                rank = pc.if_else(pc.fill_null(pc.is_nan(column), False), 2, rank)
            direction = "descending" if descending else "ascending"
            keys |= {f"r{number}": rank, f"v{number}": column}
            sorting += [(f"r{number}", direction), (f"v{number}", direction)]
        keys["new"] = pa.array(new).cast(pa.int8())
        order = pc.sort_indices(pa.RecordBatch.from_pydict(keys), sort_keys=[*sorting, ("new", "ascending")])
        return order.to_numpy().astype(np.int64)  # type: ignore[no-any-return]

    def _keep(self, fields: Sequence[Any], rows: pa.RecordBatch, best: Int64s, of: Int64s, touched: Int64s, count: int) -> None:
        """Write back the best rows of the groups in which a place has changed."""
        changed = np.zeros(count, np.bool_)
        changed[touched] = True
        stops = np.cumsum(np.bincount(of, minlength=count))
        offsets = pa.array(np.concatenate([[0], stops]), pa.int32())
        taken = rows.take(pa.array(best))
        for field, column in zip(fields, taken.columns, strict=True):
            field.put(pa.ListArray.from_arrays(offsets, column), changed)


@dataclass
class Changes(KeptRows):
    """What each new state changes: the row that it replaces with -1, and itself with +1, so that sums can follow.

    columns: of the states, as DDL. sign: name of the column of -1 and +1. Keyed by what identifies a state. State: a row a key.
    """

    columns: str
    sign: str

    @property
    def added(self) -> pa.Field:
        return pa.field(self.sign, pa.int64())

    def open(self, store: Any) -> None:
        store.value("seen", "boolean")
        super().open(store)

    def process(self, rows: Any, groups: Groups, state: Any) -> tuple[pa.RecordBatch, Int64s]:  # type: ignore[override]
        seen = state.seen.exists()
        newest = rows.take(pa.array(groups.last))
        columns = []
        for field, kept, column in zip(self.schema, self.fields(state), newest.columns, strict=True):
            old = pa.array([value for values in kept.get()[seen] for value in values], field.type)
            new = column.cast(field.type)
            columns.append(pa.concat_arrays([old, new]))
            kept.put(pa.ListArray.from_arrays(pa.array(np.arange(len(new) + 1), pa.int32()), new))
        state.seen.put(np.ones(len(groups), np.bool_))
        sign = np.repeat(np.array([-1, 1]), [int(seen.sum()), len(groups)])
        out = pa.RecordBatch.from_arrays([*columns, pa.array(sign, pa.int64())], schema=self.output)
        return out, np.concatenate([groups.last[seen], groups.last])
