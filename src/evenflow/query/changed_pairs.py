"""The processor of a join of changelogs: rows of both sides by key, and what an epoch's changes do to their pairs.

A row is kept once, with how often it is there. An epoch's changes are added up first, so a result depends on no order in which they come,
and a row that comes and goes within an epoch does nothing. Of outer, semi and anti joins each row is kept with how many partners it has:
whether it has one can then be told from what has changed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.processor import BatchProcessor, Groups
from evenflow.query.expression import Compiled
from evenflow.query.join import compile_condition, pair_schema
from evenflow.query.sql.lists import codes
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.change import DELETE, INSERT, KINDS
from evenflow.stream.schema import parse_ddl

KEY: Final = "key__"
LEFT: Final = "left__"
BACK: Final = "back__"
"""Columns of the input: a key's number follows KEY; whether a row is of the left side, and whether it is taken back."""


@dataclass
class _Side:
    """Distinct rows of one side in the groups of an epoch, n of them, ascending by group. group, before, after: int64 (n,), how often a row
    is there before and after the epoch. partners: rows of the other side that it has, before the epoch and then after it."""

    rows: pa.RecordBatch
    group: Int64s
    before: Int64s
    after: Int64s
    partners: Int64s
    partners_after: Int64s

    @property
    def changed(self) -> Bools:
        return np.asarray(self.before != self.after)


