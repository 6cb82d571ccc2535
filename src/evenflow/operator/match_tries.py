"""Matches where conditions read the match so far: each way to match is tried by itself, since what a row can be depends on the rows taken.

From a start there is a list of partial matches, best first, and each row takes all of them one step further, as in `kernels.match`; only
that two of them which are in one state of the program are two as long as they know different things (`SoFar`). Many starts, of all keys, go
on at the same time, a row of each at every step, and each step runs every condition once. Which starts there will be is not known before
the matches in front of them are: some are tried in advance, and more of them if few were in vain. Nobody sees how many: what is raised by
one that is tried in advance is raised if a match could begin there, and else not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.errors import EvenflowError, MatchTooWide
from evenflow.kernels.match import DECIDED_START, FIRST, GREATEST, KEY, LAST, OPEN_START, PAST_LAST, TO_NEXT, UNKNOWN, follow_starts
from evenflow.operator.bsort import numbered
from evenflow.operator.match_so_far import Cells, SoFar
from evenflow.query.expression import compile_expression
from evenflow.query.matching import Matching
from evenflow.stream.arrays import Bools, Int64s, bools_of

MOST_WAYS: Final = 10_000
"""Partial matches from one start that are alike in nothing, at most."""
MOST_AT_ONCE: Final = 1 << 18
"""Partial matches that are taken further at the same time, unless they are of one start."""
MOST_STARTS: Final = 1 << 13
"""Starts that are tried at the same time, if there are not more keys than that."""

WASTE: Final = 32
"""Starts that are tried in vain for each that is not, at most: a step of one costs as much as one of some hundred."""


@dataclass(slots=True)
class Line:
    """Rows of keys, as `find_matches` has them. rows: what the conditions read of each."""

    times: Int64s
    masks: Int64s
    starts: Int64s
    rows: pa.RecordBatch


@dataclass(slots=True)
class Found:
    """matches: int64 (m, 4), as of `find_matches`, by key. labels: int64, the variable of each of their rows, one match after the other.
    undecided: int64 (k,), the first row of each key whose matches later rows may change."""

    matches: Int64s
    labels: Int64s
    undecided: Int64s


@dataclass(slots=True)
class _Ways:
    """Partial matches of starts, those of one start one after the other, best first. start: int64 (w,), as a number. state: int64 (w,), of
    the program, in which each wants the next row. cells: of `SoFar`. up: int64 (w,), its place among those that had the row before."""

    start: Int64s
    state: Int64s
    cells: Cells
    up: Int64s

    def take(self, which: Int64s | Bools) -> _Ways:
        return _Ways(self.start[which], self.state[which], self.cells[:, which], self.up[which])


@dataclass(slots=True)
class _Trial:
    """Starts that are tried. first, stop: int64 (s,), a start's row and the end of its key's. limit: event time after which nothing is of
    the match. known, when, best: int64 (s,), as of `follow_starts`. end: int64 (s,), which of those that had the best match's last row it
    is. labels, ups: of each row taken, the variable that it was for each partial match, and its `up`."""

    first: Int64s
    stop: Int64s
    limit: Int64s
    known: Int64s
    when: Int64s
    best: Int64s
    end: Int64s
    labels: list[Int64s] = field(default_factory=list)
    ups: list[Int64s] = field(default_factory=list)


class Tries:
    """Finds the matches of a `Matching` with conditions on the match so far. skip, within: as of `find_matches`. program: its arrays."""

    def __init__(self, matching: Matching, program: tuple[Int64s, Int64s, Int64s, Int64s], within: int, skip: int, box: str) -> None:
        self._first, self._variable, self._follow_at, self._follow = program
        ends = self._follow[self._follow_at[1:] - 1] < 0  # Each state has a follower, and ACCEPT is its last one.
        self._ends, self._more = ends, np.diff(self._follow_at) - ends
        self._first_mask = int(np.bitwise_or.reduce(np.left_shift(1, self._variable[self._first])))
        self._within, self._skip, self._box = within, skip, box
        self._so_far = SoFar(matching.so_far, matching.schema)
        self._aggregates = frozenset(matching.so_far)
        self._conditions = [(number, compile_expression(text, matching.trying)) for number, text in matching.tried]

    def find(self, line: Line, watermark: int, covered: Int64s) -> Found:
        """Matches of each key from left to right, as far as they are decided. watermark, covered: as of `find_matches`.

        Raises MatchTooWide, and what the conditions raise of a row that is tried from where a match could begin. Cost: O(rows x partial
        matches) for each start that is tried, and each step of all of them some calls.
        """
        count, keys = line.times.size, line.starts.size - 1
        hopeless = line.masks & self._first_mask == 0
        known, when = np.where(hopeless, DECIDED_START, UNKNOWN), line.times.copy()
        best, hop, place = np.full(count, -1), np.ones(count, np.int64), np.zeros(count, np.int64)
        at, decided, found = line.starts[:-1].copy(), np.full(keys, -GREATEST - 1), np.empty((count, 4), np.int64)
        hopeful, matches, width, widest = np.flatnonzero(~hopeless), 0, 1, MOST_STARTS
        labels: list[Int64s] = []
        made = np.empty(0, np.int64)
        self._so_far.look_at(line.rows, line.masks)
        while True:
            before = matches
            matches = follow_starts(known, when, best, hop, line.starts, at, decided, covered, found, matches)
            new = found[before:matches]
            which, back = numbered(new[:, LAST] - new[:, FIRST] + 1)
            labels.append(made[place[new[:, FIRST]][which] + back - 1])
            asks = np.flatnonzero(at < line.starts[1:])
            asks = asks[known[at[asks]] == UNKNOWN]
            if not asks.size:
                break
            begin, behind = np.searchsorted(hopeful, at[asks]), np.searchsorted(hopeful, line.starts[asks + 1])
            which, back = numbered(np.minimum(behind - begin, width))
            rows = hopeful[begin[which] + back - 1]
            try:
                trial = self._tried(line, rows, line.starts[asks[which] + 1], watermark)
            except EvenflowError:
                if rows.size == asks.size:
                    raise
                width = widest = 1
                continue
            known[rows], when[rows], best[rows] = trial.known, trial.when, trial.best
            made = self._named(trial, place)
            self._hops(trial, made, place, hop)
            width = min(widest, self._next_width(width, asks.size, rows, trial, hop))
        order = np.argsort(found[:matches, KEY], kind="stable")
        return Found(found[:matches][order], in_order(found[:matches], np.concatenate(labels), order), at)

    # ------------------------------------------------ starts

    def _tried(self, line: Line, rows: Int64s, stop: Int64s, watermark: int) -> _Trial:
        """What begins at each of these rows. Of some, nothing is known afterwards, either: there were too many ways to match from all."""
        count = rows.size
        limit = line.times[rows] + self._within
        limit[limit < line.times[rows]] = GREATEST
        unknown = np.full(count, UNKNOWN)
        trial = _Trial(rows, stop, limit, unknown, np.zeros(count, np.int64), np.full(count, -1), np.zeros(count, np.int64))
        start, _ = numbered(np.full(count, self._first.size))
        ways = _Ways(start, np.tile(self._first, count), self._so_far.none(start.size), np.full(start.size, -1))
        place = 0
        while ways.start.size:
            ways = self._bounded(ways)
            ways, alive = self._going_on(line, trial, ways, place, watermark)
            if alive.size:
                ways = self._step(line, trial, ways, alive, place)
                place += 1
        _forget_behind_unknown(trial)
        return trial

    def _going_on(self, line: Line, trial: _Trial, ways: _Ways, place: int, watermark: int) -> tuple[_Ways, Int64s]:
        """(those for which there is another row that may be of the match, their starts). The other starts are decided, or wait for one."""
        mine = ways.start[_begins(ways.start)]
        row, limit = trial.first[mine] + place, trial.limit[mine]
        there = row < trial.stop[mine]
        goes_on = there & (line.times[np.minimum(row, line.times.size - 1)] <= limit)
        if goes_on.all():
            return ways, mine
        over = there | (limit < watermark) | (watermark == GREATEST)
        done = mine[~goes_on]
        trial.known[done] = np.where(over[~goes_on], DECIDED_START, OPEN_START)
        trial.when[done] = limit[~goes_on]
        stays = np.zeros(trial.first.size, np.bool_)
        stays[mine[goes_on]] = True
        return ways.take(stays[ways.start]), mine[goes_on]

    def _step(self, line: Line, trial: _Trial, took: _Ways, alive: Int64s, place: int) -> _Ways:
        """Each partial match takes its next row, if it can. took: written. alive: int64, the starts."""
        variable, row = self._variable[took.state], trial.first[took.start] + place
        can = line.masks[row] >> variable & 1 != 0
        if not can.all():
            took, variable, row = took.take(can), variable[can], row[can]
        self._so_far.take(took.cells, variable, row)
        true = self._true(line, took.cells, variable, trial.first[took.start], row)
        if not true.all():
            took, variable, row = took.take(true), variable[true], row[true]
        ends = np.flatnonzero(self._ends[took.state])
        if ends.size:  # What stands behind one that ends here is worse.
            ends = ends[_begins(took.start[ends])]
            whose = took.start[ends]
            last = np.full(trial.first.size, took.start.size)
            last[whose] = ends
            better = np.arange(took.start.size) <= last[took.start]
            trial.best[whose], trial.end[whose] = trial.first[whose] + place, np.cumsum(better)[ends] - 1
            took, variable = took.take(better), variable[better]
        trial.labels.append(variable)
        trial.ups.append(took.up)
        which, number = numbered(self._more[took.state])
        state = self._follow[self._follow_at[took.state[which]] + number - 1]
        start = took.start[which]
        dead = np.zeros(trial.first.size, np.bool_)
        dead[alive] = True
        dead[start] = False
        gone = np.flatnonzero(dead)
        trial.known[gone], trial.when[gone] = DECIDED_START, line.times[trial.first[gone] + place]
        return _Ways(start, state, took.cells[:, which], which)

    def _true(self, line: Line, cells: Cells, variable: Int64s, begin: Int64s, row: Int64s) -> Bools:
        """bool (w,): for which partial matches the row that they took may be its variable."""
        true = np.ones(row.size, np.bool_)
        for number, condition in self._conditions:
            mine = np.flatnonzero(variable == number)
            if not mine.size:
                continue
            some, first, last = cells[:, mine], begin[mine], row[mine]
            at = pa.array(last)
            columns = [
                self._so_far.value(name, some, first, last) if name in self._aggregates else line.rows.column(name).take(at)
                for name in condition.columns
            ]
            found = condition(pa.RecordBatch.from_arrays(columns, names=list(condition.columns)))
            true[mine] = False if pa.types.is_null(found.type) else bools_of(found.fill_null(False) if found.null_count else found)
        return true

    def _bounded(self, ways: _Ways) -> _Ways:
        """Without partial matches that another is at least as good as, and, if there are too many, without the last starts."""
        if ways.start.size <= max(self._variable.size, 8):
            return ways
        begins = _begins(ways.start)
        most = _longest(begins, ways.start.size)
        if most > max(self._variable.size, 8):
            order = np.lexsort((*ways.cells, ways.state, ways.start))
            words = np.concatenate([ways.start[None, order], ways.state[None, order], ways.cells[:, order]])
            alike = np.zeros(order.size, np.bool_)
            alike[order[1:]] = (words[:, 1:] == words[:, :-1]).all(axis=0)
            ways = ways.take(~alike)
            begins = _begins(ways.start)
            most = _longest(begins, ways.start.size)
        if most > MOST_WAYS:
            raise MatchTooWide(
                f"box {self._box!r}: there are more than {MOST_WAYS} ways to match from one row, with which the conditions of the pattern "
                "see different rows; let each row be fewer of its variables, or bound the pattern by {n,m} or within"
            )
        if ways.start.size > MOST_AT_ONCE and begins.size > 1:
            return ways.take(ways.start <= ways.start[begins[(begins.size - 1) // 2]])
        return ways

    def _next_width(self, width: int, keys: int, rows: Int64s, trial: _Trial, hop: Int64s) -> int:
        """How many starts of each key are tried next: more unless matches pass over too many."""
        passed = int((hop[rows] - 1).sum()) + WASTE * int((trial.known != DECIDED_START).sum())
        if passed > WASTE * rows.size:
            return max(1, width // 2)
        return max(1, min(4 * width, MOST_STARTS // keys))

    # ------------------------------------------------ labels

    def _named(self, trial: _Trial, place: Int64s) -> Int64s:
        """The variables of the rows of each match, one after the other. place: int64 (n,), written: where those from a row begin."""
        length = np.where(trial.known == DECIDED_START, trial.best - trial.first + 1, 0)
        matched = np.flatnonzero(length > 0)
        matched = matched[np.argsort(-length[matched], kind="stable")]
        length = length[matched]
        begin = np.cumsum(length) - length
        place[trial.first[matched]] = begin
        labels, at = np.empty(int(length.sum()), np.int64), trial.end[matched].copy()
        for back in range(int(length.max(initial=0)) - 1, -1, -1):
            some = int(np.searchsorted(-length, -back, "left"))
            labels[begin[:some] + back] = trial.labels[back][at[:some]]
            at[:some] = trial.ups[back][at[:some]]
        return labels

    def _hops(self, trial: _Trial, labels: Int64s, place: Int64s, hop: Int64s) -> None:
        """How many rows behind each start the next match may begin, written to `hop`."""
        mine = np.flatnonzero((trial.known == DECIDED_START) & (trial.best >= 0))
        first, length = trial.first[mine], trial.best[mine] - trial.first[mine] + 1
        if self._skip == TO_NEXT or not mine.size:
            return
        if self._skip == PAST_LAST:
            hop[first] = length
            return
        which, back = numbered(length)
        here = labels[place[first][which] + back - 1] == self._skip >> 1
        found = np.zeros(mine.size, np.int64)
        which, back = which[here], back[here] - 1
        if self._skip & 1 == 0:
            which, back = which[::-1], back[::-1]
        found[which] = back  # Of several the one written last stays.
        hop[first] = np.maximum(found, 1)


def _begins(start: Int64s) -> Int64s:
    """Where runs of equal numbers begin."""
    differs = np.ones(start.size, np.bool_)
    np.not_equal(start[1:], start[:-1], out=differs[1:])
    return np.flatnonzero(differs)


def _forget_behind_unknown(trial: _Trial) -> None:
    """Of a key's starts behind one of which nothing is known nothing is known, either: they are come to after another trial, and labels are
    those of the last one."""
    unknown = trial.known == UNKNOWN
    if unknown.any():
        upto = np.append(0, np.cumsum(unknown))
        trial.known[upto[1:] > upto[np.searchsorted(trial.stop, trial.stop)]] = UNKNOWN


def _longest(begins: Int64s, count: int) -> int:
    """How long the longest run is."""
    return int(max((begins[1:] - begins[:-1]).max(initial=0), count - begins[-1]))


def in_order(found: Int64s, labels: Int64s, order: Int64s) -> Int64s:
    """The labels of the rows of matches, which are put in another order. found: as they were."""
    length = found[:, LAST] - found[:, FIRST] + 1
    begin = np.cumsum(length) - length
    which, back = numbered(length[order])
    ordered: Int64s = labels[begin[order][which] + back - 1]
    return ordered
