"""What a simulated site reports of itself: windows of what it has done, whose time is that of the cost model."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from evenflow.site.machine import SiteMachine
from evenflow.statistics.window import Latency, SegmentWindow, SiteWindow
from evenflow.world.sim.clock import VirtualClock


class Reports(Protocol):
    """A simulated site, as far as its windows tell of it. free_at_us: when its processor has done what waits for it."""

    busy_us: int
    free_at_us: int

    @property
    def part(self) -> SiteMachine: ...


class Reporting:
    """latencies_us: of the epochs that were accepted from here since the last window."""

    def __init__(self, site: Reports, clock: VirtualClock) -> None:
        self._site, self._clock = site, clock
        self.latencies_us: list[int] = []
        self._told_us, self._told_busy_us = clock.now_us, 0

    def window(self) -> SiteWindow:
        """What it has done since the last call; an epoch's cost counts from its beginning for its segment, as it passes for the site."""
        begin_us, done_us, latencies = self._told_us, self._told_busy_us, sorted(self.latencies_us)
        self._tell()
        count = len(latencies)
        latency = Latency(latencies[count // 2], latencies[count * 99 // 100], count) if count else Latency()
        window = self._site.part.counting.window(begin_us, self._told_us, self._told_busy_us - done_us, latency)
        return replace(window, segments=tuple(shared_out(segment) for segment in window.segments))

    def begin(self) -> None:
        """A window begins, and nobody wants to know what came before it."""
        self._tell()
        self._site.part.counting.forget()

    def _tell(self) -> None:
        self._told_us = self._clock.now_us
        self._told_busy_us = self._site.busy_us - max(0, self._site.free_at_us - self._told_us)
        self.latencies_us = []


def shared_out(segment: SegmentWindow) -> SegmentWindow:
    """The cost model knows what an epoch of a segment costs: each of its boxes has a part of it by its input rows, unless they have costs
    of their own."""
    rows = sum(box.rows_in for box in segment.boxes)
    if not rows or any(box.busy_us for box in segment.boxes):
        return segment
    return replace(segment, boxes=tuple(replace(box, busy_us=segment.busy_us * box.rows_in // rows) for box in segment.boxes))