@dataclass
class Pairs(BatchProcessor):
    """output: of the result with its change, as DDL. left, right: columns of the sides, as DDL. keys: how many columns the key has; 0: all
    rows meet. condition: what else must hold, over `l.name` and `r.name`. columns: (left, right) column of each of the result, the first
    that is not null of both.

    State per key: every row of both sides that is there, once. Cost: O(rows kept of the keys that have changed).
    """

    output: str  # type: ignore[misc]
    left: str
    right: str
    how: str
    keys: int
    condition: str | None
    columns: tuple[tuple[str | None, str | None], ...]

    @cached_property
    def _schemas(self) -> tuple[pa.Schema, pa.Schema]:
        return parse_ddl(self.left), parse_ddl(self.right)

    @cached_property
    def _holds(self) -> Compiled | None:
        return None if self.condition is None else compile_condition(self.condition, *self._schemas)

    @property
    def _counted(self) -> tuple[bool, bool]:
        """Of which sides it must be known whether a row has a partner."""
        return self.how in ("left", "full", "semi", "anti"), self.how in ("right", "full")

    def open(self, store: Any) -> None:
        for side, schema, counted in zip("lr", self._schemas, self._counted, strict=True):
            for number, field in enumerate(schema):
                store.list(f"{side}{number}", field.type)
            store.list(f"{side}_times", "bigint")
            if counted:
                store.list(f"{side}_partners", "bigint")

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        of_left = rows.column(LEFT).to_numpy(zero_copy_only=False)
        left, right = (self._side(number, rows, groups, state, of_left if number == 0 else ~of_left) for number in (0, 1))
        meets = np.ones(len(groups), np.bool_)
        for key in groups.keys.columns if self.keys else ():
            meets &= key.is_valid().to_numpy(zero_copy_only=False)
        a, b = self._pairs(left, right, meets)
        for one, other, at, to in ((left, right, a, b), (right, left, b, a)):
            one.partners_after = np.where(one.before != 0, one.partners, 0)
            np.add.at(one.partners_after, at, other.after[to] - np.where(one.before[at] != 0, other.before[to], 0))
        made = self._changes(left, right, a, b)
        for number, side in enumerate((left, right)):
            self._keep(number, side, meets, state)
        return made[0], groups.last[made[1]]

    # ------------------------------------------------ rows of a side

    def _side(self, number: int, rows: pa.RecordBatch, groups: Groups, state: Any, mine: Bools) -> _Side:
        """What is kept of the groups and what comes, each distinct row once."""
        prefix, schema = "lr"[number], self._schemas[number]
        lists = getattr(state, f"{prefix}_times").get()
        counts = np.fromiter((len(values) for values in lists), np.int64, len(lists))
        times = np.array(list(chain.from_iterable(lists)), np.int64)
        partners = np.zeros(len(times), np.int64)
        if self._counted[number]:
            partners = np.array(list(chain.from_iterable(getattr(state, f"{prefix}_partners").get())), np.int64)
        new = np.flatnonzero(mine)
        index = pa.array(new)
        arrays = []
        for at, field in enumerate(schema):
            held = pa.array(list(chain.from_iterable(getattr(state, f"{prefix}{at}").get())), field.type)
            arrays.append(pa.concat_arrays([held, rows.column(f"{prefix}{at}__").take(index).cast(field.type)]))
        signs = np.where(rows.column(BACK).to_numpy(zero_copy_only=False)[new], -1, 1).astype(np.int64)
        group = np.concatenate([np.repeat(np.arange(len(groups)), counts), groups.ids[new]])
        first, of = _distinct(arrays, group)
        before, added = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
        np.add.at(before, of[: len(times)], times)
        np.add.at(added, of[len(times) :], signs)
        held_partners = np.concatenate([partners, np.zeros(len(new), np.int64)])[first]
        batch = pa.RecordBatch.from_arrays([array.take(pa.array(first)) for array in arrays], schema=schema)
        return _Side(batch, group[first], before, before + added, held_partners, held_partners)

    def _keep(self, number: int, side: _Side, meets: Bools, state: Any) -> None:
        """Rows that are there after the epoch become the state of their key; a row whose key has a null meets none, ever."""
        counted = self._counted[number]
        touched = np.zeros(len(meets), np.bool_)
        touched[side.group[side.changed | (side.partners != side.partners_after)]] = True
        touched &= meets
        kept = np.flatnonzero((side.after != 0) & meets[side.group])
        counts = np.bincount(side.group[kept], minlength=len(meets))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        filled, emptied = touched & (counts > 0), touched & (counts == 0)
        fields: list[tuple[str, pa.Array]] = [(str(at), column.take(pa.array(kept))) for at, column in enumerate(side.rows.columns)]
        fields.append(("_times", pa.array(side.after[kept])))
        if counted:
            fields.append(("_partners", pa.array(side.partners_after[kept])))
        for name, values in fields:
            field = getattr(state, f"{'lr'[number]}{name}")
            field.put(pa.ListArray.from_arrays(offsets, values), filled)
            field.clear(emptied)

    # ------------------------------------------------ pairs

    def _pairs(self, left: _Side, right: _Side, meets: Bools) -> tuple[Int64s, Int64s]:
        """(left row, right row) of the pairs that the condition holds for, of which at least one row has changed."""
        here, there = left.changed & meets[left.group], right.changed & meets[right.group]
        one = _crossed(np.flatnonzero(here), left.group, np.arange(len(right.group)), right.group)
        two = _crossed(np.flatnonzero(~here), left.group, np.flatnonzero(there), right.group)
        a, b = np.concatenate([one[0], two[0]]), np.concatenate([one[1], two[1]])
        # What is there neither before nor after is no pair: the condition may not even have a value for it.
        real = np.flatnonzero((left.before[a] * right.before[b] != 0) | (left.after[a] * right.after[b] != 0))
        a, b = a[real], b[real]
        if self._holds is None or not a.size:
            return a, b
        sides = {"l": (left.rows, pa.array(a)), "r": (right.rows, pa.array(b))}
        wanted = pa.schema([pair_schema(*self._schemas).field(name) for name in self._holds.columns])
        arrays = [sides[name[0]][0].column(name[2:]).take(sides[name[0]][1]) for name in wanted.names]
        batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(a.size)], [*wanted.names, ""])
        true = self._holds(batch).fill_null(False).cast(pa.bool_())
        at = np.flatnonzero(true.to_numpy(zero_copy_only=False))
        return a[at], b[at]

    # ------------------------------------------------ what comes out

    def _changes(self, left: _Side, right: _Side, a: Int64s, b: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """(changes of the result, the group of each)."""
        none = np.zeros(0, np.int64)
        pieces: list[tuple[pa.RecordBatch, Int64s, Int64s]] = []
        if self.how in ("inner", "left", "right", "full"):
            change = left.after[a] * right.after[b] - left.before[a] * right.before[b]
            at = np.flatnonzero(change)
            pieces.append((self._result(left, right, a[at], b[at]), left.group[a[at]], change[at]))
        for side, wanted, paired in ((left, ("left", "full", "anti"), False), (left, ("semi",), True), (right, ("right", "full"), False)):
            if self.how in wanted:
                change = side.after * ((side.partners_after > 0) == paired) - side.before * ((side.partners > 0) == paired)
                at = np.flatnonzero(change)
                own, other = (at, none) if side is left else (none, at)
                pieces.append((self._result(left, right, own, other), side.group[at], change[at]))
        batch = pa.concat_batches([piece[0] for piece in pieces])
        group, change = np.concatenate([piece[1] for piece in pieces]), np.concatenate([piece[2] for piece in pieces])
        index = np.repeat(np.arange(len(change)), np.abs(change))
        index = index[np.lexsort((change[index] > 0, group[index]))]  # What is gone comes before what is there in its place.
        kinds = pa.array(KINDS).take(pa.array(np.where(change[index] > 0, INSERT, DELETE)))
        arrays = [*batch.take(pa.array(index)).columns, kinds]
        return pa.RecordBatch.from_arrays(arrays, schema=parse_ddl(self.output)), group[index]

    def _result(self, left: _Side, right: _Side, a: Int64s, b: Int64s) -> pa.RecordBatch:
        """The rows of pairs; nulls where there is no row of a side."""
        count, schema = max(a.size, b.size), parse_ddl(self.output)
        arrays = []
        for field, (of_left, of_right) in zip(schema, self.columns, strict=False):
            values = [
                side.rows.column(name).take(pa.array(at))
                for side, name, at in ((left, of_left, a), (right, of_right, b)) if name is not None and at.size == count
            ]  # fmt: skip
            found = values[0] if len(values) == 1 else pc.coalesce(*values) if values else pa.nulls(count, field.type)
            arrays.append(found.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_nullable(True) for field in list(schema)[:-1]]))


def _distinct(arrays: list[pa.Array], group: Int64s) -> tuple[Int64s, Int64s]:
    """(where each distinct row of each group comes first, ascending by group and place; which of them each row is)."""
    ids = group
    for array in arrays:
        if pa.types.is_nested(array.type):
            (numbers,) = codes(array)
        else:
            numbers = pc.dictionary_encode(array, null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers.size:
            _, ids = np.unique(ids * (int(numbers.max()) + 1) + numbers, return_inverse=True)
    _, first, of = np.unique(ids, return_index=True, return_inverse=True)
    order = np.lexsort((first, group[first]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order].astype(np.int64), place[of]


def _crossed(one: Int64s, one_group: Int64s, other: Int64s, other_group: Int64s) -> tuple[Int64s, Int64s]:
    """Each of some rows with each of some others of its group. one_group, other_group: of all rows, ascending."""
    groups = other_group[other]
    start, stop = np.searchsorted(groups, one_group[one], "left"), np.searchsorted(groups, one_group[one], "right")
    counts = stop - start
    firsts = np.repeat(start - (np.cumsum(counts) - counts), counts)
    return np.repeat(one, counts), other[firsts + np.arange(counts.sum())]
