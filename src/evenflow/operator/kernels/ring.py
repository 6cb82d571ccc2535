"""Rings of the last rows of a key, and the totals over them.

A ring lies in a row's words: SEEN (rows so far), then for each kept column `history` words and a bit per word for null. Values are
plain words (`totals.value_words`); what a total wants to see of them is computed when a window is put out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.operator.kernels.fold import (
    COUNT,
    FIRST,
    FSUM,
    HLL,
    ISUM,
    LAST,
    MAX,
    MIN,
    MOMENTS,
    ROWS,
    add_register,
    add_wide,
    fold_moments,
)
from evenflow.operator.kernels.hash import mix64
from evenflow.operator.kernels.jit import Word, inlined, kernel, prefetch
from evenflow.operator.kernels.table import HEADER, Words2

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
def _fold_value(
    op: Word, at: Word, form: Word, out: Words2, floats: npt.NDArray[np.float64], row: Word, word: Word, scratch: Words2
) -> None:
    """Fold one value that is not null into the totals of one window."""
    reals = scratch.view(np.float64)
    if op == COUNT:
        out[row, at] += 1
    elif op == ISUM:
        add_wide(out, row, at, word, word >> 63)
    elif op in (FSUM, MOMENTS):
        if form == FLOATS:
            scratch[0] = word
        else:
            reals[0] = np.float64(word)
        if op == FSUM:
            floats[row, at] += reals[0]
        else:
            fold_moments(out, floats, row, at, reals[0])
    elif op in (MIN, MAX):
        key = _ordered(word) if form == FLOATS else word
        if (op == MIN and key < out[row, at]) or (op == MAX and key > out[row, at]):
            out[row, at] = key
    elif op == HLL:
        if form == HASHED:
            add_register(out, row, at, np.uint64(word))
        else:
            add_register(out, row, at, mix64(np.uint64(_normal(word) if form == FLOATS else word)))


@inlined
def _fold_ring(
    op: Word, at: Word, first: Word, form: Word, history: Word, seen: Word, words: Words2, slot: Word,
    out: Words2, floats: npt.NDArray[np.float64], row: Word, scratch: Words2,
) -> None:  # fmt: skip
    """Fold the ring of one column, oldest value first, into one total."""
    length = min(seen, history)
    if op == ROWS:
        out[row, at] = length
        return
    place = (seen - length) % history
    if op in (FIRST, LAST):
        if op == LAST:
            place = (seen - 1) % history
        missing = (words[slot, first + history + place // 64] >> (place % 64)) & 1
        out[row, at] = 0 if missing else words[slot, first + place]
        out[row, at + 1] = 2 if missing else 1
        return
    for _ in range(length):
        if (words[slot, first + history + place // 64] >> (place % 64)) & 1 == 0:
            _fold_value(op, at, form, out, floats, row, words[slot, first + place], scratch)
        place += 1
        if place == history:
            place = 0


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
    floats = out.view(np.float64)
    flat = words.reshape(-1)
    width = words.shape[1]
    step = history + (history + 63) // 64
    scratch = np.empty(1, np.int64)
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
            _fold_ring(ops[cell, 0], ops[cell, 1], first, ops[cell, 3], history, seen, words, slot, out, floats, found, scratch)
        for which in range(list_columns.size):
            lengths[which, found] = _copy_ring(words, slot, RING + list_columns[which] * step, history, seen, lists[which, found])
        out_row[found] = row
        found += 1
    return found
