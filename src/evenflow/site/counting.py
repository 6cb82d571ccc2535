"""Counting: what this site does for a run, always and cheaply, and the windows that the world asks for (evenflow.statistics).

What is counted only grows, and a window is the difference between two looks at it. So nothing is lost whenever a look falls, in the middle
of an epoch that runs in another thread too, and nothing is to be done when partitions come, go or change their cohort: there is one tally
per segment, whoever runs it. Time is the world's: it passes a clock to `Work.run`, or says what an epoch has cost (`spent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final, Protocol

import numpy as np

from evenflow.availability.entries import Key
from evenflow.exchange.credit import Credit
from evenflow.plan.layout import Layout, Segment
from evenflow.site.cohort import Cohort
from evenflow.site.ingress import Ingress
from evenflow.site.spilling import Spilling
from evenflow.site.tally import Tallies, Tally
from evenflow.site.view import View
from evenflow.statistics.standing import Waited
from evenflow.statistics.window import Latency, SiteWindow, SourceWindow
from evenflow.statistics.wire import FlatWindow, Measured, Structures, flattened, names_of
from evenflow.stream.epoch import NO_WATERMARK
from evenflow.stream.waiting import Waiting

Unread = Mapping[Key, Waiting]
"""By partition of a source, what has been offered and not been read; not there if nobody can say."""
NOTHING_UNREAD: Final[Unread] = {}


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
    @property
    def by_content(self) -> bool: ...
    @property
    def view(self) -> View: ...
    @property
    def ingress(self) -> Ingress: ...
    @property
    def credit(self) -> Credit: ...


class Counting:
    """How far the tallies of a part have been told."""

    def __init__(self, part: Counted) -> None:
        self._part = part
        self._tallies = part.tallies.by_segment
        self._told: dict[int, Tally] = {}
        self._sources_told: dict[Key, tuple[int, tuple[int, ...]]] = {}
        self._behind: dict[Key, int] = {}

    def tally(self, segment: Segment) -> Tally:
        """The one tally of the segment, for each cohort of it."""
        return self._part.tallies.of(segment)

    def spent(self, segment: int, took_us: int) -> None:
        """An epoch of the segment costs this much, says a world that measures nothing."""
        self._tallies[segment].busy_ns += took_us * 1000

    def window(self, begin_us: int, end_us: int, busy_us: int, latency: Latency, waiting: Unread = NOTHING_UNREAD) -> SiteWindow:
        """What has been done since the last call, and what is held now. begin_us, end_us, busy_us: of the site, measured by the world.

        latency: of what was released here. Cost: microseconds per segment, so a world asks a few times a second.
        """
        flat = self.flat(begin_us, end_us, busy_us, latency, waiting)
        return Structures(names_of(self._part.layout)).window_of(flat)

    def flat(self, begin_us: int, end_us: int, busy_us: int, latency: Latency, waiting: Unread = NOTHING_UNREAD) -> FlatWindow:
        """The same as one array, with how far each segment is, and for how long the ingress here has been waiting for which sites.

        waiting: of the partitions of sources that are read here, what has not been read, as far as readers can say.
        """
        part = self._part
        cohorts: dict[int, list[Cohort]] = {}
        for cohort in part.cohorts.values():
            cohorts.setdefault(cohort.segment.id, []).append(cohort)
        measured = [self._segment(number, cohorts) for number in sorted(self._tallies)]
        return flattened(
            part.site, begin_us, end_us, busy_us, part.spilling.free_bytes, part.buffered_bytes, part.spilling.spilled_bytes, latency,
            [each for each in measured if each.partitions.size], self.waited(begin_us, end_us), self._sources(end_us, waiting),
        )  # fmt: skip

    def _sources(self, now_us: int, waiting: Unread) -> list[SourceWindow]:
        """What came of each partition of a source that is led here. What is behind now and was not known to be before is of no window."""
        part, found = self._part, list[SourceWindow]()
        before, self._behind = self._behind, {}
        for key in sorted(part.ingress.queues):
            if part.by_content and not part.view.counts(key[0], (key[1],)):
                continue  # Another replica reads the same rows, and tells of them.
            kept, dropped = self._came(key)
            unread, since_us = waiting.get(key), part.ingress.queues[key].since
            offered = kept + sum(dropped)
            if unread is not None:
                self._behind[key] = unread.rows
                offered = max(0, offered + unread.rows - before.get(key, unread.rows))
                since_us = min([us for us in (since_us, unread.since_us) if us is not None], default=None)
            found.append(
                SourceWindow(
                    part.layout.segments[key[0]].source or "",
                    *key,
                    offered,
                    kept,
                    dropped,
                    None if unread is None else unread.rows,
                    0 if since_us is None else max(0, now_us - since_us),
                )
            )
        return found

    def _came(self, key: Key) -> tuple[int, tuple[int, ...]]:
        """Rows kept, and dropped by class, since it was last asked."""
        tally = self._part.tallies.source(key)
        now = (tally.kept, tuple(tally.dropped))
        kept, dropped = self._sources_told.get(key, (0, ()))
        self._sources_told[key] = now
        lost = tuple(count - told for count, told in zip_longest(now[1], dropped, fillvalue=0))
        return now[0] - kept, lost if any(lost) else ()

    def forget(self) -> None:
        """As if a window had been asked for: what comes from now on is in the next one."""
        for key in self._part.ingress.queues:
            self._came(key)
        self._told = {number: tally.copy() for number, tally in self._tallies.items()}

    def waited(self, begin_us: int, end_us: int) -> Waited:
        """For how long before `end_us`, but not before `begin_us`, the ingress here has had an epoch's rows, and for which sites it waits:
        as far as a look now can tell. Looked at four times a second, that adds up to the truth, and an epoch pays nothing for it."""
        ingress, credit = self._part.ingress, self._part.credit
        waits_us = min(ingress.waits_us(end_us), end_us - begin_us)
        return tuple((site, waits_us) for site in credit.slowest(ingress.closed + 1, ingress.pipeline)) if waits_us > 0 else ()

    def _segment(self, number: int, cohorts: Mapping[int, list[Cohort]]) -> Measured:
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
        boxes: list[int] = []
        for i in range(len(segment.steps)):
            boxes += (
                now.rows_in[i] - before.rows_in[i],
                now.rows_out[i] - before.rows_out[i],
                now.box_ns[i] // 1000 - before.box_ns[i] // 1000,
                now.rows_failed[i] - before.rows_failed[i],
            )
        here = [cohort.hosted for cohort in cohorts.get(number, ())]
        return Measured(
            number,
            partitions,
            rows[partitions],
            state[partitions],
            now.busy_ns // 1000 - before.busy_ns // 1000,
            boxes,
            self._part.spilling.on_disk(number),
            max([hosted.done for hosted in here], default=0),
            max([hosted.watermark for hosted in here], default=NO_WATERMARK),
            tuple((arc, now.arc_rows[i] - before.arc_rows[i]) for i, arc in enumerate(segment.outputs)),
        )

    def stands(self) -> dict[int, tuple[int, int]]:
        """By segment the newest epoch that is done here, and the watermark: of what is live, which is ahead of what comes."""
        found: dict[int, tuple[int, int]] = {}
        for cohort in self._part.cohorts.values():
            done, watermark = found.get(cohort.segment.id, (0, NO_WATERMARK))
            found[cohort.segment.id] = max(done, cohort.hosted.done), max(watermark, cohort.hosted.watermark)
        return found
