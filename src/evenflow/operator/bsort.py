"""BSort: an approximate sort with a buffer of n rows, the same as n - 1 passes of bubble sort (Hwang thesis 2.2, from Aurora)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.kernels.heap import replace_least
from evenflow.kernels.table import CHECK, EXTRA, HASH, HEADER
from evenflow.operator.operator import Shown
from evenflow.operator.order import sort_key
from evenflow.operator.tabled import Tabled
from evenflow.state.keys import KeptKeys, identity, key_columns
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

HELD: Final = HEADER
"""Word of a key's first row in the table: how many rows its buffer holds. They follow it, least first, at EXTRA 1, 2, ..."""


class BSort(Tabled, Shown):
    """Rows of a key go into its buffer as they come; when that holds `size` rows, the least by `column` leaves.

    A row that comes out after a greater one was more than size - 1 rows late. Null is least, NaN greatest; of equal rows the one that
    came first leaves first. At the end of the stream the buffers are emptied, in order. keys: whose rows are sorted by themselves; none:
    all rows in one buffer. Output: the rows (floats in normal form: -0.0 as 0.0), in the order of the rows that made them leave.
    Cost: O(rows x log size + keys of the epoch x size). State: size - 1 rows per key.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], column: str, size: int) -> None:
        self._keys, self._column, self._size = tuple(keys), column, size
        self._kept = KeptKeys(schema, schema.names)
        self._table = PagedTable(np.zeros(1 + self._kept.words, np.int64), self._kept.object_types)
        self.schemas: tuple[pa.Schema, ...] = (schema,)
        self._none = Rows.empty(schema, keyed=True)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        out = self._none if rows.count == 0 else self._sort(rows, tick.epoch)
        if tick.last and self._table.count:
            rest = self._empty(tick.epoch)
            whole = pa.concat_batches([out.batch, rest.batch])
            assert out.hash is not None
            assert rest.hash is not None
            out = Rows(whole, np.concatenate([out.partition, rest.partition]), np.concatenate([out.hash, rest.hash]))
        return (out,)

    def _sort(self, rows: Rows, epoch: int) -> Rows:
        hashes, checks = identity(rows, self._keys)
        heads = self._table.fold(rows.partition, hashes, checks, epoch=epoch, extra=np.zeros(rows.count, np.int64))
        slots, first, held = heads.slots.copy(), heads.rows.copy(), self._table.words[heads.slots, HELD]
        # The buffers of the keys at hand, then the new rows; `line` has those of each key one after the other.
        owner, place = numbered(held)
        buffered = self._table.seek(hashes[first[owner]], checks[first[owner]], place)
        batch, key = self._joined(rows, buffered), np.concatenate([owner, heads.ordinals])
        line = np.argsort(key, kind="stable")
        by_rank, rank = self._by_value(batch, line), np.empty(line.size, np.int64)
        rank[by_rank] = np.arange(line.size)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(key, minlength=slots.size))])
        least, trigger = np.empty(line.size, np.int64), np.empty(line.size, np.int64)
        found = replace_least(rank[line], starts, self._size, least, trigger)
        left, cause = by_rank[least[:found]], line[trigger[:found]] - buffered.size
        stays = np.ones(line.size, np.bool_)
        stays[left] = False
        staying = by_rank[stays[by_rank]]
        staying = staying[np.argsort(key[staying], kind="stable")]
        owner, place = numbered(np.bincount(key[staying], minlength=slots.size))
        owners = Rows(rows.batch, rows.partition[first[owner]], hashes[first[owner]])
        self._hold(batch.take(pa.array(staying)), owners, checks[first[owner]], place, epoch)
        self._table.words[slots, HELD] = np.bincount(owner, minlength=slots.size)
        turn = np.argsort(cause)
        left, cause = left[turn], cause[turn]
        return Rows(batch.take(pa.array(left)), rows.partition[cause], hashes[cause])

    def _joined(self, rows: Rows, slots: Int64s) -> pa.RecordBatch:
        """The buffered rows at `slots`, then the new ones."""
        schema = self.schemas[0]
        kept = self._kept.read(self._table.words, HEADER + 1, self._table.objects, slots)
        new = key_columns(rows.batch, schema.names, np.arange(rows.count))
        return pa.RecordBatch.from_arrays([pa.concat_arrays(pair) for pair in zip(kept, new, strict=True)], schema=schema)

    def _by_value(self, batch: pa.RecordBatch, line: Int64s) -> Int64s:
        """Row numbers by the value sorted by, rows of equal value in the order of `line`."""
        arrival = np.empty(line.size, np.int64)
        arrival[line] = np.arange(line.size)
        value = sort_key(batch.column(self._column))
        table = pa.table([pa.array(value) if isinstance(value, np.ndarray) else value, pa.array(arrival)], names=["value", "arrival"])
        keys = [("value", "ascending", "at_start"), ("arrival", "ascending", "at_start")]
        order: Int64s = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
        return order

    def _hold(self, batch: pa.RecordBatch, owners: Rows, checks: npt.NDArray[np.uint64], place: Int64s, epoch: int) -> None:
        """Write rows of `batch` into buffers. owners: an input row of the key of each. place: from 1, in its buffer."""
        assert owners.hash is not None
        touched = self._table.fold(owners.partition, owners.hash, checks, epoch=epoch, extra=place)
        self._kept.keep(self._table.words, HEADER + 1, self._table.objects, touched.slot_of, batch.columns)

    @property
    def shown(self) -> pa.Schema:
        """The rows in the buffers."""
        return self.schemas[0]

    def show(self, partition: int) -> pa.RecordBatch:
        slots = self._table.slots_of(partition)
        body = slots[self._table.words[slots, EXTRA] > 0]
        arrays = self._kept.read(self._table.words, HEADER + 1, self._table.objects, body)
        return pa.RecordBatch.from_arrays(arrays, schema=self.shown)

    def _empty(self, epoch: int) -> Rows:
        """All buffered rows, by key and value, which are forgotten."""
        slots, words = self._table.every_slot(), self._table.words
        body = slots[words[slots, EXTRA] > 0]
        body = body[np.lexsort((words[body, EXTRA], words[body, CHECK], words[body, HASH].view(np.uint64)))]
        arrays = self._kept.read(words, HEADER + 1, self._table.objects, body)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[0])
        out = Rows(batch, self._table.owner_of(body), words[body, HASH].view(np.uint64))
        self._table.remove(slots, epoch=epoch)
        return out


def numbered(counts: Int64s) -> tuple[Int64s, Int64s]:
    """(group, number from 1 within it) of the members of groups of these sizes."""
    group = np.repeat(np.arange(counts.size), counts)
    return group, np.arange(group.size) - np.repeat(np.cumsum(counts) - counts, counts) + 1
