"""The hash of a key, the same on every machine, Python and process, for ever (protocol E1).

A key column's value becomes one 64-bit hash: fixed-width values by a bijective mix of their word (`columns.words_of`), bytes and
strings by reading eight bytes at a time, decimals by their two unscaled words, null by a constant, a structure by its fields, a list
by its elements and their places. Columns are combined in order. `check_words` is the other half of a key's identity: with one
fixed-width column the exact word, otherwise a second, independent hash (docs/decisions/0003-key-identity.md).
The test vectors in tests/kernels/test_kernels.py freeze all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import Nulls, Words, is_word, nulls_of, words_of
from evenflow.kernels.jit import inlined, kernel, load_word

Hashes = npt.NDArray[np.uint64]

# Odd constants: the two of MurmurHash3's finaliser, the primes of xxHash64, and the golden ratio.
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xA0761D6478BD642F)
_NULL_CHECK = np.uint64(0xE7037ED1A0B428DB)
_NONE = np.empty(0, np.uint8)
_S33, _S32, _S31, _S29 = np.uint64(33), np.uint64(32), np.uint64(31), np.uint64(29)
_S8, _S3, _ONE = np.uint64(8), np.uint64(3), np.uint64(1)


@inlined
def mix64(word: np.uint64) -> np.uint64:
    """A bijection of 64-bit words that spreads every bit over all (MurmurHash3's finaliser; 0 does not stay 0)."""
    word = np.uint64(word) + _GOLDEN
    word ^= word >> _S33
    word *= _M1
    word ^= word >> _S33
    word *= _M2
    word ^= word >> _S33
    return word


@inlined
def _rotate(word: np.uint64, left: np.uint64) -> np.uint64:
    return (word << left) | (word >> (np.uint64(64) - left))


@inlined
def _join(total: np.uint64, value: np.uint64, salt: np.uint64) -> np.uint64:
    """Combine the hash of the columns before with this column's, order-sensitively."""
    return mix64(_rotate(total, _S29) * _P1 + (value ^ salt))


@inlined
def _salted(value: np.uint64, salt: np.uint64) -> np.uint64:
    """`mix64` for the first hash (salt 0), another bijection for the second."""
    if salt == np.uint64(0):
        return mix64(value)
    return mix64(mix64(value ^ salt) * _P3)


@kernel(
    "void(Array(int64, 1, 'C', readonly=True), uint8[::1], uint64[::1], boolean, uint64)",
    "void(int64[::1], uint8[::1], uint64[::1], boolean, uint64)",
)
def _fold_words(words: Words, nulls: Nulls, total: Hashes, first: bool, salt: np.uint64) -> None:
    has_nulls = nulls.size > 0
    for row in range(words.size):
        value = _salted(np.uint64(words[row]), salt)
        if has_nulls and nulls[row]:
            value = _NULL ^ salt
        total[row] = value if first else _join(total[row], value, salt)


@inlined
def _bytes_hash(data: npt.NDArray[np.uint8], start: np.int64, stop: np.int64, salt: np.uint64) -> np.uint64:
    """Eight bytes a round, each round bijective in the state and in the word; length and tail go in last."""
    state = _P5 ^ salt
    multiplier = _P2 if salt == np.uint64(0) else _P4
    at = start
    while at + 8 <= stop:
        state = _rotate(state ^ _rotate(load_word(data, at) * multiplier, _S31) * _P1, _S29) * _P1 + _P4
        at += 8
    tail = np.uint64(0)
    shift = np.uint64(0)
    while at < stop:
        tail |= np.uint64(data[at]) << shift
        shift += _S8
        at += 1
    state = state ^ _rotate(tail * multiplier, _S31) * _P1
    return _salted(mix64(state) + np.uint64(stop - start) * _P3, salt)


@kernel(
    "void(Array(int32, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True), uint8[::1], uint64[::1], boolean, uint64)",
    "void(Array(int64, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True), uint8[::1], uint64[::1], boolean, uint64)",
)
def _fold_bytes(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], nulls: Nulls, total: Hashes, first: bool, salt: np.uint64
) -> None:
    has_nulls = nulls.size > 0
    for row in range(offsets.size - 1):
        if has_nulls and nulls[row]:
            value = _NULL ^ salt
        else:
            value = _bytes_hash(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), salt)
        total[row] = value if first else _join(total[row], value, salt)


@kernel("void(Array(int64, 2, 'C', readonly=True), uint8[::1], uint64[::1], boolean, uint64)")
def _fold_decimals(words: Words, nulls: Nulls, total: Hashes, first: bool, salt: np.uint64) -> None:
    has_nulls = nulls.size > 0
    for row in range(words.shape[0]):
        value = _join(_salted(np.uint64(words[row, 0]), salt), np.uint64(words[row, 1]), salt)
        if has_nulls and nulls[row]:
            value = _NULL ^ salt
        total[row] = value if first else _join(total[row], value, salt)


