"""Which rows of an epoch are combined: those of keys that are hot while a small table is passed over them.

Every partition has a table of its own, as large as its rows ask for and never larger than it may be (`PLACES`). A key may stand in `WINDOW`
neighbouring places. A row that meets its key joins that key's group and gives it a vote. A row that finds a free place opens a
group there. A row that finds all places taken is a group of its own; it costs the weakest of them a vote, and takes its place
when that was the last one. So frequent keys hold their places against any number of rare ones: in each window this is the
majority vote of Boyer and Moore (1981), the heavy-hitters sketch of Misra and Gries (1982) with few counters, as in the heavy part
of the Elastic sketch (Yang et al., SIGCOMM 2018).

A key that lost its place and won one again has several groups. Whoever merges partial totals does not mind.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels.fold import BLOCK, fold_block
from evenflow.kernels.hash import Hashes
from evenflow.kernels.jit import Word, kernel
from evenflow.kernels.table import Words2, index_hash
from evenflow.stream.arrays import Int64s

PLACES: Final = 1 << 16
"""Most places of a partition's table, if nobody says otherwise: 512 KiB, half of a usual second cache."""

WINDOW: Final = 4
"""Places in which a key may stand; the least that a table has."""

MOST_VOTES: Final = 255

# A place: 24 bits of the key's hash, 8 bits of votes, 32 bits of group + 1; 0 when free.
_TAG = np.uint64(0xFFFFFF0000000000)
_VOTE = np.uint64(1 << 32)
_VOTES = np.uint64(MOST_VOTES << 32)
_GROUP = np.uint64(0xFFFFFFFF)
_RO = "Array({}, 1, 'C', readonly=True)"


@kernel(
    f"int64({_RO.format('uint64')}, {_RO.format('uint64')}, {_RO.format('int64')}, {_RO.format('int32')}, int64, int64[::1], int64[::1])"
)
def group_hot(
    hashes: Hashes, checks: Hashes, extra: Int64s, partition: npt.NDArray[np.int32], most: Word, ordinals: Int64s, group_row: Int64s
) -> Word:
    """Give each of n rows a group, numbered in order of first appearance; returns how many there are.

    hashes, checks: uint64 (n,), a key's identity. extra: int64 (n,), its window, or empty. partition: int32 (n,), >= 0. most:
    places that a partition's table may have, a power of two, >= WINDOW. Out: ordinals int64 (n,), the group of each row; group_row
    int64 (n,), the first row of each group. Rows of one group have one key, window and partition, and which rows those are
    depends on nothing but the partition's own rows. Cost: O(n).
    """
    size = hashes.size
    last = np.int64(0)
    for row in range(size):
        last = max(last, np.int64(partition[row]))
    rows_of = np.zeros(last + 1, np.int64)
    for row in range(size):
        rows_of[partition[row]] += 1
    first, masks = np.empty(last + 1, np.int64), np.empty(last + 1, np.uint64)
    total = np.int64(0)
    for owner in range(last + 1):
        places = np.int64(0)
        if rows_of[owner] > 0:
            places = np.int64(WINDOW)
            while places < rows_of[owner] and places < most:
                places *= 2
        first[owner], masks[owner] = total, np.uint64(places - 1)
        total += places
    table = np.zeros(total, np.uint64)
    windowed = extra.size > 0
    groups = np.int64(0)
    for row in range(size):
        hashed = hashes[row]
        if windowed:
            hashed = index_hash(hashed, extra[row])
        owner = partition[row]
        begin, mask = first[owner], masks[owner]
        weakest, fewest = np.int64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
        group = np.int64(-1)
        for step in range(WINDOW):
            at = begin + np.int64((hashed + np.uint64(step)) & mask)
            place = table[at]
            if place == 0:
                weakest, fewest = at, np.uint64(0)
                break
            if (place ^ hashed) & _TAG == 0:
                known = group_row[np.int64(place & _GROUP) - 1]
                if hashes[known] == hashes[row] and checks[known] == checks[row] and (not windowed or extra[known] == extra[row]):
                    group = np.int64(place & _GROUP) - 1
                    if place & _VOTES != _VOTES:
                        table[at] = place + _VOTE
                    break
            votes = place & _VOTES
            if votes < fewest:
                weakest, fewest = at, votes
        if group < 0:
            group = groups
            groups += 1
            group_row[group] = row
            if fewest <= _VOTE:
                table[weakest] = (hashed & _TAG) | _VOTE | np.uint64(group + 1)
            else:
                table[weakest] -= _VOTE
        ordinals[row] = group
    return groups


@kernel(
    "int64[:, ::1](int64[::1], int64, int64[::1], int64[:, ::1], Array(int64, 2, 'C', readonly=True), Array(uint8, 2, 'C', readonly=True))"
)
def fold_groups(template: Int64s, groups: int, ordinals: Int64s, ops: Words2, values: Words2, nulls: npt.NDArray[np.uint8]) -> Words2:
    """int64 (words, groups): the totals of each group, a word of all groups after the other. template: int64 (words,), of no rows.

    ordinals: int64 (n,), the group of each row, numbered in order of first appearance. ops, values, nulls: see `kernels.fold`.
    """
    columns = np.empty((template.size, groups), np.int64)
    for word in range(template.size):
        columns[word, :] = template[word]
    size = ordinals.size
    for start in range(0, size, BLOCK):
        fold_block(np.int64(start), np.int64(min(start + BLOCK, size)), columns.T, ordinals, ops, values, nulls)
    return columns
