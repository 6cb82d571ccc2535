"""Pair up: the join of two sides whose rows come and go, as what an epoch changes in it.

For each pair with a changed row it puts out `after(l) * after(r) - before(l) * before(r)`, which depends on no order in which rows come
within an epoch. Of outer, semi and anti joins each row has a count of its partners, so what has changed says alone whether it has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.operator.changes.by_key import PARTNERS, ByKey, Change
from evenflow.query.changed_pairs import ALIKE, BACK, LEFT, Pairs
from evenflow.query.join import compile_condition, pair_schema
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import DELETE, INSERT, all_say
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows
from evenflow.stream.schema import parse_ddl

_NONE = np.zeros(0, np.int64)


class PairUp(ByKey):
    """See `query.changed_pairs.Pairs`, which describes it. Cost: O(changes + pairs of rows that have changed)."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], pairs: Pairs) -> None:
        self._sides = parse_ddl(pairs.left), parse_ddl(pairs.right)
        names = [[f"{side}{at}__" for at in range(len(each))] for side, each in zip("lr", self._sides, strict=True)]
        super().__init__(keys, self._sides, names)
        self._pairs, self._how = pairs, pairs.how
        self._output = parse_ddl(pairs.output)
        self._result = pa.schema([field.with_nullable(True) for field in list(self._output)[:-1]])
        self._holds = None if pairs.condition is None else compile_condition(pairs.condition, *self._sides)
        self._counted = self._how in ("left", "full", "semi", "anti", *ALIKE), self._how in ("right", "full")
        self.schemas: tuple[pa.Schema, ...] = (self._output, schema)
        self._none, self._no_late = Rows.empty(self._output), Rows.empty(schema, keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return self._none, self._no_late
        batch = rows.batch
        left = batch.column(LEFT).to_numpy(zero_copy_only=False)
        signs = np.where(batch.column(BACK).to_numpy(zero_copy_only=False), -1, 1)
        meets = np.ones(rows.count, np.bool_)
        for key in self._keys if self._pairs.keys and self._how not in ALIKE else ():
            if (column := batch.column(key)).null_count:
                meets &= column.is_valid().to_numpy(zero_copy_only=False)
        change = self._take(rows, signs, np.where(left, 0, 1), meets, tick.epoch)
        a, b = self._pairs_of(change)
        made = self._made(change, a, b, tick.epoch)
        self._settle(change, tick.epoch)
        return made, self._no_late

    # ------------------------------------------------ pairs

    def _pairs_of(self, change: Change) -> tuple[Int64s, Int64s]:
        """(left slot, right slot) of the pairs that the condition holds for, of which at least one row has changed."""
        changed = change.changed & change.meets
        here, there = (np.flatnonzero(changed & (change.side == side)) for side in (0, 1))
        at, b = self._walk(change.head[here], 1)
        a = change.slots[here[at]]
        at, a_too = self._walk(change.head[there], 0)
        rest = self._delta[a_too] == 0  # With a left row that has changed it has been met already.
        a, b = np.concatenate([a, a_too[rest]]), np.concatenate([b, change.slots[there[at[rest]]]])
        # What is there neither before nor after is no pair: the condition may not even have a value for it.
        (one, one_after), (other, other_after) = self._times(a), self._times(b)
        real = np.flatnonzero((one * other != 0) | (one_after * other_after != 0))
        a, b = a[real], b[real]
        if self._holds is None or not a.size:
            return a, b
        wanted = pa.schema([pair_schema(*self._sides).field(name) for name in self._holds.columns])
        arrays = []
        for name in wanted.names:
            side = "lr".index(name[0])
            arrays.append(self._column(side, self._sides[side].get_field_index(name[2:]), (a, b)[side]))
        batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(a.size)], [*wanted.names, ""])
        true = np.flatnonzero(self._holds(batch).fill_null(False).cast(pa.bool_()).to_numpy(zero_copy_only=False))
        return a[true], b[true]

    # ------------------------------------------------ what comes out

    def _made(self, change: Change, a: Int64s, b: Int64s, epoch: int) -> Rows:
        pieces: list[tuple[Int64s, Int64s, Int64s]] = []
        if self._how in ("inner", "left", "right", "full"):
            (one, one_after), (other, other_after) = self._times(a), self._times(b)
            pieces.append((a, b, one_after * other_after - one * other))
        for side, own, others in ((0, a, b), (1, b, a)):
            if self._counted[side]:
                slots, more = self._alone(change, side, own, others, epoch)
                pieces.append((slots, _NONE, more) if side == 0 else (_NONE, slots, more))
        batches, owners = [], []
        for sign in (-1, 1):  # What is gone comes before what is there in its place.
            for left, right, more in pieces:
                at = np.flatnonzero(more * sign > 0)
                index = np.repeat(at, np.abs(more[at]))
                if index.size:
                    left_slots, right_slots = (slots[index] if slots.size else slots for slots in (left, right))
                    kinds = all_say(INSERT if sign > 0 else DELETE, index.size)
                    arrays = [*self._rows(left_slots, right_slots).columns, kinds]
                    batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._output))
                    owners.append(self._table.owner_of(left_slots if left.size else right_slots))
        return Rows(pa.concat_batches(batches), np.concatenate(owners)) if batches else self._none

    def _alone(self, change: Change, side: int, own: Int64s, others: Int64s, epoch: int) -> tuple[Int64s, Int64s]:
        """(slots, how many more of each) of rows of a side that come out by themselves, because they have a partner, or have none."""
        every = np.concatenate([change.slots[change.side == side], own])
        _, first = np.unique(every, return_index=True)
        slots = every[np.sort(first)]
        before, after = self._times(slots)
        had = np.where(before != 0, self._table.words[slots, PARTNERS], 0)
        place = np.empty(self._delta.size, np.int64)
        place[slots] = np.arange(slots.size)
        at = place[own]
        other, other_after = self._times(others)
        has = had.copy()
        np.add.at(has, at, other_after - np.where(before[at] != 0, other, 0))
        written = slots[has != self._table.words[slots, PARTNERS]]
        if written.size:
            self._touch(written, epoch)
            self._table.words[slots, PARTNERS] = has
        if self._how in ALIKE:
            return slots, _left(self._how, after, has) - _left(self._how, before, had)
        paired = self._how == "semi"
        return slots, after * ((has > 0) == paired) - before * ((had > 0) == paired)

    def _rows(self, left: Int64s, right: Int64s) -> pa.RecordBatch:
        """The rows of pairs; nulls where there is no row of a side."""
        count = max(left.size, right.size)
        arrays = []
        for field, names in zip(self._result, self._pairs.columns, strict=True):
            values: list[Any] = [
                self._column(side, self._sides[side].get_field_index(name), slots)
                for side, (name, slots) in enumerate(zip(names, (left, right), strict=True)) if name is not None and slots.size
            ]  # fmt: skip
            found = values[0] if len(values) == 1 else pc.coalesce(*values) if values else pa.nulls(count, field.type)
            arrays.append(found if found.type == field.type else found.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._result)


def _left(how: str, here: Int64s, there: Int64s) -> Int64s:
    """How often rows come out that are so often on the one side and on the other."""
    here, there = np.maximum(here, 0), np.maximum(there, 0)
    count = np.minimum(here, there) if how == "both all" else here * (there > 0) if how == "both" else np.maximum(here - there, 0)
    if how == "first":
        count = here * (there == 0)
    return count if how.endswith("all") else np.minimum(count, 1)
