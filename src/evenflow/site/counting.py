"""Counting: what this site does for a run, always and cheaply, and the windows that the world asks for (evenflow.statistics).

What is counted only grows, and a window is the difference between two looks at it. So nothing is lost whenever a look falls, in the middle
of an epoch that runs in another thread too, and nothing is to be done when partitions come, go or change their cohort: there is one tally
per segment, whoever runs it. Time is the world's: it passes a clock to `Work.run`, or says what an epoch has cost (`spent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.counting import count_rows
from evenflow.plan.layout import Segment
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow
from evenflow.stream.rows import Rows

if TYPE_CHECKING:
    from evenflow.site.cohort import Cohort
    from evenflow.site.part import Part

NowNs = Callable[[], int]
"""A clock that never goes back, nanoseconds from any origin."""


def no_clock() -> int:
    """Where nobody measures time."""
    return 0


@dataclass(slots=True)
class Tally:
    """What has been done for a segment at a site so far. One thread at a time writes, any may read.

    rows: int64 (P,), processed, by partition. rows_in, rows_out, rows_failed, box_ns: by step. busy_ns: in its epochs, between the steps
    too.
    """

    rows: npt.NDArray[np.int64]
    rows_in: list[int]
    rows_out: list[int]
    rows_failed: list[int]
    box_ns: list[int]
    busy_ns: int = 0

    @staticmethod
    def of(segment: Segment) -> Tally:
        steps = len(segment.steps)
        return Tally(np.zeros(segment.partitions, np.int64), [0] * steps, [0] * steps, [0] * steps, [0] * steps)

    def count(self, rows: Rows, arrived: Sequence[tuple[int, pa.RecordBatch]] = ()) -> None:
        """These rows enter the segment. arrived: the same ones by ingress partition, where they come from a source."""
        if arrived:
            for partition, batch in arrived:
                self.rows[partition] += batch.num_rows
        elif self.rows.size == 1:
            self.rows[0] += rows.partition.size
        else:
            count_rows(rows.partition, self.rows)

    def copy(self) -> Tally:
        return Tally(self.rows.copy(), self.rows_in.copy(), self.rows_out.copy(), self.rows_failed.copy(), self.box_ns.copy(), self.busy_ns)


@dataclass(slots=True)
class Counters:
    """What a part has done so far. Rows that several replicas put out are counted by the first of them."""

    rows_in: int = 0
    rows_out: int = 0
    rows_failed: int = 0
    sections_out: int = 0


class Counting:
    """The tallies of a part, by segment, and how far they have been told."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._tallies: dict[int, Tally] = {}
        self._told: dict[int, Tally] = {}

    def tally(self, segment: Segment) -> Tally:
        """The one tally of the segment, for each cohort of it."""
        if segment.id not in self._tallies:
            self._tallies[segment.id], self._told[segment.id] = Tally.of(segment), Tally.of(segment)
        return self._tallies[segment.id]

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
        now, before = self._tallies[number].copy(), self._told[number]
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
