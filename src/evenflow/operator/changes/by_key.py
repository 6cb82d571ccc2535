"""Rows by key: each distinct row of a key once, with how often it is there, and for every key the list of its rows.

A row of the table is known by its key and by the hash of all its values, so a change finds its row in one step, however many rows its key
has. Lists are beside the table (`kernels.links`): they are no state, and are made again from rows that come with a partition. What comes
out goes by what rows are, never by where they lie or in which order a list has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.kernels import fold
from evenflow.kernels.hash import hash_columns
from evenflow.kernels.links import HOME, LINKS, link, unlink, walk
from evenflow.kernels.table import EXTRA, HEADER, PAGE
from evenflow.operator.changes.columns import KeptColumns
from evenflow.operator.operator import Shown, Timeless
from evenflow.operator.order import arrange
from evenflow.operator.tabled import Tabled
from evenflow.state.keys import identity
from evenflow.state.page_snapshot import State
from evenflow.state.pages import PIECE_PAGES, PagedTable
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.change import taken_back
from evenflow.stream.rows import Rows
from evenflow.stream.values import has_floats

TIMES: Final = HEADER
"""Word of a kept row: how often it is there, which may be less than 0 until what was taken back too early comes."""
SIDE: Final = HEADER + 1
PARTNERS: Final = HEADER + 2
"""Word of a row of an outer join: how many rows of the other side it has."""
FIRST: Final = HEADER + 3

SIDES: Final = 2

_ADD: Final = np.array([[fold.ADD, TIMES, 0, -1]], np.int64)


@dataclass(frozen=True, slots=True)
class Change:
    """The distinct rows of an epoch, n of them, in order of first appearance. slots, head: int64 (n,), where the row and its key are.
    before, after: int64 (n,), how often it is there. side: int64 (n,). meets: bool (n,), its key has no null."""

    slots: Int64s
    head: Int64s
    before: Int64s
    after: Int64s
    side: Int64s
    meets: Bools

    @property
    def changed(self) -> Bools:
        return np.asarray(self.before != self.after)

    def keys(self) -> tuple[Int64s, Int64s]:
        """(where the keys of changed rows are, a row of each), in order of first appearance."""
        moved = np.flatnonzero(self.changed)
        heads, first = np.unique(self.head[moved], return_index=True)
        order = np.argsort(first)
        return heads[order], self.slots[moved[first[order]]]


class ByKey(Tabled, Timeless, Shown):
    """Mixin of operators whose state is rows by key.

    keys: of the input, by which rows meet. sides: the schema of what is kept of a row of each side; columns: (side) names of these columns
    in the input. Cost of an epoch: O(its rows), and what is walked.
    """

    def __init__(self, keys: Sequence[str], sides: Sequence[pa.Schema], columns: Sequence[Sequence[str]]) -> None:
        self._keys, self._names = tuple(keys), [list(names) for names in columns]
        named = [(name, field.type) for names, side in zip(columns, sides, strict=True) for name, field in zip(names, side, strict=True)]
        self._floats = [*dict.fromkeys(name for name, kind in named if has_floats(kind))]
        self._kept: list[KeptColumns] = []
        types: list[pa.DataType] = []
        for schema in sides:
            self._kept.append(KeptColumns(schema, FIRST, len(types)))  # A row is of one side, so the sides' words are the same ones.
            types += self._kept[-1].object_types
        words = FIRST - HEADER + max(kept.words for kept in self._kept)
        self._table = PagedTable(np.zeros(words, np.int64), types)
        self._heads = PagedTable(np.zeros(0, np.int64))
        self._first = np.full(0, -1, np.int64)
        self._links = np.empty((0, LINKS), np.int64)
        self._delta = np.zeros(0, np.int64)

    # ------------------------------------------------ an epoch

    def _take(self, rows: Rows, signs: Int64s, side: Int64s, meets: Bools, epoch: int) -> Change:
        """Count the rows of an epoch. signs, side: int64 (n,), of each row 1 or -1, and 0 or 1. meets: bool (n,). Ends by `_settle`."""
        hashes, checks = identity(rows, self._keys)
        found = self._heads.fold(rows.partition, hashes, checks, epoch=epoch)
        heads, new_heads = found.slot_of.copy(), found.slots[found.new]
        self._grow()
        self._first.reshape(-1, SIDES)[new_heads] = -1
        names = sorted({name for each in self._names for name in each})
        extra = hash_columns(rows.batch, names) ^ side.view(np.uint64)
        extra[extra == 0] = 1  # A row without an extra is told by its key alone.
        touched = self._table.fold(
            rows.partition, hashes, checks, epoch=epoch, extra=extra.view(np.int64), ops=_ADD, values=signs.reshape(1, -1)
        )
        self._grow()
        slots, new = touched.slots.copy(), touched.new.copy()
        at = self._chosen(rows.batch, touched.rows, touched.ordinals).copy()
        net = np.bincount(touched.ordinals, weights=signs, minlength=slots.size).astype(np.int64)
        words = self._table.words
        for number, (kept, names) in enumerate(zip(self._kept, self._names, strict=True)):
            mine = np.flatnonzero(new & (side[at] == number))
            words[slots[mine], SIDE] = number
            index = pa.array(at[mine])
            columns = [
                rows.batch.column(name).take(index).cast(field.type) for name, field in zip(names, kept.schema, strict=True)
            ]  # fmt: skip
            kept.keep(words, self._table.objects, slots[mine], columns)
        fresh = np.flatnonzero(new & meets[at])
        link(slots[fresh], heads[at[fresh]] * SIDES + side[at[fresh]], self._first, self._links)
        lone = np.flatnonzero(new & ~meets[at])
        self._links[slots[lone], HOME] = -1
        after = words[slots, TIMES].copy()
        self._delta[slots] = net
        return Change(slots, heads[at], after - net, after, side[at], meets[at])

    def _chosen(self, batch: pa.RecordBatch, firsts: Int64s, ordinals: Int64s) -> Int64s:
        """int64 (n,), the row that is kept of each set of equal ones, where equal floats may look different: not the first, which goes by
        what came when. firsts: int64 (n,), the first row of each set. ordinals: int64 (rows,), the set of each row."""
        if not self._floats or firsts.size == ordinals.size:
            return firsts
        order = arrange(batch, ordinals, self._floats)
        return firsts if order is None else order[np.searchsorted(ordinals[order], np.arange(firsts.size))]

    def _take_changes(self, rows: Rows, epoch: int) -> Change:
        """`_take` of a changelog: all of one side, of which keys with nulls are keys like others."""
        signs = np.where(taken_back(rows.batch), -1, 1)
        return self._take(rows, signs, np.zeros(rows.count, np.int64), np.ones(rows.count, np.bool_), epoch)

    def _settle(self, change: Change, epoch: int) -> None:
        """Forget rows that are there no more, and those that nothing will ever meet."""
        self._delta[change.slots] = 0
        gone = np.flatnonzero((change.after == 0) | ~change.meets)
        if gone.size:
            unlink(change.slots[gone[change.meets[gone]]], self._first, self._links)
            self._table.remove(change.slots[gone], epoch=epoch)
            heads = np.unique(change.head[gone])
            empty = heads[(self._first.reshape(-1, SIDES)[heads] < 0).all(axis=1)]
            if empty.size:
                self._heads.remove(empty, epoch=epoch)

    def _walk(self, heads: Int64s, side: int) -> tuple[Int64s, Int64s]:
        """(place in `heads`, slot) of each row that these keys have on a side, by place and by what the rows are."""
        at, slots = walk(np.ascontiguousarray(heads * SIDES + side), self._first, self._links)
        if at.size > 1 and (at[1:] == at[:-1]).any():
            order = np.lexsort((self._table.words[slots, EXTRA], at))
            at, slots = at[order], slots[order]
        return at, slots

    def _times(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """(before, after): how often rows are there."""
        after = self._table.words[slots, TIMES]
        return after - self._delta[slots], after

    def _column(self, side: int, number: int, slots: Int64s) -> pa.Array:
        return self._kept[side].read(self._table.words, self._table.objects, slots, number)

    def _touch(self, slots: Int64s, epoch: int) -> None:
        """These rows are about to be written to, though nothing of them has come."""
        words = self._table.words
        hashes, checks = self._table.identity_of(slots)
        self._table.fold(self._table.owner_of(slots), hashes, checks, epoch=epoch, extra=np.ascontiguousarray(words[slots, EXTRA]))

    def _grow(self) -> None:
        """The arrays beside the tables are as long as these."""
        heads, slots = self._heads.words.shape[0] * SIDES, self._table.words.shape[0]
        if self._first.size < heads:
            self._first = np.concatenate([self._first, np.full(heads - self._first.size, -1, np.int64)])
        if self._delta.size < slots:
            self._links = np.concatenate([self._links, np.empty((slots - self._delta.size, LINKS), np.int64)])
            self._delta = np.concatenate([self._delta, np.zeros(slots - self._delta.size, np.int64)])

    # ------------------------------------------------ partitions

    def installing(self, partition: int, state: State) -> Iterator[int]:
        while self._heads.give_back():
            yield PIECE_PAGES * PAGE * self._heads.width * 8
        yield from super().installing(partition, state)

    def _installed(self, slots: Int64s) -> None:
        while self._heads.give_back():
            pass  # Those of who has gone since, with other ranges, may have the same keys.
        words = self._table.words
        hashes, checks = self._table.identity_of(slots)
        found = self._heads.fold(self._table.owner_of(slots), hashes, checks, epoch=0)
        self._grow()
        self._first.reshape(-1, SIDES)[found.slots[found.new]] = -1
        link(np.ascontiguousarray(slots), found.slot_of * SIDES + words[slots, SIDE], self._first, self._links)

    def drop(self, partition: int) -> None:
        super().drop(partition)
        self._heads.drop(partition)

    def give_back(self) -> bool:
        more = self._heads.give_back()
        return super().give_back() or more

    def state_bytes(self) -> int:
        beside = 8 * (LINKS + 1) * self._table.count + 8 * SIDES * self._heads.count
        return super().state_bytes() + self._heads.state_bytes() + beside

    @property
    def shown(self) -> pa.Schema:
        """What is kept of the rows of all sides, and how often each is there."""
        fields = [
            pa.field(f"{'lr'[side]}.{field.name}" if len(self._kept) > 1 else field.name, field.type)
            for side, kept in enumerate(self._kept) for field in kept.schema
        ]  # fmt: skip
        return pa.schema([*fields, pa.field("_times", pa.int64(), False)])

    def show(self, partition: int) -> pa.RecordBatch:
        words, slots = self._table.words, self._table.slots_of(partition)
        arrays = []
        for side, kept in enumerate(self._kept):
            mine = np.flatnonzero(words[slots, SIDE] == side)
            place = np.full(slots.size, -1)
            place[mine] = np.arange(mine.size)
            index = pa.array(place, mask=place < 0)
            arrays += [self._column(side, number, slots[mine]).take(index) for number in range(len(kept.schema))]
        return pa.RecordBatch.from_arrays([*arrays, pa.array(np.ascontiguousarray(words[slots, TIMES]))], schema=self.shown)
