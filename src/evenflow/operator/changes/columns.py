"""Values of kept rows: words of a table's rows where they fit one, Python objects beside them where not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import floats_of, is_word, nulls_of, words_of
from evenflow.query.ranked import SHORT
from evenflow.state.keys import to_array, to_objects
from evenflow.stream.arrays import Int64s, Objects

_BITS: Final = 63
"""Columns that share a word of null bits."""


class KeptColumns:
    """Where the columns of a schema lie in rows of a table. words: how many they need. object_types: of the object columns they need.

    first: the word of a row where they begin; loose: which object column is their first.
    """

    def __init__(self, schema: pa.Schema, first: int, loose: int) -> None:
        self.schema, self._first = schema, first
        fixed = [number for number, field in enumerate(schema) if is_word(field.type) or _is_short(field.type)]
        self._word = {number: first + at for at, number in enumerate(fixed)}
        others = [number for number in range(len(schema)) if number not in self._word]
        self._object = {number: loose + at for at, number in enumerate(others)}
        self._null = first + len(fixed)
        self._bit = {number: divmod(at, _BITS) for at, number in enumerate(fixed)}
        self.words = len(fixed) + -(-len(fixed) // _BITS)
        self.object_types = [schema.field(number).type for number in others]

    def keep(self, words: Int64s, objects: Sequence[Objects], slots: Int64s, columns: Sequence[pa.Array]) -> None:
        """Write values at slots. columns: arrays of the schema's types, a row for each slot."""
        bits = np.zeros((-(-len(self._word) // _BITS), slots.size), np.int64)
        for number, word in self._word.items():
            array = columns[number]
            values = unscaled(array) if _is_short(array.type) else _signed(array) if pa.types.is_floating(array.type) else words_of(array)
            if array.null_count:
                null = nulls_of(array) != 0
                values = np.where(null, 0, values)
                row, bit = self._bit[number]
                bits[row] |= null.astype(np.int64) << bit
            words[slots, word] = values
        for row, values in enumerate(bits):
            words[slots, self._null + row] = values
        for number, at in self._object.items():
            objects[at][slots] = to_objects(columns[number])

    def read(self, words: Int64s, objects: Sequence[Objects], slots: Int64s, number: int) -> pa.Array:
        """One column of the rows at slots."""
        kind = self.schema.field(number).type
        if number in self._object:
            return pa.array(objects[self._object[number]][slots].tolist(), kind)
        row, bit = self._bit[number]
        null = (words[slots, self._null + row] >> bit & 1).astype(np.bool_)
        values = np.ascontiguousarray(words[slots, self._word[number]])
        return _scaled(values, kind, null) if _is_short(kind) else to_array(values, kind, null)

    def rows(self, words: Int64s, objects: Sequence[Objects], slots: Int64s) -> pa.RecordBatch:
        """All columns of the rows at slots."""
        schema = pa.schema([field.with_nullable(True) for field in self.schema])
        return pa.RecordBatch.from_arrays([self.read(words, objects, slots, number) for number in range(len(schema))], schema=schema)


def _is_short(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind)) and kind.precision <= SHORT


def unscaled(array: pa.Array) -> Int64s:
    """int64 (n,): the whole numbers that short decimals are; undefined where null."""
    halves = np.frombuffer(array.buffers()[1] or b"", np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return np.ascontiguousarray(halves[::2])


def _signed(array: pa.Array) -> Int64s:
    """The bits of floats, with the sign of zero, and every NaN as the one NaN."""
    values = floats_of(array)
    return np.where(np.isnan(values), np.nan, values).view(np.int64)


def _scaled(values: Int64s, kind: pa.DataType, null: npt.NDArray[np.bool_]) -> pa.Array:
    halves = np.empty((values.size, 2), np.int64)
    halves[:, 0], halves[:, 1] = values, values >> 63
    valid = pa.array(~null).buffers()[1] if null.any() else None
    return pa.Array.from_buffers(kind, values.size, [valid, pa.py_buffer(halves)])
