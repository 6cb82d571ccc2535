"""Folding values into rows: one small loop per kind of total, over blocks of rows that fit the first cache.

`ops` is int64 (c, 4): what to do, the word of the row where the total begins, the first row of `values`, the row of `nulls` or
-1. values: int64 (v, n), floats by their bits. Sums of integers are 128 bits wide (low, high), hence exact whatever the order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels.exact import add_double, add_exact
from evenflow.kernels.hash import Hashes
from evenflow.kernels.jit import Word, inlined, kernel
from evenflow.kernels.table import Words2, locate

ROWS, COUNT, ISUM, FSUM, MIN, MAX, MOMENTS, FIRST, LAST, HLL = range(10)
"""Kinds of total, from rows."""

ADD, ISUM_MERGE, FSUM_MERGE, MOMENTS_MERGE = range(10, 14)
"""Kinds of total, from partial totals. Minima and maxima merge like values."""

XSUM, XSUM_MERGE = 14, 15
"""Exact sums of doubles, from rows and from partial totals: see `kernels.exact`."""

BLOCK: Final = 512
"""Rows of a block. The places of a block and its values stay in the first cache."""

_REGISTERS = np.uint64(9)
_SIX = np.uint64(63)


@inlined
def add_wide(words: Words2, slot: Word, at: Word, low: Word, high: Word) -> None:
    """Add a 128-bit number to the one at words[slot, at] (low) and at + 1 (high)."""
    before = words[slot, at]
    after = before + low
    words[slot, at] = after
    words[slot, at + 1] += high + np.int64(np.uint64(after) < np.uint64(before))


@inlined
def add_register(words: Words2, slot: Word, at: Word, hashed: Word) -> None:
    """HyperLogLog: raise the register of a hash to the rank of its remaining bits."""
    register = np.int64(hashed >> (np.uint64(64) - _REGISTERS))
    rest = (hashed << _REGISTERS) | np.uint64(256)
    rank = np.uint64(1)
    while np.int64(rest) > 0:
        rest = rest << np.uint64(1)
        rank += np.uint64(1)
    word = at + register // 10
    shift = np.uint64(register % 10 * 6)
    packed = np.uint64(words[slot, word])
    if rank > (packed >> shift) & _SIX:
        words[slot, word] = np.int64((packed & ~(_SIX << shift)) | (rank << shift))


@inlined
def fold_moments(words: Words2, floats: npt.NDArray[np.float64], slot: Word, at: Word, value: Word) -> None:
    """Welford's update of count, mean and squared deviations, in the form Spark uses."""
    count = words[slot, at] + 1
    delta = value - floats[slot, at + 1]
    step = delta / count
    words[slot, at] = count
    floats[slot, at + 1] += step
    floats[slot, at + 2] += delta * (delta - step)


@inlined
def merge_moments(words: Words2, floats: npt.NDArray[np.float64], slot: Word, at: Word, more: Word, mean: Word, square: Word) -> None:
    """Chan, Golub and LeVeque's union of two sets of moments."""
    count = words[slot, at]
    total = count + more
    if more == 0:
        return
    delta = mean - floats[slot, at + 1]
    share = delta * more / total
    words[slot, at] = total
    floats[slot, at + 1] += share
    floats[slot, at + 2] += square + delta * share * count


