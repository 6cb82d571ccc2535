"""Counting: what this site does for a run, always and cheaply, and the windows that the world asks for (evenflow.statistics).

What is counted only grows, and a window is the difference between two looks at it. So nothing is lost whenever a look falls, in the middle
of an epoch that runs in another thread too, and nothing is to be done when partitions come, go or change their cohort: there is one tally
per segment, whoever runs it. Time is the world's: it passes a clock to `Work.run`, or says what an epoch has cost (`spent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from evenflow.plan.layout import Layout, Segment
from evenflow.site.cohort import Cohort
from evenflow.site.spilling import Spilling
from evenflow.site.tally import Tallies, Tally
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow


class Counted(Protocol):
    """A part, as far as its windows tell of it."""

    @property
    def site(self) -> int: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def cohorts(self) -> Mapping[tuple[int, int], Cohort]: ...
    @property
    def tallies(self) -> Tallies: ...
    @property
    def spilling(self) -> Spilling: ...
    @property
    def buffered_bytes(self) -> int: ...


class Counting:
    """How far the tallies of a part have been told."""

    def __init__(self, part: Counted) -> None:
        self._part = part
        self._tallies = part.tallies.by_segment
        self._told: dict[int, Tally] = {}

    def tally(self, segment: Segment) -> Tally:
        """The one tally of the segment, for each cohort of it."""
        return self._part.tallies.of(segment)

    def spent(self, segment: int, took_us: int) -> None:
        """An epoch of the segment costs this much, says a world that measures nothing."""
        self._tallies[segment].busy_ns += took_us * 1000

    def window(self, begin_us: int, end_us: int, busy_us: int, latency: Latency) -> SiteWindow:
        """What has been done since the last call, and what is held now. begin_us, end_us, busy_us: of the site, measured by the world.

        latency: of what was released here. Cost: microseconds per segment, so a world asks a few times a second.
        """
        part = self._part
        cohorts: dict[int, list[Cohort]] = {}
        for cohort in part.cohorts.values():
            cohorts.setdefault(cohort.segment.id, []).append(cohort)
        windows = [self._segment(number, cohorts) for number in sorted(self._tallies)]
        return SiteWindow(
            site=part.site,
            begin_us=begin_us,
            end_us=end_us,
            busy_us=busy_us,
            free_bytes=part.spilling.free_bytes,
            pool_bytes=part.buffered_bytes,
            spilled_bytes=part.spilling.spilled_bytes,
            segments=tuple(window for window in windows if window.partitions),
            latency=latency,
        )

    def _segment(self, number: int, cohorts: Mapping[int, list[Cohort]]) -> SegmentWindow:
        segment = self._part.layout.segments[number]
        now, before = self._tallies[number].copy(), self._told.get(number) or Tally.of(segment)
        self._told[number] = now
        rows = now.rows - before.rows
        state, shown = np.zeros(rows.size, np.int64), rows > 0
        for cohort in cohorts.get(number, ()):
            hosted = cohort.partitions
            shown[list(hosted)] = True
            state[list(hosted)] += cohort.partition_bytes(hosted)
        partitions = np.flatnonzero(shown)
        boxes = tuple(
            BoxWindow(
                step.box,
                now.rows_in[i] - before.rows_in[i],
                now.rows_out[i] - before.rows_out[i],
                now.box_ns[i] // 1000 - before.box_ns[i] // 1000,
                now.rows_failed[i] - before.rows_failed[i],
            )
            for i, step in enumerate(segment.steps)
        )
        return SegmentWindow(
            number,
            segment.name,
            tuple(partitions.tolist()),
            tuple(rows[partitions].tolist()),
            tuple(state[partitions].tolist()),
            now.busy_ns // 1000 - before.busy_ns // 1000,
            boxes,
            self._part.spilling.on_disk(number),
        )