def _readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _fold_column(array: pa.Array, total: Hashes, first: bool, salt: np.uint64) -> None:
    kind = array.type
    if is_word(kind):
        nulls = np.ones(len(array), np.uint8) if pa.types.is_null(kind) else nulls_of(array)
        _fold_words(np.ascontiguousarray(words_of(array)), nulls, total, first, salt)
    elif pa.types.is_dictionary(kind):
        _fold_column(array.dictionary_decode(), total, first, salt)
    elif pa.types.is_decimal(kind):
        if not pa.types.is_decimal128(kind):
            array = array.cast(pa.decimal128(38, kind.scale))
        data = array.buffers()[1]
        pairs = np.frombuffer(data, np.int64, 2 * len(array), array.offset * 16).reshape(-1, 2)
        _fold_decimals(_readonly(pairs), nulls_of(array), total, first, salt)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        _, offset_buffer, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else np.int32
        offsets = np.frombuffer(offset_buffer, width, len(array) + 1, array.offset * np.dtype(width).itemsize)
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        _fold_bytes(_readonly(offsets), _readonly(content), nulls_of(array), total, first, salt)
    elif pa.types.is_nested(kind):
        words = _structs(array, salt) if pa.types.is_struct(kind) else _lists(array, salt)
        _fold_words(_readonly(words.view(np.int64)), nulls_of(array), total, first, salt)
    else:
        raise TypeError(f"a key column cannot be of type {kind}: use a scalar type, or cast it to a string")


def _structs(array: pa.Array, salt: np.uint64) -> Hashes:
    """uint64 (n,): the hash of the fields in their order; undefined where null."""
    total = np.zeros(len(array), np.uint64)
    for position, field in enumerate(array.flatten()):
        _fold_column(field, total, position == 0, salt)
    return total


def _lists(array: pa.Array, salt: np.uint64) -> Hashes:
    """uint64 (n,): the sum of a hash of each element and its place, and of the length; of maps, of keys and values in their order."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    if offsets.size == 0:
        return np.zeros(0, np.uint64)
    start, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    elements = np.zeros(size, np.uint64)
    if size:
        for position, part in enumerate(parts):
            _fold_column(part.slice(start, size), elements, position == 0, salt)
    ends = offsets[1:] - start
    lengths = np.diff(offsets)
    within = np.arange(size) - np.repeat(ends - lengths, lengths)
    placed = np.zeros(size, np.uint64)
    _fold_words(_readonly((elements + (2 * within.astype(np.uint64) + _ONE) * _P2).view(np.int64)), _NONE, placed, True, salt)
    sums: Hashes = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    return np.asarray(sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64) * _P3, np.uint64)


def _hash(batch: pa.RecordBatch, columns: Sequence[str], salt: np.uint64) -> Hashes:
    total = np.zeros(batch.num_rows, np.uint64)
    if batch.num_rows:
        for position, name in enumerate(columns):
            _fold_column(batch.column(name), total, position == 0, salt)
    return total


def hash_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """uint64 (n,): the stable hash of the key columns, in order; zeros for no columns. Cost: about 1 ns per fixed-width value."""
    return _hash(batch, columns, np.uint64(0))


def check_words(batch: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """uint64 (n,): with the hash, the identity of the key.

    One fixed-width column: its exact word, so that identity is equality. Otherwise a second hash, 128 bits in all. Null has a
    word of its own, which no value with null's hash has.
    """
    if len(columns) == 1 and is_word(batch.schema.field(columns[0]).type):
        array = batch.column(columns[0])
        words = words_of(array).view(np.uint64)
        if array.null_count:
            words = np.where(nulls_of(array).view(np.bool_), _NULL_CHECK, words)
        return np.ascontiguousarray(words)
    return _hash(batch, columns, _P4)


def table_of_ranges(partitions: int, groups: int = 4096) -> npt.NDArray[np.int32]:
    """int32 (groups,): the partition of each key group, contiguous ranges of nearly equal size. partitions: 1 to groups."""
    if not 1 <= partitions <= groups:
        raise ValueError(f"{partitions} partitions: choose between 1 and the number of key groups, {groups}")
    return (np.arange(groups, dtype=np.int64) * partitions // groups).astype(np.int32)


@kernel(
    "int32[::1](Array(uint64, 1, 'C', readonly=True), Array(int32, 1, 'C', readonly=True))",
    "int32[::1](uint64[::1], int32[::1])",
)
def partition_of(hashes: Hashes, table: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """int32 (n,): the partition of each hash. Its key group is the hash's upper half scaled to the table's length G <= 2**32."""
    groups = np.uint64(table.size)
    partition = np.empty(hashes.size, np.int32)
    for row in range(hashes.size):
        partition[row] = table[((hashes[row] >> _S32) * groups) >> _S32]
    return partition


@kernel(
    "Tuple((int64[::1], int64[::1]))(int32[::1], int64)",
    "Tuple((int64[::1], int64[::1]))(Array(int32, 1, 'C', readonly=True), int64)",
)
def scatter(destination: npt.NDArray[np.int32], destinations: int) -> tuple[Words, Words]:
    """(order int64 (n,), counts int64 (destinations,)): a stable counting sort of the rows by destination."""
    counts = np.zeros(destinations, np.int64)
    for row in range(destination.size):
        counts[destination[row]] += 1
    start = np.empty(destinations, np.int64)
    total = 0
    for to in range(destinations):
        start[to] = total
        total += counts[to]
    order = np.empty(destination.size, np.int64)
    for row in range(destination.size):
        to = destination[row]
        order[start[to]] = row
        start[to] += 1
    return order, counts
