"""Routing: which group of consumer partitions gets which row (protocol E1, E4). The producer's half of the exchange.

A row's route is a function of its key and the plan, or of its address and the plan; it is computed for all hosted partitions in one
vectorised pass. What goes to one site is one batch, however many partitions it is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.exchange.dealing import bounds_of, deal
from evenflow.exchange.inbox import merge
from evenflow.exchange.thinning import Thinned, Thinner, keep_of
from evenflow.kernels.columns import addresses_of, fixed_view, frozen
from evenflow.kernels.hash import Hashes, hash_columns, partition_of, scatter
from evenflow.kernels.route import owners_in_order, route_words
from evenflow.plan.layout import FROM_COLUMN, HASH_COLUMN, KEY_GROUPS, TO_COLUMN, Arc, Dealt, Keyed, Layout, Ranges, Segment, Spread
from evenflow.plan.plan import Plan
from evenflow.stream.arrays import arrow_of
from evenflow.stream.rows import Rows
from evenflow.stream.taking import columns_taken, is_of_eight_bytes

_UINT64, _INT32 = pa.uint64(), pa.int32()


def key_groups_of(plan: Plan, segment: Segment) -> npt.NDArray[np.int32]:
    """int32, shape (G,), read-only: the partition of each key group, of a segment that is keyed. The same array for equal ranges."""
    return _key_groups(plan.ranges_of(segment))


@lru_cache(maxsize=64)
def _key_groups(ranges: Ranges) -> npt.NDArray[np.int32]:
    starts = np.array([start for start, _ in ranges])
    groups = np.repeat(np.array([partition for _, partition in ranges], np.int32), np.diff(starts, append=KEY_GROUPS))
    groups.flags.writeable = False
    return groups


def wire_schema(arc: Arc, layout: Layout) -> pa.Schema:
    """Columns of a bundle of this arc: the user's, the key's hash where there is a key, the consumer partition where rows are dealt out,
    the producer partition where order matters."""
    schema = arc.schema
    if isinstance(arc.route, Dealt):
        schema = schema.append(pa.field(TO_COLUMN, pa.int32(), nullable=False))
    if isinstance(arc.route, Keyed):
        schema = schema.append(pa.field(HASH_COLUMN, pa.uint64(), nullable=False))
    if layout.segments[arc.consumer].sensitive or isinstance(arc.route, Spread):
        schema = schema.append(pa.field(FROM_COLUMN, pa.int32(), nullable=False))
    return schema


@dataclass(frozen=True, slots=True)
class Split:
    """How a plan groups the consumer partitions of an arc: those that live on the same sites, and move together, are sent together.

    plan: its number. groups: the partitions of each group, ascending. group_of: int32, shape (P,), the group of each partition. arc and
    key_groups: to find a row's partition again. shares: where the weights of partitions divide what is dealt out (see `dealing`). keep: by
    class, which share of 2^32 of the arc's rows goes on; empty if all do.
    """

    plan: int
    arc: Arc
    groups: tuple[tuple[int, ...], ...]
    group_of: npt.NDArray[np.int32]
    key_groups: npt.NDArray[np.int32]
    shares: npt.NDArray[np.uint32]
    keep: tuple[int, ...] = ()

    @staticmethod
    def of(arc: Arc, layout: Layout, plan: Plan) -> Split:
        consumer = layout.segments[arc.consumer]
        groups: dict[tuple[int, ...], list[int]] = {}
        copied = {p: c.number for c in plan.copies if c.segment == consumer.id for p in c.partitions}
        for partition, sites in enumerate(plan.placement[consumer.id]):
            groups.setdefault((*sites, -copied.get(partition, 0)), []).append(partition)
        group_of = np.zeros(consumer.partitions, np.int32)
        for number, partitions in enumerate(groups.values()):
            group_of[partitions] = number
        shares = bounds_of((plan.weights[consumer.id] if plan.weights else ()) or (1,) * consumer.partitions)
        return Split(
            plan.number, arc, tuple(map(tuple, groups.values())), group_of, key_groups_of(plan, consumer), shares, keep_of(plan, arc.id)
        )

    def groups_within(self, partitions: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """(groups that lie within the partitions, groups of which only some do)."""
        wanted = set(partitions)
        entire, partly = [], []
        for number, group in enumerate(self.groups):
            within = sum(p in wanted for p in group)
            if within == len(group):
                entire.append(number)
            elif within:
                partly.append(number)
        return entire, partly


@dataclass(slots=True)
class Pieces:
    """What a cohort of producer partitions put on one arc in one epoch, sorted by group of consumer partitions.

    rows: None if there are none. bounds: where each group begins, and the end. partitions: the producer partitions. owner: int32,
    shape (n,), the producer partition of each row, or None where all of it has one or the rows say it themselves. thinned: what was left
    out, where the plan keeps less than all.
    """

    split: Split
    rows: pa.RecordBatch | None
    bounds: tuple[int, ...]
    partitions: tuple[int, ...]
    owner: npt.NDArray[np.int32] | None
    bytes: int = 0
    thinned: Thinned | None = None

    def producers_of(self, start: int, end: int) -> npt.NDArray[np.int32]:
        """int32: the producer partition of each row from start to end."""
        assert self.rows is not None
        if self.owner is not None:
            return self.owner[start:end]
        at = self.rows.schema.get_field_index(FROM_COLUMN)
        if at < 0:
            return np.full(end - start, self.partitions[0], np.int32)
        named: npt.NDArray[np.int32] = self.rows.column(at).to_numpy(zero_copy_only=True)[start:end]
        return named

    def consumers_of(self, start: int, end: int) -> npt.NDArray[np.int32]:
        """int32: the consumer partition of each row from start to end."""
        assert self.rows is not None
        rows = self.rows.slice(start, end - start)
        return owners(rows, self.split.arc, self.split.key_groups, len(self.split.group_of))[0]


@dataclass(slots=True)
class Router:
    """Splits what a segment puts on one arc by group of consumer partitions.

    hashed: the rows that come carry the hash of this arc's key already. row_bytes: of a row, if all its columns are of fixed width.
    thinner: leaves rows out, where a plan may say so. words: types of what is put on the arc if that is columns of 64 bits and the hash
    behind them, which go through one kernel; else nothing. named: the producer partition of each row comes behind the hash.
    """

    arc: Arc
    schema: pa.Schema
    hashed: bool
    row_bytes: int | None
    thinner: Thinner | None = None
    words: tuple[pa.DataType, ...] = ()
    named: bool = False

    @staticmethod
    def of(arc: Arc, layout: Layout) -> Router:
        schema = wire_schema(arc, layout)
        named = schema.names[-1] == FROM_COLUMN
        words = schema.types[: len(schema) - named]
        through = isinstance(arc.route, Keyed) and all(map(is_of_eight_bytes, words))
        steps = layout.segments[arc.producer].steps
        last = steps[arc.port.step] if arc.port.step >= 0 else None
        return Router(
            arc=arc,
            schema=schema,
            hashed=last is not None
            and last.kind == "combine"
            and isinstance(arc.route, Keyed)
            and tuple(last.params["keys"]) == arc.route.columns,
            row_bytes=row_bytes_of(schema),
            thinner=Thinner.of(arc.id, layout.thins[arc.id], arc.schema) if arc.id in layout.thins else None,
            words=tuple(words) if through else (),
            named=named,
        )

    def split(self, rows: Rows, split: Split, partitions: tuple[int, ...], epoch: int) -> Pieces:
        """The rows that go on, by group; order within a producer partition is kept. partitions: the producer partitions that they may come
        from. epoch: theirs."""
        if not split.keep or self.thinner is None or not rows.count:
            return self._split(rows, split, partitions, epoch)
        kept, thinned = self.thinner.thinned(rows, epoch, split.keep)
        pieces = self._split(kept, split, partitions, epoch)
        pieces.thinned = thinned
        return pieces

    def _split(self, rows: Rows, split: Split, partitions: tuple[int, ...], epoch: int) -> Pieces:
        count = len(split.groups)
        if rows.count == 0:
            return Pieces(split, None, (0,) * (count + 1), partitions, None)
        if self.words and count > 1 and (addresses := addresses_of(rows.batch)) is not None:
            return self._routed(rows, addresses, split, partitions)
        columns: list[pa.Array] = list(rows.batch.columns)
        if isinstance(self.arc.route, Keyed):
            hashes = self._hashes(rows, self.arc.route)
            columns.append(arrow_of(hashes, _UINT64))
            partition = partition_of(hashes, split.key_groups)
        elif isinstance(self.arc.route, Spread):
            partition = rows.partition % np.int32(len(split.group_of))
        elif isinstance(self.arc.route, Dealt):
            partition = deal(rows.partition, epoch, split.shares)
            columns.append(arrow_of(partition, _INT32))
        else:
            partition = None
        named = len(columns) < len(self.schema)
        if named:
            columns.append(arrow_of(np.ascontiguousarray(rows.partition), _INT32))
        owner = None if named or len(partitions) == 1 else rows.partition
        if partition is None or count == 1:
            whole = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            return Pieces(split, whole, (0, rows.count), partitions, owner, self.size_of(whole))
        order, counts = scatter(split.group_of[partition], count)
        bounds = (0, *accumulate(counts.tolist()))
        whole = pa.RecordBatch.from_arrays(columns_taken(columns, order), schema=self.schema)
        return Pieces(split, whole, bounds, partitions, None if owner is None else owner[order], self.size_of(whole))

    def _hashes(self, rows: Rows, route: Keyed) -> Hashes:
        return rows.hash if self.hashed and rows.hash is not None else hash_columns(rows.batch, route.columns)

    def _routed(self, rows: Rows, addresses: npt.NDArray[np.int64], split: Split, partitions: tuple[int, ...]) -> Pieces:
        """`_split` of columns of 64 bits without nulls, which lie at `addresses`: one pass into one block of memory, the producers of 32
        bits last."""
        assert isinstance(self.arc.route, Keyed)
        count, width, hashes = rows.count, len(self.words), self._hashes(rows, self.arc.route)
        bounds, block = np.empty(len(split.groups) + 1, np.int64), np.empty((width + 1, count), np.int64)
        owner = block[width].view(np.int32)[:count]
        route_words(frozen(hashes), split.key_groups, frozen(split.group_of), frozen(rows.partition), addresses, bounds, block, owner)
        data = [None, pa.py_buffer(block)]
        columns = [pa.Array.from_buffers(kind, count, data, 0, at * count) for at, kind in enumerate(self.words)]
        if self.named:
            columns.append(pa.Array.from_buffers(_INT32, count, data, 0, 2 * width * count))
        whole = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        apart = None if self.named or len(partitions) == 1 else owner
        return Pieces(split, whole, tuple(bounds.tolist()), partitions, apart, self.size_of(whole))

    def size_of(self, batch: pa.RecordBatch) -> int:
        """About how many bytes a batch takes. Asking Arrow costs microseconds per column, so it is asked only where it must be."""
        return batch.num_rows * self.row_bytes if self.row_bytes is not None else int(batch.nbytes)


def row_bytes_of(schema: pa.Schema) -> int | None:
    """About how many bytes a row takes if all columns are of fixed width, else None."""
    try:
        return sum((int(field.type.bit_width) + 7) // 8 for field in schema)
    except ValueError:
        return None


def owners(
    batch: pa.RecordBatch, arc: Arc, groups: npt.NDArray[np.int32], partitions: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64] | None]:
    """The consumer partition of each row of a bundle (int32, shape (n,)), and the key's hash where the route has a key.

    groups: int32, shape (G,), the partition of each key group; partitions: P of the consumer.
    """
    if isinstance(arc.route, Keyed):
        hashes = batch.column(batch.schema.get_field_index(HASH_COLUMN)).to_numpy(zero_copy_only=True)
        return partition_of(hashes, groups), hashes
    if isinstance(arc.route, Spread):
        producer = batch.column(batch.schema.get_field_index(FROM_COLUMN)).to_numpy(zero_copy_only=True)
        return producer % np.int32(partitions), None
    if isinstance(arc.route, Dealt):
        return batch.column(batch.schema.get_field_index(TO_COLUMN)).to_numpy(zero_copy_only=True), None
    return np.zeros(batch.num_rows, np.int32), None


def gathered(
    batches: tuple[pa.RecordBatch, ...], arc: Arc, groups: npt.NDArray[np.int32], partitions: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int32], npt.NDArray[np.uint64] | None]:
    """All bundles of an arc and epoch as one batch of the arc's own columns, in address order where `_from` is carried (E2), with `owners`.

    A keyed arc's wire columns lie behind its own (`wire_schema`), so none is looked for by name.
    """
    own = len(arc.schema)
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    if isinstance(arc.route, Keyed) and whole.num_columns == own + 2 and whole.num_rows:
        producer, hashes = fixed_view(whole.column(own + 1), np.int32), fixed_view(whole.column(own), np.uint64)
        partition = np.empty(whole.num_rows, np.int32)
        if owners_in_order(frozen(producer), frozen(groups), frozen(hashes), partition):
            return whole.select(range(own)), partition, hashes
    whole = merge((whole,))
    partition, found = owners(whole, arc, groups, partitions)
    return whole if whole.num_columns == own else whole.select(range(own)), partition, found
