"""Which rows of a sorted run have the key and the time that other rows look for."""

from __future__ import annotations

import numpy as np

from evenflow.kernels.columns import Words
from evenflow.kernels.hash import Hashes
from evenflow.kernels.jit import inlined, kernel


@inlined
def _before(a_hash: np.uint64, a_check: np.uint64, a_time: np.int64, b_hash: np.uint64, b_check: np.uint64, b_time: np.int64) -> np.bool_:
    """Whether (hash, check, time) a sorts before b."""
    if a_hash != b_hash:
        return a_hash < b_hash
    if a_check != b_check:
        return a_check < b_check
    return a_time < b_time


@kernel(
    "Tuple((int64[::1], int64[::1]))(uint64[::1], uint64[::1], int64[::1], uint64[::1], uint64[::1], int64[::1], int64[::1])",
)
def probe(
    held_hash: Hashes, held_check: Hashes, held_time: Words, hashes: Hashes, checks: Hashes, lows: Words, highs: Words
) -> tuple[Words, Words]:
    """(row, held) int64 (m,) each: every pair of equal (hash, check) whose held time is in [low, high] of the row.

    Both sides are sorted by (hash, check), the held one then by time, and rows by low: so each search begins where the one before it
    ended, and takes steps that double. Pairs come in order of the row, then of the held one. Cost: O(rows x log gap + pairs).
    """
    size = held_hash.size
    first = np.empty(hashes.size, np.int64)
    counts = np.zeros(hashes.size, np.int64)
    found = 0
    at = 0
    for row in range(hashes.size):
        step = 1
        low = at
        high = at
        while high < size and _before(held_hash[high], held_check[high], held_time[high], hashes[row], checks[row], lows[row]):
            low = high + 1
            high += step
            step *= 2
        if high > size:
            high = size
        while low < high:
            middle = (low + high) // 2
            if _before(held_hash[middle], held_check[middle], held_time[middle], hashes[row], checks[row], lows[row]):
                low = middle + 1
            else:
                high = middle
        at = low
        first[row] = at
        stop = at
        while stop < size and held_hash[stop] == hashes[row] and held_check[stop] == checks[row] and held_time[stop] <= highs[row]:
            stop += 1
        counts[row] = stop - at
        found += stop - at
    rows = np.empty(found, np.int64)
    held = np.empty(found, np.int64)
    put = 0
    for row in range(hashes.size):
        for offset in range(counts[row]):
            rows[put] = row
            held[put] = first[row] + offset
            put += 1
    return rows, held
