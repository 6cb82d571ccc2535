"""Complete: the rows that a changelog leaves, all of them, now and then (the complete output mode of Structured Streaming)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.kernels import fold
from evenflow.kernels.hash import check_words, hash_columns
from evenflow.kernels.table import HEADER
from evenflow.operator.operator import Shown, Unkeyed
from evenflow.operator.order import sort_key
from evenflow.operator.tabled import Tabled
from evenflow.state.keys import KeptKeys, key_columns
from evenflow.state.page_snapshot import State
from evenflow.state.pages import PagedTable
from evenflow.state.snapshot import Snapshot
from evenflow.stream.change import CHANGE, taken_back
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

TIMES: Final = HEADER
"""Word of a kept row: how often it is there."""

ADD_TIMES: Final = np.array([[fold.ADD, TIMES, 0, -1]], np.int64)


@dataclass(frozen=True, slots=True)
class Table:
    """One partition's rows as of the end of an epoch. since: the interval from which on its changes wait to be put out; -1: none do."""

    since: int
    rows: Snapshot

    def to_bytes(self) -> bytes:
        return self.since.to_bytes(8, "little", signed=True) + self.rows.to_bytes()


class Complete(Unkeyed, Tabled, Shown):
    """Every row of the result, in the first epoch whose stamp lies in a later interval than the first change since the last time, and in
    the last epoch, if anything has changed. Cost: O(changes), and O(n log n) of the n rows each time they are put out.

    schema: of a changelog. every_us: length of an interval, by the epochs' stamps (E6), > 0. by: (column, descending), with nulls as in
    Spark; rows that are equal in it come in order of all their columns. limit: only so many. Output: all columns but `_change`.
    State: every row that is there, once, however often it is there.
    """

    bare = False

    def __init__(self, schema: pa.Schema, *, every_us: int, by: Sequence[tuple[str, bool]] = (), limit: int | None = None) -> None:
        self._columns = [name for name in schema.names if name != CHANGE]
        result = pa.schema([schema.field(name) for name in self._columns])
        self._every_us, self._by, self._limit = every_us, tuple(by), limit
        self._kept = KeptKeys(result, self._columns)
        self._table = PagedTable(np.zeros(1 + self._kept.words, np.int64), self._kept.object_types)
        self._since: dict[int, int] = {}
        self.schemas: tuple[pa.Schema, ...] = (result, schema)
        self._none, self._no_late = Rows.empty(result), Rows.empty(schema, keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        interval = tick.stamp // self._every_us
        if rows.count:
            self._fold(rows, tick.epoch)
            for partition in np.unique(rows.partition).tolist():
                if self._table.count_of(partition):
                    self._since.setdefault(partition, interval)
                else:
                    self._since.pop(partition, None)  # A result without rows puts nothing out.
        due = [partition for partition in sorted(self._since) if tick.last or self._since[partition] < interval]
        for partition in due:
            del self._since[partition]
        return self._put_out(due) if due else self._none, self._no_late

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
        words, slots = self._table.words, self._table.slots_of(partition)
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
        words, slots = self._table.words, self._table.slots_of(partition)
        rows = self._kept.read(words, TIMES + 1, self._table.objects, slots)
        return pa.RecordBatch.from_arrays([*rows, pa.array(np.ascontiguousarray(words[slots, TIMES]))], schema=self.shown)

    def capture(self, partition: int) -> Snapshot | None:
        rows = super().capture(partition)
        return None if rows is None else Table(self._since.get(partition, -1), rows)

    def installing(self, partition: int, state: State) -> Iterator[int]:
        yield from super().installing(partition, state[8:])
        since = int.from_bytes(state[:8], "little", signed=True)
        if since >= 0:
            self._since[partition] = since

    def absorb(self, partition: int, other: Tabled) -> None:
        super().absorb(partition, other)
        assert isinstance(other, Complete)
        if (since := other._since.get(partition)) is not None:
            self._since[partition] = since

    def drop(self, partition: int) -> None:
        super().drop(partition)
        self._since.pop(partition, None)
