"""What a site did in a window of time: the numbers that policies, experiments and views work with.

A site's window says how long the site worked, what it holds, and, per hosted segment, the rows and the state of
each partition and the cost of each box. Windows of one site that follow each other merge into one; those of all sites
together are the `Statistics` (`statistics.statistics`). Replicas each report for themselves: a partition with two
replicas is in the windows of two sites, and its rows were processed twice.

Everything here is a value. Nothing knows a clock or how the numbers were measured (site/counting.py, and the worlds for time).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from evenflow.errors import StatisticsError


@dataclass(frozen=True, slots=True)
class BoxWindow:
    """One box (step) of a segment at one site. busy_us: time in its operator, microseconds. rows_failed: on which it raised."""

    name: str
    rows_in: int
    rows_out: int
    busy_us: int
    rows_failed: int = 0

    @property
    def cost_us(self) -> float | None:
        """Microseconds per input row; None if it had no rows."""
        return self.busy_us / self.rows_in if self.rows_in else None

    @property
    def selectivity(self) -> float | None:
        """Rows out per row in; None if it had no rows."""
        return self.rows_out / self.rows_in if self.rows_in else None

    def then(self, later: BoxWindow) -> BoxWindow:
        return BoxWindow(
            self.name,
            self.rows_in + later.rows_in,
            self.rows_out + later.rows_out,
            self.busy_us + later.busy_us,
            self.rows_failed + later.rows_failed,
        )


@dataclass(frozen=True, slots=True)
class SegmentWindow:
    """One segment at one site.

    partitions: ascending. rows: processed in the window, state_bytes: held at its end, of the partition at the same place; a partition
    that has left the site within the window keeps its rows, and holds 0 bytes. busy_us: all that running the segment took, the boxes and
    what lies between them (gathering, routing). boxes: in the segment's order. on_disk: those of the partitions whose state is there.
    arc_rows: (arc, rows that were put on it) for each arc that the segment puts rows on, by all replicas here.
    """

    segment: int
    name: str
    partitions: tuple[int, ...]
    rows: tuple[int, ...]
    state_bytes: tuple[int, ...]
    busy_us: int
    boxes: tuple[BoxWindow, ...]
    on_disk: tuple[int, ...] = ()
    arc_rows: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not len(self.partitions) == len(self.rows) == len(self.state_bytes):
            raise StatisticsError(
                f"segment {self.segment} ({self.name}): {len(self.partitions)} partitions, {len(self.rows)} rows and "
                f"{len(self.state_bytes)} state_bytes; there must be one of each per partition"
            )

    @property
    def cost_us(self) -> float | None:
        """Microseconds per row that entered the segment; None if none did."""
        rows = sum(self.rows)
        return self.busy_us / rows if rows else None

    def then(self, later: SegmentWindow) -> SegmentWindow:
        """Both windows as one; state is the later one's."""
        if [box.name for box in self.boxes] != [box.name for box in later.boxes]:
            raise StatisticsError(f"segment {self.segment} has other boxes in the next window; windows of one run only can be merged")
        rows = defaultdict(int, zip(self.partitions, self.rows))
        for partition, count in zip(later.partitions, later.rows):
            rows[partition] += count
        state = dict(zip(later.partitions, later.state_bytes))
        partitions = tuple(sorted(rows))
        return SegmentWindow(
            self.segment,
            self.name,
            partitions,
            tuple(rows[p] for p in partitions),
            tuple(state.get(p, 0) for p in partitions),
            self.busy_us + later.busy_us,
            tuple(mine.then(theirs) for mine, theirs in zip(self.boxes, later.boxes)),
            later.on_disk,
            _added(self.arc_rows, later.arc_rows),
        )


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """A partition of a source at the site that reads it. source: the box's name.

    offered: rows that fell due in the window, whether they could be read or not: kept + dropped + growth of behind. kept: taken in.
    dropped: by value class. behind: rows at the end that are there, or due, and have not been read; None if nobody can say. waited_us: for
    how long the oldest row that no epoch has had waited at the end.
    """

    source: str
    segment: int
    partition: int
    offered: int
    kept: int
    dropped: tuple[int, ...] = ()
    behind: int | None = None
    waited_us: int = 0

    def then(self, later: SourceWindow) -> SourceWindow:
        """Both windows as one; what waits is the later one's."""
        dropped = tuple(mine + theirs for mine, theirs in zip_longest(self.dropped, later.dropped, fillvalue=0))
        return replace(later, offered=self.offered + later.offered, kept=self.kept + later.kept, dropped=dropped)


