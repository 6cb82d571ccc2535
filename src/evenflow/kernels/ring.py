"""Rings of the last rows of a key, and the totals over them.

A ring lies in a row's words: SEEN (rows so far), then for each kept column `history` words and a bit per word for null. Values are
plain words (`totals.value_words`); what a total wants to see of them is computed when a window is put out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels.fold import COUNT, FIRST, FSUM, ISUM, LAST, MAX, MIN, MOMENTS, ROWS, add_register
from evenflow.kernels.hash import mix64
from evenflow.kernels.jit import Word, inlined, kernel, prefetch
from evenflow.kernels.table import HEADER, Words2

SEEN: Final = HEADER
RING: Final = HEADER + 1
"""Word of the first ring."""

AHEAD: Final = 16
"""Rows between asking for a ring's cache line and using it."""

PLAIN, FLOATS, HASHED = 0, 1, 2
"""What the words of a ring are: integers, float bits, or hashes made before."""


def ring_words(history: int) -> int:
    """Words that one column's ring takes."""
    return history + (history + 63) // 64


@inlined
def _ordered(word: Word) -> Word:
    """Float bits as words that sort as Spark sorts doubles (as `columns.ordered_floats`)."""
    if (word & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000:
        return np.int64(0x7FF8000000000000)
    return word ^ 0x7FFFFFFFFFFFFFFF if word < 0 else word


@inlined
def _normal(word: Word) -> Word:
    """Float bits in normal form (as `columns.normal_floats`)."""
    if (word & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000:
        return np.int64(0x7FF8000000000000)
    return np.int64(0) if word == np.int64(-0x8000000000000000) else word


@inlined
def _missing(words: Words2, slot: Word, bits: Word, place: Word) -> Word:
    """Whether the value at a place of a ring is null. bits: the word where the ring's null bits begin."""
    return (words[slot, bits + (place >> 6)] >> (place & 63)) & 1


@inlined
def _has_nulls(words: Words2, slot: Word, bits: Word, history: Word) -> Word:
    found = np.int64(0)
    for word in range(bits, bits + ((history + 63) >> 6)):
        found |= words[slot, word]
    return found != 0


@inlined
def _sum_ring(words: Words2, slot: Word, first: Word, history: Word, place: Word, length: Word) -> Word:
    """128-bit sum of the ring's integers that are not null."""
    bits = first + history
    nulls = _has_nulls(words, slot, bits, history)
    low, high = np.int64(0), np.int64(0)
    for _ in range(length):
        if not (nulls and _missing(words, slot, bits, place)):
            value = words[slot, first + place]
            after = low + value
            high += (value >> 63) + np.int64(np.uint64(after) < np.uint64(low))
            low = after
        place += 1
        if place == history:
            place = 0
    return low, high


@inlined
def _extreme(
    words: Words2, slot: Word, first: Word, history: Word, place: Word, length: Word, greatest: Word, floating: Word, start: Word
) -> Word:
    """Least or greatest value of the ring, in words that sort; `start` if all are null."""
    bits = first + history
    nulls = _has_nulls(words, slot, bits, history)
    best = start
    for _ in range(length):
        if not (nulls and _missing(words, slot, bits, place)):
            value = words[slot, first + place]
            if floating:
                value = _ordered(value)
            # -1 is -0.0, which equals 0.0: as in Spark, the one that came first is taken.
            same = floating and ((best == 0 and value == -1) or (best == -1 and value == 0))
            if not same and (value > best if greatest else value < best):
                best = value
        place += 1
        if place == history:
            place = 0
    return best


@inlined
def _moments(
    words: Words2, reals: npt.NDArray[np.float64], slot: Word, first: Word, history: Word, place: Word, length: Word, floating: Word
) -> Word:
    """Count, mean and squared deviations of the ring's values that are not null, oldest first."""
    bits = first + history
    nulls = _has_nulls(words, slot, bits, history)
    count, mean, square = np.int64(0), 0.0, 0.0
    for _ in range(length):
        if not (nulls and _missing(words, slot, bits, place)):
            value = reals[slot, first + place] if floating else np.float64(words[slot, first + place])
            count += 1
            delta = value - mean
            step = delta / count
            mean += step
            square += delta * (delta - step)
        place += 1
        if place == history:
            place = 0
    return count, mean, square


@inlined
def _float_sum(words: Words2, reals: npt.NDArray[np.float64], slot: Word, first: Word, history: Word, place: Word, length: Word) -> Word:
    """Sum of the ring's doubles that are not null, oldest first."""
    bits = first + history
    nulls = _has_nulls(words, slot, bits, history)
    total = 0.0
    for _ in range(length):
        if not (nulls and _missing(words, slot, bits, place)):
            total += reals[slot, first + place]
        place += 1
        if place == history:
            place = 0
    return total


@inlined
def _sketch(
    words: Words2, slot: Word, first: Word, history: Word, place: Word, length: Word, form: Word, out: Words2, row: Word, at: Word
) -> None:
    """HyperLogLog of the ring's values that are not null."""
    for _ in range(length):
        if not _missing(words, slot, first + history, place):
            word = words[slot, first + place]
            if form == HASHED:
                add_register(out, row, at, np.uint64(word))
            else:
                add_register(out, row, at, mix64(np.uint64(_normal(word) if form == FLOATS else word)))
        place += 1
        if place == history:
            place = 0


@inlined
def _fold_ring(
    op: Word, at: Word, first: Word, form: Word, history: Word, seen: Word, words: Words2, reals: npt.NDArray[np.float64],
    slot: Word, out: Words2, floats: npt.NDArray[np.float64], row: Word,
) -> None:  # fmt: skip
    """Write one total over the ring of one column, oldest value first."""
    length = min(seen, history)
    place = seen % history if seen >= history else np.int64(0)
    if op == ROWS:
        out[row, at] = length
    elif op in (FIRST, LAST):
        if op == LAST:
            place = (seen - 1) % history
        missing = _missing(words, slot, first + history, place)
        out[row, at] = 0 if missing else words[slot, first + place]
        out[row, at + 1] = 2 if missing else 1
    elif op == COUNT:
        out[row, at] = length
        if _has_nulls(words, slot, first + history, history):
            for _ in range(length):
                out[row, at] -= _missing(words, slot, first + history, place)
                place = place + 1 if place + 1 < history else np.int64(0)
    elif op == ISUM:
        low, high = _sum_ring(words, slot, first, history, place, length)
        out[row, at] = low
        out[row, at + 1] = high
    elif op == FSUM:
        floats[row, at] = _float_sum(words, reals, slot, first, history, place, length)
    elif op in (MIN, MAX):
        out[row, at] = _extreme(words, slot, first, history, place, length, op == MAX, form == FLOATS, out[row, at])
    elif op == MOMENTS:
        count, mean, square = _moments(words, reals, slot, first, history, place, length, form == FLOATS)
        out[row, at] = count
        floats[row, at + 1] = mean
        floats[row, at + 2] = square
    else:
        _sketch(words, slot, first, history, place, length, form, out, row, at)


@inlined
def _copy_ring(words: Words2, slot: Word, first: Word, history: Word, seen: Word, into: Words2) -> Word:
    """Copy a ring, oldest first and without nulls; returns its length."""
    length = min(seen, history)
    copied = 0
    for back in range(length, 0, -1):
        place = (seen - back) % history
        if (words[slot, first + history + place // 64] >> (place % 64)) & 1 == 0:
            into[copied] = words[slot, first + place]
            copied += 1
    return copied


@kernel(
    "int64(int64[:, ::1], int64[::1], Array(int64, 2, 'C', readonly=True), Array(uint8, 2, 'C', readonly=True), int64, int64,"
    " int64[:, ::1], int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[:, :, ::1], int64[:, ::1])"
)
def fold_rings(
    words: Words2,
    slots: Words2,
    values: Words2,
    nulls: npt.NDArray[np.uint8],
    history: int,
    slide: int,
    ops: Words2,
    template: Words2,
    out: Words2,
    out_row: Words2,
    list_columns: Words2,
    lists: Words2,
    lengths: Words2,
) -> int:
    """Push n rows into their keys' rings; after every `slide` rows of a key, write the totals over its ring. Returns how many.

    values, nulls: (v, n). ops: int64 (c, 4): total, its word in `out`, kept column, form. out: (windows, cells' words).
    out_row: the input row that completed each window. list_columns: the columns whose rings are copied to `lists`
    (list, window, history), nulls left out, with `lengths` (list, window).
    """
    floats, reals = out.view(np.float64), words.view(np.float64)
    flat = words.reshape(-1)
    width = words.shape[1]
    step = history + (history + 63) // 64
    found = 0
    for row in range(slots.size):
        if row + AHEAD < slots.size:
            next_slot = slots[row + AHEAD]
            for column in range(values.shape[0]):
                prefetch(flat, next_slot * width + RING + column * step + words[next_slot, SEEN] % history)
        slot = slots[row]
        seen = words[slot, SEEN]
        place = seen % history
        for column in range(values.shape[0]):
            first = RING + column * step
            words[slot, first + place] = values[column, row]
            bit = np.int64(1) << (place % 64)
            if nulls[column, row]:
                words[slot, first + history + place // 64] |= bit
            else:
                words[slot, first + history + place // 64] &= ~bit
        seen += 1
        words[slot, SEEN] = seen
        if seen % slide != 0:
            continue
        for word in range(template.size):
            out[found, word] = template[word]
        for cell in range(ops.shape[0]):
            first = RING + ops[cell, 2] * step
            _fold_ring(ops[cell, 0], ops[cell, 1], first, ops[cell, 3], history, seen, words, reals, slot, out, floats, found)
        for which in range(list_columns.size):
            lengths[which, found] = _copy_ring(words, slot, RING + list_columns[which] * step, history, seen, lists[which, found])
        out_row[found] = row
        found += 1
    return found
