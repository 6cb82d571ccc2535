"""How boxes for running results keep rows of each key in the keyed store: a field per column and place, or, where those would be too
many, a list per column.

Fields of fixed width are words, which are read and written as arrays; a list is a Python object per key.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.schema import parse_ddl

MOST_FIELDS: Final = 60
"""A key's state has at most 64 fields of fixed width."""


class Kept(Protocol):
    """The first rows of each of g keys of an epoch, in the order of their places."""

    schema: pa.Schema

    def open(self, store: Any) -> None:
        """Declare the fields."""

    def read(self, state: Any) -> tuple[Int64s, pa.RecordBatch]:
        """(rows of each key, int64 (g,); those rows, one key after the other)."""

    def write(self, state: Any, counts: Int64s, rows: pa.RecordBatch, changed: Bools) -> None:
        """Make `rows`, as `read` returns them, the kept ones of the keys that have changed. changed: bool (g,)."""


@lru_cache(maxsize=256)
def kept(columns: str, places: int) -> Kept:
    """The one that suits so many rows a key with these columns, as DDL."""
    schema = parse_ddl(columns)
    return Placed(schema, places) if places * len(schema) <= MOST_FIELDS else Listed(schema)


class Placed:
    """A field per column and place, and how many places are taken."""

    def __init__(self, schema: pa.Schema, places: int) -> None:
        self.schema, self._places = schema, places

    def open(self, store: Any) -> None:
        store.value("held", "bigint", default=0)
        for place in range(self._places):
            for number, field in enumerate(self.schema):
                store.value(f"c{number}_{place}", field.type)

    def read(self, state: Any) -> tuple[Int64s, pa.RecordBatch]:
        counts = state.held.get()
        # Places are columns of these arrays, so that what is taken of a row comes out in the order of its places.
        taken = np.arange(counts.max(initial=0)) < counts[:, None]
        arrays = []
        for number, field in enumerate(self.schema):
            values = [getattr(state, f"c{number}_{place}") for place in range(taken.shape[1])]
            arrays.append(_flat(values, taken, field.type) if values else pa.array([], field.type))
        return counts, pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def write(self, state: Any, counts: Int64s, rows: pa.RecordBatch, changed: Bools) -> None:
        # Places that are free and stay so need not be written.
        most = max(counts.max(initial=0), state.held.get().max(initial=0))
        state.held.put(counts, changed)
        first = np.cumsum(counts) - counts
        for place in range(most):
            index = pa.array(first + place, mask=counts <= place)
            for number, column in enumerate(rows.columns):
                getattr(state, f"c{number}_{place}").put(column.take(index), changed)


def _flat(values: list[Any], taken: Bools, kind: pa.DataType) -> pa.Array:
    """The values of a column, one key after the other. values: of each place. taken: bool (g, places)."""
    flat = np.stack([each.get() for each in values], axis=1)[taken]
    if flat.dtype == object:
        return pa.array(flat.tolist(), kind)
    there = np.stack([each.exists() for each in values], axis=1)[taken]
    return pa.array(flat, kind, mask=~there)


class Listed:
    """A list per column."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def open(self, store: Any) -> None:
        for number, field in enumerate(self.schema):
            store.list(f"c{number}", field.type)

    def read(self, state: Any) -> tuple[Int64s, pa.RecordBatch]:
        lists = [getattr(state, f"c{number}").get() for number in range(len(self.schema))]
        counts = np.fromiter((len(values) for values in lists[0]), np.int64, len(lists[0]))
        arrays = [pa.array(list(chain.from_iterable(values)), field.type) for field, values in zip(self.schema, lists, strict=True)]
        return counts, pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def write(self, state: Any, counts: Int64s, rows: pa.RecordBatch, changed: Bools) -> None:
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        for number, column in enumerate(rows.columns):
            getattr(state, f"c{number}").put(pa.ListArray.from_arrays(offsets, column), changed)
