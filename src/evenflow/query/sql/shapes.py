"""Structures, lists and maps taken apart into arrays of their parts, and put together again.

Everything is a slice's own: offsets begin at zero, parts of what is null are null or not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.query.sql.node import Kernel, Value, spread
from evenflow.stream.arrays import Bools, Int64s


def over_arrays(kernel: Kernel) -> Kernel:
    """A kernel that knows arrays only, for values of which some are scalars, or all."""

    def run(*values: Value) -> Value:
        count = next((len(v) for v in values if not isinstance(v, pa.Scalar)), None)
        if count is None:
            return kernel(*(spread(v, 1) for v in values))[0]
        return kernel(*(spread(v, count) for v in values))

    return run


def nulls(array: pa.Array) -> Bools:
    """bool (n,): which values are null."""
    found: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return found


def mask_of(array: pa.Array) -> pa.Array | None:
    """The same as Arrow's constructors take it, None where nothing is null."""
    return array.is_null() if array.null_count else None


def struct_from(arrays: Sequence[pa.Array], type_: pa.DataType, mask: pa.Array | None = None) -> pa.Array:
    """A structure of its fields. mask: which are null."""
    return pa.StructArray.from_arrays(list(arrays), fields=list(type_), mask=mask)


def starts_of(lengths: Int64s) -> Int64s:
    """int64 (n + 1,): where each of several runs begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def lengths_of(array: pa.Array) -> Int64s:
    """int64 (n,): how many elements each list or map has, 0 for null."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    lengths: Int64s = np.diff(offsets)
    if array.null_count:
        lengths = np.where(nulls(array), 0, lengths)
    return lengths


def elements_of(array: pa.Array) -> pa.Array:
    """The elements of all lists, one after the other; of maps their entries, as structures of key and value."""
    if not pa.types.is_map(array.type):
        return array.flatten()
    keys, items = entries_of(array)
    return pa.StructArray.from_arrays([keys, items], fields=list(entry_type(array.type)))


def entries_of(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The keys and the values of all maps, one after the other."""
    offsets = np.asarray(array.offsets)
    if len(offsets) == 0:
        return array.keys.slice(0, 0), array.items.slice(0, 0)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, items = array.keys.slice(first, size), array.items.slice(first, size)
    if array.null_count and size != int(lengths_of(array).sum()):  # A null may have entries that nobody can see.
        seen = pa.array(np.repeat(~nulls(array), np.diff(offsets)))
        keys, items = keys.filter(seen), items.filter(seen)
    return keys, items


def entry_type(type_: Any) -> pa.DataType:
    """What an entry of a map is as a structure."""
    return pa.struct([pa.field("key", type_.key_type), pa.field("value", type_.item_type)])


def list_from(lengths: Int64s, elements: pa.Array, mask: pa.Array | None = None) -> pa.Array:
    """Lists of these elements. lengths: int64 (n,). mask: which are null."""
    return pa.ListArray.from_arrays(pa.array(starts_of(lengths).astype(np.int32)), elements, mask=mask)


def map_from(lengths: Int64s, keys: pa.Array, items: pa.Array, mask: pa.Array | None = None) -> pa.Array:
    """Maps of these entries. lengths: int64 (n,). mask: which are null."""
    return pa.MapArray.from_arrays(pa.array(starts_of(lengths).astype(np.int32)), keys, items, mask=mask)


def owners_of(lengths: Int64s) -> Int64s:
    """int64: the row that each element belongs to."""
    return np.repeat(np.arange(lengths.size), lengths)


def woven(arrays: Sequence[pa.Array]) -> pa.Array:
    """The first values of all arrays, then the second ones, and so on. arrays: at least one, of one type and length."""
    if len(arrays) == 1:
        return arrays[0]
    count, length = len(arrays), len(arrays[0])
    order = np.arange(count * length).reshape(count, length).T.reshape(-1)
    return pa.concat_arrays(list(arrays)).take(pa.array(order))


__all__ = [
    "elements_of", "entries_of", "entry_type", "lengths_of", "list_from", "map_from", "mask_of", "nulls", "over_arrays", "owners_of",
    "starts_of", "struct_from", "woven",
]  # fmt: skip