@dataclass(frozen=True, slots=True)
class Latency:
    """End to end, from an epoch's opening to its release, of the epochs released at a site. count: how many; 0: then nothing is known."""

    p50_us: int = 0
    p99_us: int = 0
    count: int = 0

    def then(self, later: Latency) -> Latency:
        """Of both: the median weighted by count, and the greater p99, which is an upper bound of the common one."""
        count = self.count + later.count
        if not count:
            return self
        median = (self.p50_us * self.count + later.p50_us * later.count) // count
        return Latency(median, max(w.p99_us for w in (self, later) if w.count), count)


@dataclass(frozen=True, slots=True)
class SiteWindow:
    """One site from `begin_us` to `end_us` of its own clock.

    busy_us: time in which its loop or the thread of user code worked. free_bytes: memory left in its budget, negative while there is more
    in memory, None if it has none.
    pool_bytes: frames that wait or are retained at the end. spilled_bytes: on disk at the end. segments: those hosted, by id. sources: what
    is read here, by segment and partition.
    """

    site: int
    begin_us: int
    end_us: int
    busy_us: int
    free_bytes: int | None = None
    pool_bytes: int = 0
    spilled_bytes: int = 0
    segments: tuple[SegmentWindow, ...] = ()
    latency: Latency = Latency()
    sources: tuple[SourceWindow, ...] = ()

    def __post_init__(self) -> None:
        if self.end_us < self.begin_us:
            raise StatisticsError(f"site {self.site}: a window that ends at {self.end_us} cannot begin at {self.begin_us}")

    @property
    def idle_us(self) -> int:
        return max(0, self.end_us - self.begin_us - self.busy_us)

    @property
    def utilization(self) -> float:
        """U_j = busy / (busy + idle), from 0 to 1 (FL 5.3). Of an empty window: 0."""
        whole = self.busy_us + self.idle_us
        return self.busy_us / whole if whole else 0.0

    @property
    def rows(self) -> int:
        """Rows processed, over all hosted segments (FL 5.3: T_j)."""
        return sum(sum(segment.rows) for segment in self.segments)

    @property
    def state_bytes(self) -> int:
        return sum(sum(segment.state_bytes) for segment in self.segments)

    def then(self, later: SiteWindow) -> SiteWindow:
        """This window and a later one of the same site as one. A gap between them counts as neither busy nor idle: it is left out.

        Raises StatisticsError if the site differs or the windows overlap.
        """
        if self.site != later.site:
            raise StatisticsError(f"windows of site {self.site} and of site {later.site} cannot be merged")
        if later.begin_us < self.end_us:
            raise StatisticsError(f"site {self.site}: a window begins at {later.begin_us}, before the one ahead of it ends ({self.end_us})")
        gap_us = later.begin_us - self.end_us
        mine = {segment.segment: segment for segment in self.segments}
        theirs = {segment.segment: segment for segment in later.segments}
        return replace(
            later,
            begin_us=self.begin_us + gap_us,
            busy_us=self.busy_us + later.busy_us,
            segments=tuple(_segment_then(mine.get(number), theirs.get(number)) for number in sorted(mine | theirs)),
            latency=self.latency.then(later.latency),
            sources=_sources_then(self.sources, later.sources),
        )


def _added(first: tuple[tuple[int, int], ...], later: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    before = dict(first)
    return tuple((arc, before.get(arc, 0) + rows) for arc, rows in later) if later else first


def _sources_then(first: tuple[SourceWindow, ...], later: tuple[SourceWindow, ...]) -> tuple[SourceWindow, ...]:
    """Who is not in the later one is read elsewhere: what waits there is not told here."""
    found = {(each.segment, each.partition): replace(each, behind=None, waited_us=0) for each in first}
    for each in later:
        at = (each.segment, each.partition)
        found[at] = found[at].then(each) if at in found else each
    return tuple(found[at] for at in sorted(found))


def _segment_then(first: SegmentWindow | None, later: SegmentWindow | None) -> SegmentWindow:
    if first is None:
        assert later is not None
        return later
    if later is None:
        return replace(first, state_bytes=(0,) * len(first.partitions))
    return first.then(later)


def merged(windows: Sequence[SiteWindow]) -> SiteWindow:
    """Consecutive windows of one site as one. Raises StatisticsError if there are none, or they do not follow each other."""
    if not windows:
        raise StatisticsError("there are no windows to merge; wait for a site's first report")
    whole = windows[0]
    for window in windows[1:]:
        whole = whole.then(window)
    return whole
