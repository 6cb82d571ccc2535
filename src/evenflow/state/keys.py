"""Key columns of results: taken from the rows that brought the keys, or kept beside the totals until a window closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import is_word, nulls_of, words_of
from evenflow.kernels.hash import Hashes, check_words, hash_columns
from evenflow.kernels.table import CHECK, HASH
from evenflow.stream.arrays import Int64s
from evenflow.stream.rows import Rows
from evenflow.stream.taking import columns_taken
from evenflow.stream.values import plain_values

_AS_WORDS: Final = frozenset((pa.int64().id, pa.uint64().id, pa.float64().id))
"""Ids of the types whose values are their words."""
_AS_THEY_ARE: Final = frozenset((pa.int32().id, pa.int64().id, pa.string().id, pa.timestamp("us").id))
"""Ids of types that most keys are of, whose values have one form only."""
_BITS: Final = 64
"""Columns that share a word of null bits."""
IDENTITY: Final = (pa.field("_key_hash", pa.int64(), False), pa.field("_key_check", pa.int64(), False))
"""Columns by which a key is told where the key itself is not known: the bits of its `identity`."""


def identity(rows: Rows, keys: Sequence[str]) -> tuple[Hashes, Hashes]:
    """(hash, check), uint64 (n,) each. A segment without a key of its own has no hashes: they are computed here."""
    hashes = rows.hash if rows.hash is not None else hash_columns(rows.batch, keys)
    return hashes, check_words(rows.batch, keys)


def key_columns(batch: pa.RecordBatch, keys: Sequence[str], rows: Int64s) -> list[pa.Array]:
    """The key columns at `rows`. Floats in normal form (-0.0 as 0.0, one NaN), as Spark groups them."""
    return [_normal(column) for column in columns_taken([batch.column(key) for key in keys], rows)]


def _normal(array: pa.Array) -> pa.Array:
    if array.type.id in _AS_THEY_ARE:
        return array
    if pa.types.is_struct(array.type):
        parts = [_normal(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(array.type), mask=array.is_null() if array.null_count else None)
    if pa.types.is_list(array.type):
        offsets = np.append(0, np.cumsum(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)))
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), _normal(array.flatten()), mask=mask)
    if not pa.types.is_floating(array.type):
        return array
    return to_array(words_of(array), array.type, nulls_of(array).view(np.bool_) if array.null_count else None)


def to_array(words: Int64s, kind: pa.DataType, null: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Arrow array of a fixed-width type from its words. null: bool (n,), or None where nothing is null."""
    if null is not None and not null.any():
        null = None
    if null is None and kind.id in _AS_WORDS:
        return pa.Array.from_buffers(kind, words.size, [None, pa.py_buffer(np.ascontiguousarray(words))])
    if pa.types.is_floating(kind):
        return pa.array(words.view(np.float64).astype(f"f{kind.bit_width // 8}", copy=False), kind, mask=null)
    if pa.types.is_boolean(kind):
        return pa.array(words != 0, mask=null)
    if pa.types.is_timestamp(kind):
        array = pa.array(words, mask=null).view(pa.timestamp("us", kind.tz))
        return array if kind.unit == "us" else array.cast(kind)
    if pa.types.is_duration(kind):
        return pa.array(words, mask=null).view(pa.duration("us")).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(words.astype(np.int32), mask=null).view(kind)
    if pa.types.is_null(kind):
        return pa.nulls(words.size)
    return pa.array(words.astype(kind.to_pandas_dtype(), copy=False), kind, mask=null)


def to_objects(array: pa.Array) -> npt.NDArray[np.object_]:
    """The values as an object array; null is None, a time its whole number."""
    values = np.empty(len(array), object)
    values[:] = plain_values(array)
    return values


def describe(columns: Sequence[pa.Array], keys: Sequence[str], position: int) -> str:
    """A key for a message: "(a=1, b='x')"."""
    return "(" + ", ".join(f"{k}={c[position].as_py()!r}" for k, c in zip(keys, columns, strict=True)) + ")"


class TracedKeys:
    """What a table tells of its keys if they are not kept in it. A key of one column of fixed width is in its identity (`check_words`); of
    any other there is the identity alone.

    fields: of the columns that there are.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        columns = [schema.field(key) for key in keys]
        self._exact = len(columns) == 1 and is_word(columns[0].type)
        self.fields: Sequence[pa.Field] = columns if self._exact or not columns else IDENTITY

    def read(self, words: Int64s, slots: Int64s) -> list[pa.Array]:
        """The columns, of the rows of the table at some slots."""
        if not self.fields:
            return []
        hashes, checks = (np.ascontiguousarray(words[slots, place]) for place in (HASH, CHECK))
        if not self._exact:
            return [pa.array(hashes), pa.array(checks)]
        nothing = pa.RecordBatch.from_arrays([pa.nulls(1, self.fields[0].type)], schema=pa.schema(self.fields))
        names = nothing.schema.names
        null = (hashes.view(np.uint64) == hash_columns(nothing, names)[0]) & (checks.view(np.uint64) == check_words(nothing, names)[0])
        return [to_array(np.where(null, 0, checks), self.fields[0].type, null)]


class KeptKeys:
    """Keys kept in a `PagedTable`: fixed-width ones as words with words of null bits behind them, others as objects.

    words: how many it needs. object_types: of the object columns it needs.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._fields = [schema.field(key) for key in keys]
        self._fixed = [i for i, field in enumerate(self._fields) if is_word(field.type)]
        self._loose = [i for i, field in enumerate(self._fields) if not is_word(field.type)]
        self._null_words = -(-len(self._fixed) // _BITS)
        self.words = len(self._fixed) + self._null_words
        self.object_types = [self._fields[i].type for i in self._loose]

    def keep(self, words: Int64s, first: int, objects: Sequence[npt.NDArray[Any]], slots: Int64s, columns: Sequence[pa.Array]) -> None:
        """Write the keys of new slots: words from column `first` on, objects into the given columns."""
        null_bits = [np.zeros(slots.size, np.int64) for _ in range(self._null_words)]
        for position, i in enumerate(self._fixed):
            array = columns[i]
            words[slots, first + position] = words_of(array)
            if array.null_count:
                words[slots[nulls_of(array) != 0], first + position] = 0
                null_bits[position // _BITS] |= nulls_of(array).astype(np.int64) << position % _BITS
        for number, bits in enumerate(null_bits, first + len(self._fixed)):
            words[slots, number] = bits
        for column, i in zip(objects, self._loose, strict=True):
            column[slots] = to_objects(columns[i])

    def read(self, words: Int64s, first: int, objects: Sequence[npt.NDArray[Any]], slots: Int64s) -> list[pa.Array]:
        """The key columns of some slots."""
        arrays: list[pa.Array] = [None] * len(self._fields)
        begin = first + len(self._fixed)
        null_bits = [words[slots, number] for number in range(begin, begin + self._null_words)]
        for position, i in enumerate(self._fixed):
            null = (null_bits[position // _BITS] >> position % _BITS & 1).astype(np.bool_)
            arrays[i] = to_array(np.ascontiguousarray(words[slots, first + position]), self._fields[i].type, null)
        for column, i in zip(objects, self._loose, strict=True):
            arrays[i] = pa.array(column[slots].tolist(), self._fields[i].type)
        return arrays
