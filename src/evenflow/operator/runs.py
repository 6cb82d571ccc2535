"""Rows sorted by event time, in runs that are merged a slice at a time: the buffer of `Order`.

Each epoch's rows are a run of the first level, and eight runs of one level become one of the next, so that they stay few and a row is moved
O(log buffer) times in its life. Eight small ones become one at once. Merging large ones would keep the site's loop for as long as it takes
to move all of their rows. So it goes on as rows come: now and then the first rows of all eight, up to some time and no more than a slice of
them, become the next part of what they are merged into, and are gone from where they were. Between two slices nothing is anywhere else than
in some part, and whoever looks need not know that a merge is under way.

Rows of equal time stay in order of arrival: runs of one level are merged if nothing lies between them, parts of a run have no time in
common, and rows of one time go into one part, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from evenflow.state.apart import SLICE_ROWS, counts_for, less, without
from evenflow.state.held_rows import join_rows
from evenflow.stream.arrays import Int64s
from evenflow.stream.epoch import END_OF_STREAM
from evenflow.stream.rows import Rows

MERGE_RUNS: Final = 8
"""Runs of one level that become one run of the next."""
PACE: Final = 2
"""So many rows of a merge are moved for each row that comes. With one it would end when the next one of its level begins."""
NO_RUN: Final = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows with their times and numbers, int64 (n,)."""

    rows: Rows
    time: Int64s
    number: Int64s

    def take(self, at: Int64s) -> Piece:
        return Piece(self.rows.take(at), self.time[at], self.number[at])

    def bytes(self) -> int:
        return int(self.rows.batch.nbytes) + self.rows.partition.nbytes + 2 * self.time.nbytes


