"""The engine-owned state of user-defined boxes: declared fields per key, as a `PagedTable` (protocol S1, S2).

A key's row has one word that says which fixed-width fields are given, then one word per such field; every other field is an
immutable Python object beside it. An epoch touches its keys once, reads their fields as arrays (`Base`), lets user code work on a
buffer (`operator/user/fields.py`), and commits. A key with nothing given has no row, so state follows what users keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.hash import Hashes, scatter
from evenflow.kernels.table import HEADER
from evenflow.operator.user.declared import Field
from evenflow.operator.user.fields import Attempt, Column
from evenflow.state.keys import KeptKeys, key_columns, to_array
from evenflow.state.pages import PagedTable
from evenflow.stream.arrays import Bools, Int64s, Objects
from evenflow.stream.kept import immutable


class Base:
    """The keys of one epoch and their state before it. Valid until it is committed or abandoned.

    slots: int64 (g,), keys in order of first appearance. new: bool (g,), the key had no state. order: int64 (n,), the rows
    grouped by key, in order within. counts: int64 (g,), rows of each key.
    """

    def __init__(self, store: KeyedStore, slots: Int64s, new: Bools, ordinals: Int64s) -> None:
        self.slots, self.new = slots, new
        self.order, self.counts = scatter(ordinals.astype(np.int32), len(slots))
        self._store = store
        self._columns: dict[str, Column] = {}

    @property
    def starts(self) -> Int64s:
        """int64 (g,): where each key begins in `order`."""
        return np.cumsum(self.counts) - self.counts

    def column(self, field: Field) -> Column:
        """One field of these keys, read when first asked for."""
        found = self._columns.get(field.name)
        if found is None:
            found = self._columns[field.name] = self._store.read(field, self.slots)
        return found


class KeyedStore(PagedTable):
    """The fields of all keys of all partitions at a site, a row per key. fields: as declared, by name. kept: where the key columns are kept
    in a row too, if they are."""

    def __init__(self, fields: Mapping[str, Field], kept: KeptKeys | None = None) -> None:
        self._fixed = {field.name: i for i, field in enumerate(f for f in fields.values() if f.fixed)}
        others = [field for field in fields.values() if not field.fixed]
        self._column_of = {field.name: i for i, field in enumerate(others)}
        self._nested = [i for i, field in enumerate(others) if field.deep]
        self._kept, self._keys_at, self._others = kept, HEADER + 1 + len(self._fixed), len(others)
        words, types = (0, []) if kept is None else (kept.words, kept.object_types)
        template = np.zeros(1 + len(self._fixed) + words, np.int64)
        timed = [i for i, field in enumerate(others) if not field.plain]  # The user has put times in as Python's.
        super().__init__(template, [*(field.column_type for field in others), *types], timed)

    def touch(self, partition: npt.NDArray[np.int32], hashes: Hashes, checks: Hashes, epoch: int) -> Base:
        """The keys of an epoch's n rows. partition: int32 (n,). hashes, checks: uint64 (n,), the keys' identity. Cost: O(n)."""
        touched = self.fold(partition, hashes, checks, epoch=epoch)
        return Base(self, touched.slots.copy(), touched.new.copy(), touched.ordinals)

    def keep_keys(self, base: Base, batch: pa.RecordBatch, keys: Sequence[str]) -> None:
        """Keep the key columns of the base's new keys. batch: the epoch's rows."""
        assert self._kept is not None
        slots = base.slots[base.new]
        if slots.size:
            columns = key_columns(batch, keys, base.order[base.starts[base.new]])
            self._kept.keep(self.words, self._keys_at, self.objects[self._others :], slots, columns)

    def keys_of(self, slots: Int64s, schema: pa.Schema) -> pa.RecordBatch:
        """The key columns that were kept for these slots, which have this schema."""
        assert self._kept is not None
        return pa.RecordBatch.from_arrays(self._kept.read(self.words, self._keys_at, self.objects[self._others :], slots), schema=schema)

    def read(self, field: Field, slots: Int64s) -> Column:
        """A field's values at these slots, as new read-only arrays."""
        if field.name in self._fixed:
            bit = self._fixed[field.name]
            words = self.words[slots, HEADER + 1 + bit]
            given = (self.words[slots, HEADER] >> bit) & 1 != 0
            return Column(field, _readonly(given), _readonly(words), None)
        objects = self.objects[self._column_of[field.name]][slots]
        return Column(field, _readonly(_is_given(objects)), None, _readonly(objects))

    def column_of(self, field: Field, slots: Int64s) -> pa.Array:
        """A field's values at these slots, null where there is none."""
        found = self.read(field, slots)
        if found.words is not None:
            return to_array(np.ascontiguousarray(found.words), field.type, ~found.given)
        assert found.objects is not None
        return pa.array(found.objects.tolist(), field.column_type)

    def commit(self, base: Base, attempt: Attempt, epoch: int) -> None:
        """Make an attempt's writes the state of the base's keys, and free the keys that have none. Cost: O(keys of the epoch)."""
        slots, words = base.slots, self.words
        given = words[slots, HEADER]
        for name, column in attempt.columns.items():
            if not column.owned:
                continue
            if column.words is not None:
                bit = self._fixed[name]
                words[slots, HEADER + 1 + bit] = np.where(column.given, column.words, 0)
                given = np.where(column.given, given | _bit(bit), given & ~_bit(bit))
            else:
                self.objects[self._column_of[name]][slots] = column.objects
        words[slots, HEADER] = given
        empty = slots[given == 0]
        for objects in self.objects[: self._others]:
            empty = empty[~_is_given(objects[empty])]
        self._free(empty, epoch)

    def abandon(self, base: Base, epoch: int) -> None:
        """Nothing happened: free the keys that were new."""
        self._free(base.slots[base.new], epoch)

    def _free(self, slots: Int64s, epoch: int) -> None:
        if len(slots):
            self.remove(slots, epoch=epoch)

    def _received(self, batch: pa.RecordBatch | None) -> list[Objects]:
        objects = super()._received(batch)
        for column in (objects[i] for i in self._nested):
            for at, value in enumerate(column.tolist()):
                column[at] = immutable(value)
        return objects


def _bit(number: int) -> np.int64:
    return np.uint64(1 << number).astype(np.int64)


def _is_given(objects: Objects) -> Bools:
    return np.fromiter((value is not None for value in objects.tolist()), np.bool_, len(objects))


def _readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
