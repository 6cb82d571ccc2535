"""Boxes for results that go on changing: the best rows of a key so far, and what a newer state changes in a sum.

A running result is a stream of states, each replacing the one before of the same identity. Both boxes are vectorised over the keys of an
epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.processor import BatchProcessor, Groups
from evenflow.query.script.kept import Kept, kept
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.change import CHANGE, CHANGE_FIELD, DELETE, INSERT, KINDS, UPDATE_AFTER, all_say, changed_rows, is_changelog
from evenflow.stream.schema import quoted
from evenflow.stream.values import comparable

if TYPE_CHECKING:
    from evenflow.query.builder import Stream


class KeptRows(BatchProcessor):
    """A box that keeps rows of each key and puts them out with one column more. Boxes are described by plain values, so that a dataflow
    with them can be saved as JSON.

    columns: of the rows, as DDL. added: what the column more is. places: how many rows a key has at most.
    """

    columns: str
    keeps_key: ClassVar[bool] = True

    @property
    def added(self) -> pa.Field:
        raise NotImplementedError(f"{type(self).__name__} must say which column it adds")

    @property
    def places(self) -> int:
        return 1

    @property
    def kept(self) -> Kept:
        return kept(self.columns, self.places)

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        return pa.schema([*self.kept.schema, self.added])

    def open(self, store: Any) -> None:
        self.kept.open(store)


@dataclass
class BestRows(KeptRows):
    """The first `count` rows of each key in an order, as they are so far: whenever a place is taken by another row, that row.

    by: (column, descending); as in Spark, nulls are least and NaN is greatest. Rows that are equal in it are ordered by their other
    columns, so that the result depends on no order of arrival. columns: of the rows, as DDL. place: name of the column of the place,
    from 1. changes: as a changelog, with the row that had the place before the one that takes it.
    State: `count` rows a key.
    """

    count: int
    by: tuple[tuple[str, bool], ...]
    columns: str
    place: str
    changes: bool = False

    @property
    def added(self) -> pa.Field:
        return pa.field(self.place, pa.int32())

    @property
    def output(self) -> pa.Schema:  # type: ignore[override]
        return super().output.append(CHANGE_FIELD) if self.changes else super().output

    @property
    def places(self) -> int:
        return self.count

    def process(self, rows: Any, groups: Groups, state: Any) -> tuple[pa.RecordBatch, Int64s]:  # type: ignore[override]
        counts, old = self.kept.read(state)
        new = rows.cast(self.kept.schema)
        of_new, likely = groups.ids, np.flatnonzero(~self._hopeless(old, new, counts, groups.ids))
        if likely.size < new.num_rows:
            new, of_new = new.take(pa.array(likely)), of_new[likely]
        both = pa.concat_batches([old, new])
        group = np.concatenate([np.repeat(np.arange(len(groups)), counts), of_new])
        held = np.full(len(group), -1, np.int64)
        held[: old.num_rows] = np.arange(old.num_rows) - np.repeat(np.cumsum(counts) - counts, counts)
        order = self._sorted(both, group, held < 0)
        place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
        best = order[place < self.count]
        place, of = place[place < self.count], group[best]
        moved = held[best] != place
        changed = np.zeros(len(groups), np.bool_)
        changed[of[moved]] = True
        self.kept.write(state, np.bincount(of, minlength=len(groups)), both.take(pa.array(best)), changed)
        moved_to = _placed(both.take(pa.array(best[moved])), place[moved], self.added)
        if not self.changes:
            return moved_to, groups.last[of[moved]]
        rank, number = held[: old.num_rows], np.repeat(np.arange(len(groups)), counts)
        left = np.isin(number * self.count + rank, of[moved] * self.count + place[moved])
        moved_from = _placed(old.filter(pa.array(left)), rank[left], self.added)
        changes, at = changed_rows(
            moved_from, number[left] * self.count + rank[left], moved_to, of[moved] * self.count + place[moved], keys=0
        )
        return changes, groups.last[at // self.count]

    def _hopeless(self, old: pa.RecordBatch, new: pa.RecordBatch, counts: Int64s, of_new: Int64s) -> Bools:
        """bool (n,): new rows that are behind the last place of a key whose places are all taken, by the first column of the order."""
        name, descending = self.by[0]
        held, come = old.column(name), new.column(name)
        full = counts == self.count
        number = pa.types.is_integer(come.type) or pa.types.is_timestamp(come.type)
        if not number or held.null_count or come.null_count or not full.any():
            return np.zeros(new.num_rows, np.bool_)
        values, last = (np.asarray(column.cast(pa.int64())) for column in (come, held))
        bound = np.zeros(len(counts), np.int64)
        bound[full] = last[np.cumsum(counts)[full] - 1]
        behind: Bools = values < bound[of_new] if descending else values > bound[of_new]
        behind &= full[of_new]
        return behind

    def _sorted(self, rows: pa.RecordBatch, group: Int64s, new: Bools) -> Int64s:
        """Rows by group and then from best to worst; of equal ones those that are kept already come first."""
        keys: dict[str, Any] = {"group": pa.array(group)}
        sorting: list[tuple[str, str]] = [("group", "ascending")]
        ties = [(name, False) for name in rows.schema.names if name not in dict(self.by)]
        for number, (name, descending) in enumerate((*self.by, *ties)):
            column = rows.column(name)
            if pa.types.is_nested(column.type):
                if number >= len(self.by):
                    continue
                column = _number(column)
            direction = "descending" if descending else "ascending"
            if (rank := _rank(column)) is not None:
                keys[f"r{number}"] = rank
                sorting.append((f"r{number}", direction))
            keys[f"v{number}"] = column
            sorting.append((f"v{number}", direction))
        keys["new"] = pa.array(new).cast(pa.int8())
        order = pc.sort_indices(pa.RecordBatch.from_pydict(keys), sort_keys=[*sorting, ("new", "ascending")])
        return order.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _placed(rows: pa.RecordBatch, place: Int64s, field: pa.Field) -> pa.RecordBatch:
    """The rows with their places, which are counted from 0, behind them."""
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array(place + 1, pa.int32())], schema=rows.schema.append(field))


def _rank(column: pa.Array) -> pa.Array | None:
    """0 for null, 2 for NaN, 1 for other values: Spark's order, which Arrow's is not; None where there is neither."""
    floating = pa.types.is_floating(column.type)
    if not floating and column.null_count == 0:
        return None
    rank = pc.if_else(pc.is_valid(column), 1, 0)
    return pc.if_else(pc.fill_null(pc.is_nan(column), False), 2, rank) if floating else rank


def _number(column: pa.Array) -> pa.Array:
    """int64 in the order of Spark's of nested values, nulls first."""
    values = [comparable(value) for value in column.to_pylist()]
    rank = {value: at for at, value in enumerate(sorted(set(values)))}
    return pa.array([rank[value] for value in values], pa.int64())


