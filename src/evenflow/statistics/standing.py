"""How far sites are in each segment, as they have said it last, and who of those for whom an ingress waits holds it back.

One matrix of all sites: what is asked of it is asked of all of them at once, a hundred sites with thirty segments in some ten microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Waited = tuple[tuple[int, int], ...]
"""(site, microseconds) for which an ingress had rows, and waited because that site had no room; none of none."""

ABSENT: Final = -1
"""Instead of an epoch: the site does not host the segment."""
NOBODY: Final = 2**62
"""A later epoch than any: the least of none."""
FIRST_SITES: Final = 16
ROUNDS: Final = 4
"""Who has said nothing while the others did so often is not counted with."""


@dataclass(frozen=True, slots=True)
class Stands:
    """What `Standing` had at one moment. rows: site -> its row. done: int64 (rows, segments), the newest epoch that is done, or ABSENT;
    watermarks: the same of the watermark behind it, which says nothing where `done` is ABSENT."""

    rows: Mapping[int, int]
    done: Ints
    watermarks: Ints

    def of(self, sites: Collection[int]) -> tuple[Ints, Ints]:
        """(done, watermarks) of these sites, as far as they have said something."""
        rows = [self.rows[site] for site in sites if site in self.rows]
        return self.done[rows], self.watermarks[rows]


class Standing:
    """producers: of each of so many segments those that it gets rows from; without them all for whom an ingress waits hold it back alike.
    Not for two threads at once."""

    def __init__(self, segments: int, producers: Sequence[Sequence[int]] = ()) -> None:
        fed = [(segment, sorted(each)) for segment, each in enumerate(producers) if each]
        self._fed: Ints = np.array([segment for segment, _ in fed], np.int64)
        self._feeding: Ints = np.array([each for _, of in fed for each in of], np.int64)
        self._begins = [0, *accumulate([len(of) for _, of in fed[:-1]])] if fed else []
        """Producers of the segments that have some, one after the other, and where each one's begin."""
        self._rows: dict[int, int] = {}
        self._done: Ints = np.full((FIRST_SITES, segments), ABSENT, np.int64)
        self._watermarks: Ints = np.zeros((FIRST_SITES, segments), np.int64)
        self._seen: Ints = np.zeros(FIRST_SITES, np.int64)
        self._looks = 0

    def now(self) -> Stands:
        """A copy."""
        count = len(self._rows)
        return Stands(dict(self._rows), self._done[:count].copy(), self._watermarks[:count].copy())

    def heard(self, row: int) -> None:
        """The site of this row has said something."""
        self._looks += 1
        self._seen[row] = self._looks

    def note(self, sites: Ints, rows: Ints, segments: Ints, done: Ints, watermarks: Ints) -> None:
        """How far sites are, in columns, by their rows. sites: the rows of those that are nowhere else any more."""
        self._done[sites] = ABSENT
        self._done[rows, segments] = done
        self._watermarks[rows, segments] = watermarks

    def held(self, waits: Sequence[Ints]) -> dict[int, int]:
        """For how long ingresses waited for each site, of what they say: int64 (sites, 2) of each, as `Waited`, one row at least. Of those
        that one waited for at the same time only those count that are behind, in some segment, what all its producers have done, and about
        as far as the one that is most: a site that waits for another one's rows has no room either. If nobody is behind all count."""
        counts = [len(wait) for wait in waits]
        sites, us = np.concatenate(waits).T
        own = self._behind()[[self._rows.get(site, -1) for site in sites.tolist()]]
        most = np.maximum.reduceat(own, [0, *accumulate(counts[:-1])])
        behind = 2 * own >= np.repeat(most, counts)
        found, at = np.unique(sites[behind], return_inverse=True)
        sums = np.zeros(found.size, np.int64)
        np.add.at(sums, at, us[behind])
        return dict(zip(found.tolist(), sums.tolist()))

    def _behind(self) -> Ints:
        """Epochs, by row; behind them 0, for who has said nothing yet."""
        count = len(self._rows)
        done = self._done[:count]
        fresh = done[self._seen[:count] + ROUNDS * count >= self._looks]
        if not self._begins:
            return np.zeros(count + 1, np.int64)
        least = np.where(fresh == ABSENT, NOBODY, fresh).min(axis=0, initial=NOBODY)
        floor = np.minimum.reduceat(least[self._feeding], self._begins)
        own = done[:, self._fed]
        return np.append(np.where((own == ABSENT) | (floor == NOBODY), 0, floor - own).max(axis=1, initial=0), 0)

    def row(self, site: int) -> int:
        """Of a site in the matrix, for ever."""
        row = self._rows.get(site)
        if row is None:
            row = self._rows[site] = len(self._rows)
            if row == len(self._seen):
                self._done = np.concatenate((self._done, np.full_like(self._done, ABSENT)))
                self._watermarks = np.concatenate((self._watermarks, np.zeros_like(self._watermarks)))
                self._seen = np.concatenate((self._seen, np.zeros_like(self._seen)))
        return row
