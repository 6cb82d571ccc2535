"""Matching the rows of each key against a pattern's program (`query.pattern`)."""

from __future__ import annotations

from typing import Final

import numpy as np

from evenflow.kernels.columns import Words
from evenflow.kernels.jit import Word, inlined, kernel

GREATEST: Final = 2**63 - 1

KEY, FIRST, LAST, DECIDED = 0, 1, 2, 3
"""Columns of `found`: number of the key, first and last row of the match, event time at which no better one could come any more."""

PAST_LAST, TO_NEXT = -1, -2
"""Where the next match may begin: behind the last row of this one, or behind its first. `2 * v`: at its first row that is variable v,
`2 * v + 1`: at its last; behind its first row if that is none, or is the first itself."""


@inlined
def _step(
    mask: Word, count: Word, current: Words, following: Words, seen: Words, stamp: Word,
    variable: Words, follow_at: Words, follow: Words, origin: Words, base: Word,
) -> tuple[Word, Word]:  # fmt: skip
    """One row: (threads afterwards, state whose thread ends the match here or -1).

    current, following: states of the threads, best first, before and after. origin: from `base` on, of each state behind the row, the state
    that it was reached from; base -1: nobody wants to know.
    """
    made = 0
    for thread in range(count):
        state = current[thread]
        if (mask >> variable[state]) & 1 == 0:
            continue
        for at in range(follow_at[state], follow_at[state + 1]):
            to = follow[at]
            if to < 0:
                return made, state  # What the other threads may find is worse.
            if seen[to] != stamp:
                seen[to] = stamp
                following[made] = to
                made += 1
                if base >= 0:
                    origin[base + to] = state
    return made, -1


@inlined
def _label(
    masks: Words, start: Word, rows: Word, current: Words, following: Words, seen: Words, stamp: Word, first: Words, variable: Words,
    follow_at: Words, follow: Words, origin: Words, labels: Words, begin: Word,
) -> Word:  # fmt: skip
    """Which variable each row of the match of `rows` rows from `start` on is, written to `labels` from `begin` on; the stamp afterwards.
    origin: int64, a place for each state and row, and one row more."""
    states = variable.size
    count, ends = first.size, -1
    current[:count] = first
    for row in range(rows):
        stamp += 1
        count, ends = _step(
            masks[start + row], count, current, following, seen, stamp, variable, follow_at, follow, origin, (row + 1) * states
        )
        current, following = following, current
    for row in range(rows - 1, -1, -1):
        labels[begin + row] = variable[ends]
        ends = origin[row * states + ends]
    return stamp


@inlined
def _place_of(skip: Word, labels: Words, rows: Word) -> Word:
    """Where in a match the first or the last row of a variable is, as `skip` says; 0 if it has none."""
    place = 0
    for row in range(rows):
        if labels[row] == skip >> 1:
            place = row
            if skip & 1 == 0:
                break
    return place


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64, int64, int64, "
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1])"
)
def find_matches(
    times: Words, masks: Words, starts: Words, within: int, watermark: int, skip: int,
    first: Words, variable: Words, follow_at: Words, follow: Words, covered: Words, undecided: Words, found: Words,
) -> int:  # fmt: skip
    """Matches of each key from left to right, as far as they are decided; returns how many.

    times, masks: int64 (n,), the rows of a key one after the other in order of time; bit v of a mask: the row can be variable v. starts:
    int64 (k + 1,), where each key's rows begin. within: from a match's first to its last row, at most, microseconds. watermark: no row
    before it is missing; GREATEST: none at all. skip: PAST_LAST, TO_NEXT, or to a variable. covered: int64 (k,), read and written: the
    row behind the last one that is in a match; empty: nobody asks for rows in none. These are found, too, with the row before as their
    last one. undecided: int64 (k,), written: the first row whose matches later rows may change. found: int64 (n, 4), written. Cost:
    O(rows x states), for every start that comes far.
    """
    states = variable.size
    current, following, seen = np.empty(states, np.int64), np.empty(states, np.int64), np.zeros(states, np.int64)
    nothing, origin, labels = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    matches, stamp = 0, 0
    for key in range(starts.size - 1):
        at, stop, decided, over = starts[key], starts[key + 1], -GREATEST - 1, GREATEST
        if covered.size > 0:
            over = covered[key]
        while at < stop:
            limit = times[at] + within
            if limit < times[at]:
                limit = GREATEST
            count, best, row = first.size, -1, at
            current[:count] = first
            while count > 0 and row < stop and times[row] <= limit:
                stamp += 1
                count, ends = _step(masks[row], count, current, following, seen, stamp, variable, follow_at, follow, nothing, -1)
                if ends >= 0:
                    best = row
                current, following = following, current
                row += 1
            if count == 0:
                when = times[row - 1]
            elif row < stop or limit < watermark or watermark == GREATEST:
                when = limit
            else:
                break
            decided = max(decided, when)
            if best >= 0:
                found[matches, KEY], found[matches, FIRST], found[matches, LAST], found[matches, DECIDED] = key, at, best, decided
                matches += 1
                over = max(over, best + 1)
            elif at >= over:
                found[matches, KEY], found[matches, FIRST], found[matches, LAST], found[matches, DECIDED] = key, at, at - 1, decided
                matches += 1
            if best < 0 or skip == TO_NEXT:
                at += 1
            elif skip == PAST_LAST:
                at = best + 1
            else:
                rows = best - at + 1
                if labels.size < rows:
                    origin, labels = np.empty((2 * rows + 1) * states, np.int64), np.empty(2 * rows, np.int64)
                stamp = _label(masks, at, rows, current, following, seen, stamp, first, variable, follow_at, follow, origin, labels, 0)
                at += max(1, _place_of(skip, labels, rows))
        undecided[key] = at
        if covered.size > 0:
            covered[key] = over
    return matches


