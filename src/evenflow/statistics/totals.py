"""The newest windows of a run's sites, summed up as they come: what somebody who watches asks for many times a second.

`Totals` says the same as `Statistics.of(recent.windows_over(...))` of each site's share of work and of each box, without merging windows:
a window is added when it comes and taken away when it is too old. So a report costs as much as it has boxes, and a look as much as the
run has sites and boxes, however many windows there are (`tests/statistics/test_totals.py` compares the two).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenflow.errors import StatisticsError
from evenflow.statistics.window import BoxWindow, SegmentWindow, SiteWindow
from evenflow.statistics.wire import COLUMNS, FlatWindow, Structures

_counts_of: Final = attrgetter("rows_in", "rows_out", "busy_us", "rows_failed")

Shape = tuple[tuple[int, int], ...]
"""The segments of a window, each with how many boxes it has: windows of one shape are added as one array."""


class BoxTotal(NamedTuple):
    """One box over all sites. segment: its name. box: what it did there."""

    segment: str
    box: BoxWindow


class Counted(NamedTuple):
    """One window. length_us: from its begin to its end. counts: int64, shape (boxes, COLUMNS), in the order of its shape."""

    end_us: int
    length_us: int
    busy_us: int
    shape: Shape
    counts: NDArray[np.int64]


@dataclass(slots=True)
class OfSite:
    """The windows of one site, oldest first, and their sums, in microseconds."""

    windows: deque[Counted] = field(default_factory=deque)
    length_us: int = 0
    busy_us: int = 0


@dataclass(slots=True)
class OfShape:
    """The windows of one shape, of all sites. windows: how many. segments: as in the first of them, for the names."""

    segments: tuple[SegmentWindow, ...]
    windows: int
    counts: NDArray[np.int64]


class Totals:
    """over_us: how much of the past before the newest end counts, microseconds. Raises StatisticsError if that is not > 0.

    Each site's windows must come in their order, and may not overlap; sites may come and go. Not for two threads at once.
    """

    def __init__(self, over_us: int) -> None:
        if over_us <= 0:
            raise StatisticsError(f"totals are over a past of more than nothing, not over {over_us / 1e6:g} s")
        self._over_us = over_us
        self._newest_us = 0
        self._sites: dict[int, OfSite] = {}
        self._shapes: dict[Shape, OfShape] = {}

    def add(self, window: SiteWindow) -> None:
        """A site's next window. Cost: its boxes, and those of the windows of the site that are too old now."""
        shape = tuple([(segment.segment, len(segment.boxes)) for segment in window.segments])
        boxes = chain.from_iterable([segment.boxes for segment in window.segments])
        counts = np.fromiter(chain.from_iterable(map(_counts_of, boxes)), np.int64).reshape(-1, COLUMNS)
        length_us = window.end_us - window.begin_us
        self._add(window.site, Counted(window.end_us, length_us, window.busy_us, shape, counts), lambda: window.segments)

    def take(self, flat: FlatWindow, structures: Structures) -> None:
        """The same, as sites report it: some array operations."""
        structure = structures.of(flat)
        site, begin_us, end_us, busy_us = flat.words[:4].tolist()
        counted = Counted(end_us, end_us - begin_us, busy_us, structure.shape, structure.boxes(flat))
        self._add(site, counted, lambda: structures.window_of(flat).segments)

    def _add(self, number: int, counted: Counted, segments: Callable[[], tuple[SegmentWindow, ...]]) -> None:
        site = self._sites.setdefault(number, OfSite())
        site.windows.append(counted)
        site.length_us += counted.length_us
        site.busy_us += counted.busy_us
        alike = self._shapes.get(counted.shape)
        if alike is None:
            self._shapes[counted.shape] = OfShape(segments(), 1, counted.counts.copy())
        else:
            alike.windows += 1
            alike.counts += counted.counts
        self._newest_us = max(self._newest_us, counted.end_us)
        self._forget(number)

    def utilization(self) -> dict[int, float]:
        """The share of its time in which each site worked, from 0 to 1, ascending by site; see `SiteWindow.utilization`."""
        self._forget_all()
        return {
            number: site.busy_us / whole if (whole := max(site.length_us, site.busy_us)) else 0.0
            for number, site in sorted(self._sites.items())
        }

    def span_us(self) -> int:
        """From the first begin to the last end, microseconds, each site's gaps left out; 0 without a window."""
        self._forget_all()
        begins = [site.windows[-1].end_us - site.length_us for site in self._sites.values()]
        return max((site.windows[-1].end_us for site in self._sites.values()), default=0) - min(begins, default=0)

    def boxes(self) -> Iterator[BoxTotal]:
        """Every box over all sites, by segment and place in it. Cost: the boxes of each shape."""
        self._forget_all()
        found: dict[int, tuple[SegmentWindow, NDArray[np.int64]]] = {}
        for alike in self._shapes.values():
            at = 0
            for segment in alike.segments:
                counts = alike.counts[at : (at := at + len(segment.boxes))]
                known = found.get(segment.segment)
                if known is None:
                    found[segment.segment] = (segment, counts)
                else:
                    _check_same(known[0], segment)
                    found[segment.segment] = (known[0], known[1] + counts)
        for _, (segment, counts) in sorted(found.items()):
            for box, row in zip(segment.boxes, counts.tolist()):
                yield BoxTotal(segment.name, BoxWindow(box.name, *row))

    def _forget_all(self) -> None:
        for number in list(self._sites):
            self._forget(number)

    def _forget(self, number: int) -> None:
        """Take away what is too old of a site; a site of which nothing is left goes."""
        site, after_us = self._sites[number], self._newest_us - self._over_us
        while site.windows and site.windows[0].end_us <= after_us:
            old = site.windows.popleft()
            site.length_us -= old.length_us
            site.busy_us -= old.busy_us
            alike = self._shapes[old.shape]
            alike.windows -= 1
            alike.counts -= old.counts
            if not alike.windows:
                del self._shapes[old.shape]
        if not site.windows:
            del self._sites[number]


def _check_same(one: SegmentWindow, other: SegmentWindow) -> None:
    """Raise StatisticsError: windows of one run only can be summed up."""
    if len(one.boxes) != len(other.boxes):
        raise StatisticsError(f"segment {one.segment} has {len(one.boxes)} boxes at one site and {len(other.boxes)} at another")
