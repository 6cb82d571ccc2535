"""Rows of 64-bit columns sorted by destination, in one pass from where they lie to one block: what an exchange does with most epochs.

An epoch has few rows, and what it costs is the number of steps. So a kernel is given the addresses of columns, and not arrays of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from evenflow.kernels.columns import Words
from evenflow.kernels.hash import Hashes
from evenflow.kernels.jit import kernel

_S32 = np.uint64(32)


def _word_at(typing_context: Any, address: Any, index: Any) -> Any:
    """word_at(address: int64, index: int64) -> int64: the word with this number from an address on."""
    signature = types.int64(types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        word = builder.load(builder.gep(words, [arguments[1]]))
        word.align = 1  # Who makes a batch need not align it.
        return word

    return signature, generate


word_at: Any = intrinsic(_word_at)


@kernel(
    "void(Array(uint64, 1, 'C', readonly=True), Array(int32, 1, 'C', readonly=True), Array(int32, 1, 'C', readonly=True), "
    "Array(int32, 1, 'C', readonly=True), int64[::1], int64[::1], int64[:, ::1], int32[::1])"
)
def route_words(
    hashes: Hashes,
    table: npt.NDArray[np.int32],
    group_of: npt.NDArray[np.int32],
    producer: npt.NDArray[np.int32],
    addresses: Words,
    bounds: Words,
    out: Words,
    owner: npt.NDArray[np.int32],
) -> None:
    """Sort rows by the group of their hash's partition; those of a group stay in order.

    hashes: uint64 (n,). table: int32 (G,), the partition of each key group. group_of: int32 (P,), the group of each partition. producer:
    int32 (n,), the partition that a row comes from. addresses: int64 (c,), where the n words of each column lie. Written are bounds:
    int64 (groups + 1,), where each group begins, and the end. out: int64 (at least c + 1, n), the columns in that order, and the hashes.
    owner: int32 (n,), the producers in that order.
    """
    n, key_groups = hashes.size, np.uint64(table.size)
    group, order = out[addresses.size], np.empty(n, np.int64)
    bounds[:] = 0
    for row in range(n):
        group[row] = group_of[table[((hashes[row] >> _S32) * key_groups) >> _S32]]
        bounds[group[row] + 1] += 1
    for number in range(1, bounds.size):
        bounds[number] += bounds[number - 1]
    for row in range(n):
        order[bounds[group[row]]] = row
        bounds[group[row]] += 1
    for number in range(bounds.size - 1, 0, -1):
        bounds[number] = bounds[number - 1]
    bounds[0] = 0
    for column in range(addresses.size):
        address = addresses[column]
        for at in range(n):
            out[column, at] = word_at(address, order[at])
    for at in range(n):
        group[at] = np.int64(hashes[order[at]])
        owner[at] = producer[order[at]]


@kernel("boolean({0}, {0}, Array(uint64, 1, 'C', readonly=True), int32[::1])".format("Array(int32, 1, 'C', readonly=True)"))
def owners_in_order(
    producer: npt.NDArray[np.int32], table: npt.NDArray[np.int32], hashes: Hashes, partition: npt.NDArray[np.int32]
) -> bool:
    """Whether rows come in the order of their producer partitions. What a consumer asks of every epoch, in one call.

    producer: int32 (n,). table: int32 (G,), the partition of each key group. hashes: uint64 (n,). Written is partition: int32 (n,), that of
    each row's hash.
    """
    key_groups, ordered = np.uint64(table.size), True
    for row in range(hashes.size):
        partition[row] = table[((hashes[row] >> _S32) * key_groups) >> _S32]
        ordered &= row == 0 or producer[row] >= producer[row - 1]
    return ordered