UNKNOWN, DECIDED_START, OPEN_START = 0, 1, 2
"""What is known of the matches from a row: nothing yet, all, or that later rows may change them."""


@kernel("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64)")
def follow_starts(
    known: Words, when: Words, best: Words, hop: Words, starts: Words, at: Words, decided: Words, covered: Words, found: Words, matches: int
) -> int:  # fmt: skip
    """Matches of each key from left to right, where others have found out what begins at its rows; returns how many there are now.

    known: int64 (n,), of each row UNKNOWN, DECIDED_START or OPEN_START. when: event time at which it was decided. best: last row of the
    match, or -1. hop: how many rows further the next one may begin. starts: int64 (k + 1,), where each key's rows begin. at, decided:
    int64 (k,), read and written: the row to go on from, where this stops if it is not decided, and the greatest `when` so far. covered,
    found: as of `find_matches`; matches: how many are in it. Cost: O(rows passed).
    """
    for key in range(starts.size - 1):
        row, stop, latest, over = at[key], starts[key + 1], decided[key], GREATEST
        if covered.size > 0:
            over = covered[key]
        while row < stop and known[row] == DECIDED_START:
            latest = max(latest, when[row])
            if best[row] >= 0 or row >= over:
                last = best[row] if best[row] >= 0 else row - 1
                found[matches, KEY], found[matches, FIRST], found[matches, LAST], found[matches, DECIDED] = key, row, last, latest
                matches += 1
            if best[row] >= 0 and covered.size > 0:
                over = max(over, best[row] + 1)
            row += hop[row]
        at[key], decided[key] = row, latest
        if covered.size > 0:
            covered[key] = over
    return matches


@kernel("void(int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def label_matches(masks: Words, found: Words, first: Words, variable: Words, follow_at: Words, follow: Words, labels: Words) -> None:
    """Which variable each row of each match is. found: as `find_matches` writes it. labels: int64, written: of the rows of the matches, one
    match after the other. Cost: O(rows of matches x states)."""
    states, longest = variable.size, 0
    for match in range(found.shape[0]):
        longest = max(longest, found[match, LAST] - found[match, FIRST] + 1)
    current, following, seen = np.empty(states, np.int64), np.empty(states, np.int64), np.zeros(states, np.int64)
    origin = np.empty((longest + 1) * states, np.int64)
    begin, stamp = 0, 0
    for match in range(found.shape[0]):
        start, rows = found[match, FIRST], found[match, LAST] - found[match, FIRST] + 1
        stamp = _label(masks, start, rows, current, following, seen, stamp, first, variable, follow_at, follow, origin, labels, begin)
        begin += rows
