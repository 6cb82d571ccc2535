"""Types of NumPy arrays, by what is in them, and NumPy arrays as Arrow's. Shapes are said where they are used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
UInt64s = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]


def arrow_of(values: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """A contiguous NumPy array as an Arrow array without nulls, sharing its memory. kind: of the same width. `pa.array` would find out what
    it has been given, which takes twice as long."""
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)], 0)


def bools_of(array: pa.Array) -> Bools:
    """bool (n,), a copy: an Arrow array of booleans without nulls. `to_numpy` does the same bit by bit, in ten times the time."""
    bits = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.empty(0, np.uint8)
    first, begin = divmod(array.offset, 8)
    return np.unpackbits(bits[first:], count=begin + len(array), bitorder="little")[begin:].view(np.bool_)
