"""Complete: the rows that a changelog leaves, all of them, now and then (the complete output mode of Structured Streaming)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.kernels import fold
from evenflow.kernels.hash import check_words, hash_columns
from evenflow.kernels.table import EXTRA, HEADER
from evenflow.operator.operator import Shown, Unkeyed
from evenflow.operator.order import sort_key
from evenflow.operator.tabled import Tabled
from evenflow.state.keys import KeptKeys, key_columns
from evenflow.state.page_snapshot import MAGIC, State
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Int64s
from evenflow.stream.change import CHANGE, taken_back
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

TIMES: Final = HEADER
"""Word of a kept row: how often it is there."""

WAITS: Final = 1
"""EXTRA of the row that says since which interval a partition's changes wait, in the place of how often it is there. A kept row's is 0."""

ADD_TIMES: Final = np.array([[fold.ADD, TIMES, 0, -1]], np.int64)


class Complete(Unkeyed, Tabled, Shown):
    """Every row of the result, in the first epoch whose stamp lies in a later interval than the first change since the last time, and in
    the last epoch, if anything has changed. Cost: O(changes), and O(n log n) of the n rows each time they are put out.

    schema: of a changelog. every_us: length of an interval, by the epochs' stamps (E6), > 0. by: (column, descending), with nulls as in
    Spark; rows that are equal in it come in order of all their columns. limit: only so many. Output: all columns but `_change`.
    State: every row that is there, once, however often it is there; and one row more while changes wait to be put out.
    """

    def __init__(self, schema: pa.Schema, *, every_us: int, by: Sequence[tuple[str, bool]] = (), limit: int | None = None) -> None:
        self._columns = [name for name in schema.names if name != CHANGE]
        result = pa.schema([schema.field(name) for name in self._columns])
        self._every_us, self._by, self._limit = every_us, tuple(by), limit
        self._kept = KeptKeys(result, self._columns)
        self._table = PagedTable(np.zeros(1 + self._kept.words, np.int64), self._kept.object_types)
        self._since: dict[int, _Since] = {}
        self.schemas: tuple[pa.Schema, ...] = (result, schema)
        self._none, self._no_late = Rows.empty(result), Rows.empty(schema, keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        interval = tick.stamp // self._every_us
        if rows.count:
            self._fold(rows, tick.epoch)
            changed = np.unique(rows.partition).tolist()
            some = [partition for partition in changed if self._table.count_of(partition) > (partition in self._since)]
            self._wait([partition for partition in some if partition not in self._since], interval, tick.epoch)
            without = [partition for partition in changed if partition in self._since and partition not in some]
            self._wait_no_more(without, tick.epoch)  # A result without rows puts nothing out.
        due = [partition for partition in sorted(self._since) if tick.last or self._since[partition].interval < interval]
        self._wait_no_more(due, tick.epoch)
        return self._put_out(due) if due else self._none, self._no_late

    def _wait(self, partitions: Sequence[int], interval: int, epoch: int) -> None:
        """Changes of these wait from now on."""
        if not partitions:
            return
        named = np.array(partitions, np.uint64)
        touched = self._table.fold(
            named.astype(np.int32), named, named, epoch=epoch, extra=np.full(named.size, WAITS), ops=ADD_TIMES,
            values=np.full((1, named.size), interval),
        )  # fmt: skip
        slots = touched.slots[touched.ordinals]
        self._table.words[slots, TIMES + 1 :] = 0
        for column in self._table.objects:
            column[slots] = None
        self._since |= {p: _Since(interval, slot) for p, slot in zip(partitions, slots.tolist(), strict=True)}

    def _wait_no_more(self, partitions: Sequence[int], epoch: int) -> None:
        gone = [self._since.pop(partition).slot for partition in partitions]
        if gone:
            self._table.remove(np.array(gone, np.int64), epoch=epoch)

    def _slots_of(self, partition: int) -> Int64s:
        """Of its kept rows."""
        slots = self._table.slots_of(partition)
        kept: Int64s = slots[self._table.words[slots, EXTRA] != WAITS]
        return kept

    def _fold(self, rows: Rows, epoch: int) -> None:
        """Count how often each row is there. One that was taken back as often as it came is forgotten."""
        batch = rows.batch.select(self._columns)
        signs = np.where(taken_back(rows.batch), -1, 1).astype(np.int64).reshape(1, -1)
        hashes, checks = hash_columns(batch, self._columns), check_words(batch, self._columns)
        touched = self._table.fold(rows.partition, hashes, checks, epoch=epoch, ops=ADD_TIMES, values=signs)
        new = np.ascontiguousarray(touched.slots[touched.new])
        columns = key_columns(batch, self._columns, touched.rows[touched.new])
        self._kept.keep(self._table.words, TIMES + 1, self._table.objects, new, columns)
        gone = touched.slots[self._table.words[touched.slots, TIMES] == 0]
        if gone.size:
            self._table.remove(gone, epoch=epoch)

    def _put_out(self, partitions: Sequence[int]) -> Rows:
        tables = [self._whole(partition) for partition in partitions]
        owners = np.repeat(np.array(partitions, np.int32), [table.num_rows for table in tables])
        return Rows(pa.concat_batches(tables), owners)

    def _whole(self, partition: int) -> pa.RecordBatch:
        """A partition's rows, each as often as it is there, in their order."""
        words, slots = self._table.words, self._slots_of(partition)
        slots = np.repeat(slots, np.maximum(words[slots, TIMES], 0))
        batch = pa.RecordBatch.from_arrays(self._kept.read(words, TIMES + 1, self._table.objects, slots), schema=self.schemas[0])
        order = [*self._by, *((name, False) for name in self._columns)]
        keys = [sort_key(batch.column(name)) for name, _ in order]
        named = pa.table([pa.array(k) if isinstance(k, np.ndarray) else k for k in keys], names=[str(i) for i in range(len(keys))])
        directions = [(str(i), *(("descending", "at_end") if desc else ("ascending", "at_start"))) for i, (_, desc) in enumerate(order)]
        return batch.take(pc.sort_indices(named, sort_keys=directions)[: self._limit])

    @property
    def shown(self) -> pa.Schema:
        """The rows of the result. _times: how often each is there."""
        return self.schemas[0].append(pa.field("_times", pa.int64(), False))

    def show(self, partition: int) -> pa.RecordBatch:
        words, slots = self._table.words, self._slots_of(partition)
        rows = self._kept.read(words, TIMES + 1, self._table.objects, slots)
        return pa.RecordBatch.from_arrays([*rows, pa.array(np.ascontiguousarray(words[slots, TIMES]))], schema=self.shown)

    def installing(self, partition: int, state: State) -> Iterator[int]:
        before = state[: len(MAGIC)] != MAGIC  # Of locations of format 2: the interval, and then the rows.
        yield from super().installing(partition, state[8:] if before else state)
        if before and (since := int.from_bytes(state[:8], "little", signed=True)) >= 0:
            self._wait([partition], since, 0)

    def _installed(self, slots: Int64s) -> None:
        words = self._table.words
        waits = slots[words[slots, EXTRA] == WAITS]
        owners, intervals = self._table.owner_of(waits).tolist(), words[waits, TIMES].tolist()
        self._since |= {p: _Since(since, slot) for p, since, slot in zip(owners, intervals, waits.tolist(), strict=True)}

    def drop(self, partition: int) -> None:
        super().drop(partition)
        self._since.pop(partition, None)


class _Since(NamedTuple):
    """The interval since which changes of a partition wait, and the slot of the row that says so."""

    interval: int
    slot: int