@inlined
def fold_block(
    start: Word,
    stop: Word,
    words: Words2,
    slots: Words2,
    ops: Words2,
    values: Words2,
    nulls: npt.NDArray[np.uint8],
) -> None:
    """Fold rows start..stop into the rows at `slots`."""
    floats = words.view(np.float64)
    reals = values.view(np.float64)
    for cell in range(ops.shape[0]):
        op, at, v, z = ops[cell, 0], ops[cell, 1], ops[cell, 2], ops[cell, 3]
        if op == ROWS:
            for row in range(start, stop):
                words[slots[row], at] += 1
        elif op == COUNT:
            for row in range(start, stop):
                if z < 0 or nulls[z, row] == 0:
                    words[slots[row], at] += 1
        elif op == ISUM:
            for row in range(start, stop):
                if z < 0 or nulls[z, row] == 0:
                    add_wide(words, slots[row], at, values[v, row], values[v, row] >> 63)
        elif op == FSUM:
            for row in range(start, stop):
                if z < 0 or nulls[z, row] == 0:
                    floats[slots[row], at] += reals[v, row]
        elif op == MIN:
            for row in range(start, stop):
                if (z < 0 or nulls[z, row] == 0) and values[v, row] < words[slots[row], at]:
                    words[slots[row], at] = values[v, row]
        elif op == MAX:
            for row in range(start, stop):
                if (z < 0 or nulls[z, row] == 0) and values[v, row] > words[slots[row], at]:
                    words[slots[row], at] = values[v, row]
        elif op == MOMENTS:
            for row in range(start, stop):
                if z < 0 or nulls[z, row] == 0:
                    fold_moments(words, floats, slots[row], at, reals[v, row])
        elif op in (FIRST, LAST):
            for row in range(start, stop):
                slot = slots[row]
                if op == LAST or words[slot, at + 1] == 0:
                    missing = z >= 0 and nulls[z, row] != 0
                    words[slot, at] = 0 if missing else values[v, row]
                    words[slot, at + 1] = 2 if missing else 1
        elif op == HLL:
            for row in range(start, stop):
                if z < 0 or nulls[z, row] == 0:
                    add_register(words, slots[row], at, np.uint64(values[v, row]))
        elif op == ADD:
            for row in range(start, stop):
                words[slots[row], at] += values[v, row]
        elif op == ISUM_MERGE:
            for row in range(start, stop):
                add_wide(words, slots[row], at, values[v, row], values[v + 1, row])
        elif op == FSUM_MERGE:
            for row in range(start, stop):
                floats[slots[row], at] += reals[v, row]
        elif op == MOMENTS_MERGE:
            for row in range(start, stop):
                merge_moments(words, floats, slots[row], at, values[v, row], reals[v + 1, row], reals[v + 2, row])
        elif op == XSUM:
            for row in range(start, stop):
                if z < 0 or nulls[z, row] == 0:
                    add_double(words, slots[row], at, values[v, row])
        elif op == XSUM_MERGE:
            for row in range(start, stop):
                add_exact(words, slots[row], at, values, v, row)


_RO1 = "Array({}, 1, 'C', readonly=True)"
_RO2 = "Array({}, 2, 'C', readonly=True)"
_FOLD = ", ".join(
    [_RO1.format("uint64")] * 2
    + [_RO1.format("int64"), _RO1.format("int32"), "int64", "int64", "int64", "uint64[::1]"]
    + ["int64[:, ::1]"] * 3
    + ["int64[::1]", "int64[::1]", "int64[:, ::1]", "int64[::1]", "int64[:, ::1]", _RO2.format("int64"), _RO2.format("uint8")]
    + ["int64[::1]"] * 4
    + ["uint8[::1]"]
)


@kernel(f"int64({_FOLD})")
def fold_rows(
    hashes: Hashes,
    checks: Hashes,
    extra: Words2,
    partition: npt.NDArray[np.int32],
    start: Word,
    base: Word,
    epoch: Word,
    index: Hashes,
    words: Words2,
    pages: Words2,
    parts: Words2,
    spare: Words2,
    counts: Words2,
    log: Words2,
    template: Words2,
    ops: Words2,
    values: Words2,
    nulls: npt.NDArray[np.uint8],
    slots: Words2,
    ordinals: Words2,
    group_slot: Words2,
    group_row: Words2,
    group_new: npt.NDArray[np.uint8],
) -> Word:
    """Find or insert the rows from `start` on and fold their values; returns the row at which space ran out, or n."""
    places, found = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    size = hashes.size
    row = start
    while row < size:
        stop = min(row + BLOCK, size)
        reached = locate(
            hashes, checks, extra, partition, row, stop, base, epoch, index, words, pages, parts, spare, counts, log, template,
            slots, ordinals, group_slot, group_row, group_new, places, found,
        )  # fmt: skip
        fold_block(row, reached, words, slots, ops, values, nulls)
        row = reached
        if reached < stop:
            break
    return row


@kernel(f"void(int64[:, ::1], int64[::1], int64[:, ::1], {_RO2.format('int64')}, {_RO2.format('uint8')})")
def fold_at(words: Words2, slots: Words2, ops: Words2, values: Words2, nulls: npt.NDArray[np.uint8]) -> None:
    """Fold all rows into rows that are known."""
    fold_block(np.int64(0), np.int64(slots.size), words, slots, ops, values, nulls)
