"""What a simulated site reports of itself: windows of what it has done, whose time is that of the cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from evenflow.site.counting import Unread
from evenflow.site.hosted import Hosted
from evenflow.site.machine import SiteMachine
from evenflow.statistics.window import Latency, SegmentWindow, SiteWindow
from evenflow.stream.waiting import Waiting
from evenflow.world.sim.clock import VirtualClock
from evenflow.world.sim.model import CostModel


class Reports(Protocol):
    """A simulated site, as far as its windows tell of it. free_at_us: when its processor has done what waits for it."""

    busy_us: int
    free_at_us: int

    @property
    def part(self) -> SiteMachine: ...
    @property
    def readers(self) -> Mapping[tuple[int, int], Any]: ...
    @property
    def coming(self) -> Mapping[tuple[int, int], int]: ...


class Reporting:
    """latencies_us: of the epochs that were accepted from here since the last window. kept: windows that are there for somebody else than
    who asked for them; None if there is nobody."""

    def __init__(self, site: Reports, clock: VirtualClock) -> None:
        self._site, self._clock = site, clock
        self.latencies_us: list[int] = []
        self.kept: list[SiteWindow] | None = None
        self._told_us, self._told_busy_us = clock.now_us, 0

    def window(self) -> SiteWindow:
        """What it has done since the last call; an epoch's cost counts from its beginning for its segment, as it passes for the site."""
        begin_us, done_us, latencies = self._told_us, self._told_busy_us, sorted(self.latencies_us)
        self._tell()
        count = len(latencies)
        latency = Latency(latencies[count // 2], latencies[count * 99 // 100], count) if count else Latency()
        window = self._site.part.counting.window(begin_us, self._told_us, self._told_busy_us - done_us, latency, self._unread())
        window = replace(window, segments=tuple(shared_out(segment) for segment in window.segments))
        if self.kept is not None:
            self.kept.append(window)
        return window

    def _unread(self) -> Unread:
        told, coming = {key: reader.waiting(self._told_us) for key, reader in self._site.readers.items()}, self._site.coming
        return {key: Waiting(each.rows + coming.get(key, 0), each.since_us) for key, each in told.items() if each is not None}

    def begin(self) -> None:
        """A window begins, and who asks for it does not want to know what came before it."""
        if self.kept is not None:
            self.window()
            return
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


def boxes_us_of(hosted: Hosted, before: Sequence[int], cost: CostModel, slow: float) -> int:
    """What rows have cost in boxes that have a cost of their own: how many came to which is known when an epoch has run. before: rows in of
    each box till then. slow: how much longer the site takes for them."""
    tally, whole_us = hosted.tally, 0
    for at, (step, rows) in enumerate(zip(hosted.segment.steps, before, strict=True)):
        box_us = int(slow * cost.boxes.get(step.box, 0.0) * (tally.rows_in[at] - rows))
        tally.box_ns[at] += 1000 * box_us
        whole_us += box_us
    return whole_us