@dataclass(frozen=True, slots=True)
class Part:
    """Rows sorted by event time, ties in order of arrival: a run, or what one has between two times. time: int64 microseconds, shape (n,),
    ascending. number: int64 (n,), that no other row has ever had.

    bytes: memory that it takes; who wants to know asks often. run: which it is of. start: rows before it have been released, or are in
    another part. counts: int64, rows of each partition from there on. dead: partitions that left the site; their rows are skipped when met,
    and do not count.
    """

    rows: Rows
    time: Int64s
    number: Int64s
    counts: Int64s
    bytes: int
    level: int
    run: int = NO_RUN
    start: int = 0
    dead: tuple[int, ...] = ()

    @staticmethod
    def of(piece: Piece, level: int, run: int = NO_RUN) -> Part:
        """These rows, in order of time."""
        if (piece.time[1:] < piece.time[:-1]).any():
            piece = piece.take(np.argsort(piece.time, kind="stable"))
        return Part(piece.rows, piece.time, piece.number, np.bincount(piece.rows.partition), piece.bytes(), level, run)

    @property
    def count(self) -> int:
        """Rows from `start` on."""
        return len(self.time) - self.start

    def until(self, watermark: int) -> int:
        """Position of the first row that this watermark does not release."""
        if watermark == END_OF_STREAM:
            return len(self.time)
        return int(np.searchsorted(self.time, watermark, side="left"))

    def piece(self, stop: int) -> Piece:
        """The living rows from `start` to `stop`."""
        here = slice(self.start, stop)
        piece = Piece(self.rows.slice(self.start, stop), self.time[here], self.number[here])
        if self.dead:
            alive = np.flatnonzero(~np.isin(piece.rows.partition, self.dead))
            if len(alive) < piece.rows.count:
                return piece.take(alive)
        return piece

    def held_by(self, partitions: Int64s) -> Int64s:
        """int64 (p,): about how many bytes of it are unreleased rows of each partition; all rows count as equally long."""
        return np.asarray(counts_for(self.counts, partitions) * self.bytes // max(1, len(self.time)), np.int64)

    def released(self, stop: int) -> Part:
        """Without the rows before `stop`. Cost: O(those)."""
        return replace(self, start=stop, counts=without(less(self.counts, self.rows.partition[self.start : stop]), self.dead))

    def without(self, partition: int) -> Part:
        """It has left the site."""
        return replace(self, dead=(*self.dead, partition), counts=without(self.counts, (partition,)))

    def without_dead(self) -> Part:
        """Its living rows are copied if they are fewer than half, so that memory follows the rows held."""
        piece = self.piece(len(self.time))
        if 2 * piece.rows.count >= len(self.time):
            return self
        return Part(piece.rows, piece.time, piece.number, self.counts, piece.bytes(), self.level, self.run)

    def compacted(self) -> Part:
        """What is left is copied once half of it is gone, so that memory follows the rows held."""
        if 2 * self.start < len(self.time):
            return self
        left = Piece(self.rows, self.time, self.number).take(np.arange(self.start, len(self.time)))
        return replace(self, rows=left.rows, time=left.time, number=left.number, bytes=left.bytes(), start=0)


@dataclass(slots=True)
class Merge:
    """Of these runs, from the first to the last with nothing between them, into another one. credit: rows that may be moved by now."""

    of: frozenset[int]
    into: int
    level: int
    credit: int = 0


class Runs:
    """parts: runs one after the other in order of arrival, and of each its parts by time; what a merge has made lies before what it is made
    of."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._merges: list[Merge] = []
        self._last = NO_RUN

    def add(self, piece: Piece) -> None:
        """A run of new rows. Cost: O(PACE x levels x its rows), and a slice."""
        self.parts.append(Part.of(piece, 0, self._new()))
        self._begin()
        self._go_on(piece.rows.count)

    def release(self, watermark: int) -> list[Piece]:
        """The rows that it releases, which are not here any more."""
        pieces, kept, later = [], list[Part](), NO_RUN
        for part in self.parts:
            if part.run != later and (stop := part.until(watermark)) > part.start:
                pieces.append(part.piece(stop))
                part = part.released(stop)
            if part.count:
                kept.append(part)
                later = part.run  # Its next part is of later times.
        if pieces:
            self.parts = [part.compacted() for part in kept]
        return pieces

    def each(self, change: Callable[[Part], Part]) -> None:
        """Change every part, and leave out those that have no rows then."""
        self.parts = [part for part in map(change, self.parts) if len(part.time)]

    def _new(self) -> int:
        self._last += 1
        return self._last

    # ------------------------------------------------------------ merges

    def _begin(self) -> None:
        """Merge what may be: at once, if that is not much."""
        while (found := self._ready()) is not None:
            level, runs = found
            merge = Merge(runs, self._new(), level + 1)
            if sum(part.count for part in self.parts if part.run in runs) <= SLICE_ROWS:
                self._move(merge, END_OF_STREAM)
            else:
                self._merges.append(merge)

    def _ready(self) -> tuple[int, frozenset[int]] | None:
        """Eight runs of one level one after the other that are not being merged, nor made, and their level."""
        busy = {run for merge in self._merges for run in (*merge.of, merge.into)}
        runs = [(part.level, run) for run, (part, *_) in groupby_run(self.parts)]
        for (level, free), some in groupby(runs, key=lambda of: (of[0], of[1] not in busy)):
            found = [run for _, run in some]
            if free and len(found) >= MERGE_RUNS:
                return level, frozenset(found[:MERGE_RUNS])
        return None

    def _go_on(self, count: int) -> None:
        """So many rows have come. One slice is moved, or as many as it takes for no merge to be more than one behind."""
        for merge in self._merges:
            merge.credit += PACE * count
        while self._merges:
            merge = max(self._merges, key=lambda each: each.credit)
            if merge.credit < SLICE_ROWS:
                return
            merge.credit -= max(1, self._move(merge, self._limit(merge)))
            if not any(part.run in merge.of for part in self.parts):
                self._merges.remove(merge)
                self._begin()
            if merge.credit < SLICE_ROWS and all(each.credit < 2 * SLICE_ROWS for each in self._merges):
                return

    def _limit(self, merge: Merge) -> int:
        """A time, before which the runs of a merge have about a slice of rows, and no more if few are of one time."""
        heads = [_Head(parts) for run, parts in groupby_run(self.parts) if run in merge.of]
        step, limit = max(1, SLICE_ROWS // MERGE_RUNS), END_OF_STREAM
        passed = 0
        while heads and passed <= SLICE_ROWS - MERGE_RUNS * step // 2:
            limit = min([head.time_after(step) for head in heads])
            if limit == END_OF_STREAM:
                break
            moved = sum([head.pass_by(limit) for head in heads])
            if not moved:
                limit += 1  # The next rows of all are of that time, or later.
                moved = sum([head.pass_by(limit) for head in heads])
            passed += moved
        return limit

    def _move(self, merge: Merge, limit: int) -> int:
        """The rows of its runs before this time become the next part of what they are merged into. Returns how many there were."""
        at = next((at for at, part in enumerate(self.parts) if part.run in merge.of), None)
        if at is None:
            return 0
        pieces, before, behind, moved = [], self.parts[:at], list[Part](), 0
        for part in self.parts[at:]:
            if part.run in merge.of and (stop := part.until(limit)) > part.start:
                moved += stop - part.start
                pieces.append(part.piece(stop))
                part = part.released(stop).compacted() if stop < len(part.time) else part.released(stop)
            if part.count:
                behind.append(part)
        if len(pieces) == 1:
            pieces = [pieces[0].take(np.arange(pieces[0].rows.count))]  # Else it would hold all that it is a slice of.
        made = Part.of(joined(pieces), merge.level, merge.into) if pieces else None
        self.parts = [*before, *([made] if made is not None and made.count else []), *behind]
        return moved


class _Head:
    """How far one run has been looked at."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, self._which, self._at = parts, 0, parts[0].start

    def time_after(self, rows: int) -> int:
        """Of the row that comes after so many more, or the first of the next part if that is nearer; END_OF_STREAM if there is none."""
        if self._which == len(self._parts):
            return END_OF_STREAM
        part = self._parts[self._which]
        if self._at + rows < len(part.time):
            return int(part.time[self._at + rows])
        following = self._parts[self._which + 1 : self._which + 2]
        return int(following[0].time[following[0].start]) if following else END_OF_STREAM

    def pass_by(self, limit: int) -> int:
        """The rows before this time. Returns how many."""
        passed = 0
        while self._which < len(self._parts):
            part = self._parts[self._which]
            stop = max(self._at, part.until(limit))
            passed, self._at = passed + stop - self._at, stop
            if stop < len(part.time):
                break
            self._which += 1
            self._at = self._parts[self._which].start if self._which < len(self._parts) else 0
        return passed


def groupby_run(parts: Iterable[Part]) -> Iterator[tuple[int, list[Part]]]:
    """Each run with its parts."""
    for run, some in groupby(parts, key=lambda part: part.run):
        yield run, list(some)


def joined(pieces: Sequence[Piece]) -> Piece:
    """One after the other."""
    if len(pieces) == 1:
        return pieces[0]
    rows = join_rows([piece.rows for piece in pieces], pieces[0].rows.batch.schema)
    return Piece(rows, np.concatenate([piece.time for piece in pieces]), np.concatenate([piece.number for piece in pieces]))
