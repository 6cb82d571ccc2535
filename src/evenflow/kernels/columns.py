"""NumPy views of Arrow columns, and the one normal form that equal values share.

A fixed-width value becomes one int64 **word**: integers, booleans, dates, timestamps and intervals by value, floats by the bits of their
normal form (float64, -0.0 as 0.0, one NaN). Views honour the array's offset; nothing is copied that need not be.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.jit import kernel
from evenflow.stream.arrays import Floats

Words = npt.NDArray[np.int64]
Nulls = npt.NDArray[np.uint8]

NO_NULLS: Nulls = np.empty(0, np.uint8)

_WORDS: Final = frozenset(
    kind.id
    for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.bool_(), pa.date32(),
        pa.timestamp("us"), pa.duration("us"), pa.float16(), pa.float32(), pa.float64(), pa.null(),
    )
)  # fmt: skip
_INT64: Final = pa.int64().id


def is_word(kind: pa.DataType) -> bool:
    """Whether values of the type fit one int64 word."""
    return kind.id in _WORDS


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only, contiguous view: the one form of input that kernels are compiled for."""
    flags = array.flags
    if flags.c_contiguous and not flags.writeable:
        return array
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def nulls_of(array: pa.Array) -> Nulls:
    """uint8 (n,), 1 where the value is null; empty where the column has no null."""
    if array.null_count == 0:
        return NO_NULLS
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False)).view(np.uint8)


def fixed_view(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of a fixed-width column as they lie in memory; undefined where null."""
    size = len(array)
    data = array.buffers()[1]
    if size == 0 or data is None:
        return np.zeros(size, dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(data, dtype, size, array.offset * width)


def addresses_of(batch: pa.RecordBatch) -> Words | None:
    """int64 (c,): where in memory each column begins, of values of eight bytes, as long as the batch is; None where one has nulls. The
    batch has a row at least."""
    found = []
    for array in batch.columns:
        if array.null_count:
            return None
        found.append(array.buffers()[1].address + 8 * array.offset)
    return np.array(found, np.int64)


def integers_of(array: pa.Array) -> Words:
    """int64 (n,) of an integer, boolean, date or timestamp (microseconds) column; undefined where null."""
    kind = array.type
    if kind.id == _INT64:
        return fixed_view(array, np.int64)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_boolean(kind):
        array, kind = array.cast(pa.int8()), pa.int8()
    elif pa.types.is_timestamp(kind) and kind.unit != "us":
        array = array.cast(pa.timestamp("us", kind.tz), safe=False)
    width = kind.bit_width // 8
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    return fixed_view(array, f"{sign}{width}").astype(np.int64, copy=False)


def floats_of(array: pa.Array) -> Floats:
    """float64 (n,) of a numeric column; undefined where null."""
    if pa.types.is_floating(array.type):
        return fixed_view(array, f"f{array.type.bit_width // 8}").astype(np.float64, copy=False)
    return integers_of(array).astype(np.float64)


def words_of(array: pa.Array) -> Words:
    """int64 (n,): the normal form of a fixed-width column (`is_word`); undefined where null."""
    if array.type.id == _INT64:
        return fixed_view(array, np.int64)
    if pa.types.is_floating(array.type):
        return normal_floats(np.ascontiguousarray(floats_of(array)))
    return integers_of(array)


@kernel("int64[::1](float64[::1])", "int64[::1](Array(float64, 1, 'C', readonly=True))")
def normal_floats(values: Floats) -> Words:
    """int64 (n,): bits of each value, -0.0 as 0.0 and every NaN as the one NaN."""
    words = np.empty(values.size, np.int64)
    bits = words.view(np.float64)
    for row in range(values.size):
        value = values[row]
        if np.isnan(value):
            words[row] = 0x7FF8000000000000
        else:
            bits[row] = value + 0.0
    return words


@kernel("int64[::1](float64[::1])", "int64[::1](Array(float64, 1, 'C', readonly=True))")
def ordered_floats(values: Floats) -> Words:
    """int64 (n,) that sort as Spark sorts doubles: -inf < ... < -0.0 < 0.0 < ... < inf < NaN."""
    words = np.empty(values.size, np.int64)
    bits = words.view(np.float64)
    for row in range(values.size):
        value = values[row]
        if np.isnan(value):
            words[row] = 0x7FF8000000000000
        else:
            bits[row] = value
            if words[row] < 0:
                words[row] ^= 0x7FFFFFFFFFFFFFFF
    return words


def unordered_floats(words: Words) -> Floats:
    """The inverse of `ordered_floats`."""
    return np.where(words < 0, words ^ np.int64(0x7FFFFFFFFFFFFFFF), words).view(np.float64)
