"""What a run's sites have done since it began, as sums that only grow, and what they hold now: by site, step, segment and replica.

A window is added when it comes, which costs as much as it has partitions and boxes; a look at everything costs a few array operations,
however many windows there have been. The sums of the last seconds are in `totals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evenflow.statistics.window import SegmentWindow, SiteWindow

COLUMNS: Final = 4
_counts_of: Final = attrgetter("rows_in", "rows_out", "busy_us", "rows_failed")

Ints = NDArray[np.int64]


@dataclass(slots=True)
class SiteSums:
    """A site in a run. busy_us, measured_us grow; the others are as of its newest window, bytes."""

    busy_us: int = 0
    measured_us: int = 0
    spilled_bytes: int = 0
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Hosted:
    """The partitions of a segment at a site, and where they are in `Growing.rows`."""

    partitions: tuple[int, ...]
    slots: Ints


@dataclass(frozen=True, slots=True)
class Grown:
    """What `Growing` had at one moment. of: the one that it is of."""

    of: Growing
    boxes: Ints
    segment_rows: Ints
    segment_busy_us: Ints
    sites: Mapping[int, SiteSums]
    rows: Ints
    state_bytes: Ints


class Growing:
    """steps: how many each segment has, by its number. boxes: int64 (all steps, COLUMNS): rows in, rows out, busy us, rows failed; by
    segment and place in it, over all sites. rows, state_bytes: by slot, see `slots`. Not for two threads at once."""

    def __init__(self, steps: Iterable[int]) -> None:
        counts = list(steps)
        self._first = np.concatenate(([0], np.cumsum(counts))).tolist() if counts else [0]
        self.boxes: Ints = np.zeros((self._first[-1], COLUMNS), np.int64)
        self.segment_rows: Ints = np.zeros(len(counts), np.int64)
        self.segment_busy_us: Ints = np.zeros(len(counts), np.int64)
        self.sites: dict[int, SiteSums] = {}
        self.rows: Ints = np.zeros(64, np.int64)
        self.state_bytes: Ints = np.zeros(64, np.int64)
        self._slots: dict[tuple[int, int, int], int] = {}
        self._hosted: dict[int, dict[int, Hosted]] = {}

    def slots(self, replicas: Iterable[tuple[int, int, int]]) -> Ints:
        """Where replicas are in `rows` and `state_bytes`, for ever. replicas: (segment, partition, site) of each."""
        known, found = self._slots, []
        for replica in replicas:
            slot = known.get(replica)
            if slot is None:
                slot = known[replica] = len(known)
            found.append(slot)
        while len(known) > self.rows.size:
            self.rows = np.concatenate((self.rows, np.zeros_like(self.rows)))
            self.state_bytes = np.concatenate((self.state_bytes, np.zeros_like(self.state_bytes)))
        return np.array(found, np.int64)

    def now(self) -> Grown:
        """A copy, some thousand numbers."""
        return Grown(
            self, self.boxes.copy(), self.segment_rows.copy(), self.segment_busy_us.copy(),
            {site: replace(sums) for site, sums in self.sites.items()}, self.rows.copy(), self.state_bytes.copy(),
        )  # fmt: skip

    def add(self, window: SiteWindow) -> None:
        """A site's next window."""
        site = self.sites.setdefault(window.site, SiteSums())
        site.busy_us += window.busy_us
        site.measured_us += window.end_us - window.begin_us
        site.spilled_bytes, site.free_bytes = window.spilled_bytes, window.free_bytes
        hosted = self._hosted.setdefault(window.site, {})
        here = {segment.segment for segment in window.segments}
        for number in [number for number in hosted if number not in here]:
            self.state_bytes[hosted.pop(number).slots] = 0
        for segment in window.segments:
            slots = self._here(window.site, hosted, segment)
            self.rows[slots] += segment.rows
            self.state_bytes[slots] = segment.state_bytes
            self.segment_rows[segment.segment] += sum(segment.rows)
            self.segment_busy_us[segment.segment] += segment.busy_us
            counts = np.fromiter(chain.from_iterable(map(_counts_of, segment.boxes)), np.int64).reshape(-1, COLUMNS)
            first = self._first[segment.segment]
            self.boxes[first : first + len(counts)] += counts

    def _here(self, site: int, hosted: dict[int, Hosted], segment: SegmentWindow) -> Ints:
        known = hosted.get(segment.segment)
        if known is None or known.partitions != segment.partitions:
            if known is not None:
                self.state_bytes[known.slots] = 0
            slots = self.slots([(segment.segment, partition, site) for partition in segment.partitions])
            known = hosted[segment.segment] = Hosted(segment.partitions, slots)
        return known.slots