@dataclass
class Changes(KeptRows):
    """What each new state changes: the row that it replaces with -1, and itself with +1, so that sums can follow.

    columns: of the states, as DDL. sign: name of the column of -1 and +1; "": a changelog, in which the one goes and the other comes.
    Keyed by what identifies a state. State: a row a key.
    """

    columns: str
    sign: str

    @property
    def added(self) -> pa.Field:
        return pa.field(self.sign, pa.int64()) if self.sign else CHANGE_FIELD

    def process(self, rows: Any, groups: Groups, state: Any) -> tuple[pa.RecordBatch, Int64s]:  # type: ignore[override]
        counts, old = self.kept.read(state)
        new = rows.take(pa.array(groups.last)).cast(self.kept.schema)
        ones = np.ones(len(groups), np.int64)
        self.kept.write(state, ones, new, ones == 1)
        if self.sign:
            said = pa.array(np.repeat(np.array([-1, 1]), [old.num_rows, len(groups)]), pa.int64())
        else:
            said = pa.concat_arrays([all_say(DELETE, old.num_rows), all_say(INSERT, len(groups))])
        both = pa.concat_batches([old, new])
        out = pa.RecordBatch.from_arrays([*both.columns, said], schema=self.output)
        return out, np.concatenate([groups.last[counts == 1], groups.last])


def states(stream: Stream) -> Stream:
    """What groups that never end are from now on, of a changelog of them; another stream as it is."""
    if not is_changelog(stream.schema):
        return stream
    return stream.where(f"{CHANGE} IN ('{KINDS[INSERT]}', '{KINDS[UPDATE_AFTER]}')").select(
        *(quoted(name) for name in stream.columns if name != CHANGE)
    )
