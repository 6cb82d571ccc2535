"""Exact sums of doubles: one number of 2,176 bits in units of 2^-1074, the least that a double can be (Kulisch 1971).

Every finite double is a whole number of these units, below 2^2098 of them, so 2^77 rows fit. Adding is exact, hence it depends on no order,
and what has been added can be taken back to the last bit. NaN and the infinities are counted beside it, each in a word of its own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels.jit import Word, inlined

LIMBS: Final = 34
"""Words of the number, the least first, in two's complement."""

EXACT_WORDS: Final = LIMBS + 3
"""The number, and how many values are NaN, +inf and -inf."""

_UNIT: Final = 1 << 1074


@inlined
def add_double(words: npt.NDArray[np.int64], slot: Word, at: Word, bits: Word) -> None:
    """Add a double, given by its bits, to the sum at words[slot, at]."""
    power = (bits >> 52) & 2047
    digits = np.uint64(bits & 0xFFFFFFFFFFFFF)
    if power == 2047:
        words[slot, at + LIMBS + (0 if digits != 0 else 1 if bits >= 0 else 2)] += 1
        return
    shift = 0
    if power > 0:
        digits |= np.uint64(1) << np.uint64(52)
        shift = power - 1
    place = at + (shift >> 6)
    by = np.uint64(shift & 63)
    low = digits << by
    high = np.uint64(0) if by == 0 else digits >> (np.uint64(64) - by)
    if bits >= 0:
        before = np.uint64(words[slot, place])
        after = before + low
        words[slot, place] = np.int64(after)
        carry = np.uint64(after < before)
        before = np.uint64(words[slot, place + 1])
        after = before + high + carry  # high is below 2^53.
        words[slot, place + 1] = np.int64(after)
        place += 2
        more = after < before
        while more and place < at + LIMBS:
            words[slot, place] += 1
            more = words[slot, place] == 0
            place += 1
    else:
        before = np.uint64(words[slot, place])
        words[slot, place] = np.int64(before - low)
        carry = np.uint64(before < low)
        before = np.uint64(words[slot, place + 1])
        after = before - high - carry
        words[slot, place + 1] = np.int64(after)
        place += 2
        more = after > before
        while more and place < at + LIMBS:
            more = words[slot, place] == 0
            words[slot, place] -= 1
            place += 1


@inlined
def add_exact(words: npt.NDArray[np.int64], slot: Word, at: Word, values: npt.NDArray[np.int64], first: Word, row: Word) -> None:
    """Add the sum in values[first : first + EXACT_WORDS, row] to the one at words[slot, at]."""
    carry = np.uint64(0)
    for limb in range(LIMBS):
        one, other = np.uint64(words[slot, at + limb]), np.uint64(values[first + limb, row])
        total = one + other
        more = np.uint64(total < one)
        total += carry
        more += np.uint64(total < carry)
        words[slot, at + limb] = np.int64(total)
        carry = more
    for count in range(LIMBS, EXACT_WORDS):
        words[slot, at + count] += values[first + count, row]


def negated(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What takes sums back when it is added. words: int64 (EXACT_WORDS, g)."""
    made = -words
    borrows = np.zeros(words.shape[1], np.bool_)  # Whether a limb below is not 0.
    for limb in range(LIMBS):
        made[limb] = np.where(borrows, ~words[limb], -words[limb])
        borrows |= words[limb] != 0
    return made


def rounded(words: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """float64 (g,): the doubles nearest to the sums, as IEEE 754 says for values that are not finite. words: int64 (EXACT_WORDS, g)."""
    limbs = np.ascontiguousarray(words[:LIMBS].T)
    small = np.flatnonzero(limbs.any(axis=1))
    made = np.zeros(words.shape[1])
    for group in small.tolist():
        made[group] = _nearest(int.from_bytes(limbs[group].tobytes(), "little", signed=True))
    nans, highs, lows = (words[LIMBS + count] != 0 for count in range(3))
    made[highs], made[lows] = np.inf, -np.inf
    made[nans | (highs & lows)] = np.nan
    return made


def _nearest(units: int) -> Any:
    try:
        return units / _UNIT
    except OverflowError:
        return np.inf if units > 0 else -np.inf
