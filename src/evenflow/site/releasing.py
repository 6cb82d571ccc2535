"""Releasing: finished epochs go to the sinks, whole and in order, and are held until the sink has stored them (protocol O1).

Where a sink takes first come, first served, `portioning` releases an epoch's rows as they come, and that it is whole is released here.

What a sink has not stored holds the ingress back. A sink that reads by itself may say earlier that it has planned to read epochs, and
stores them when it plans the next ones (O2): if those were held back until then, neither would ever come. So what it has taken holds
nobody back, and is kept. It takes no more before that is stored, so there are never more than two windows of epochs here.

With a journal no sink gets an epoch before it is durable (J3): the driver sees to that for its own sinks, and this file for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evenflow.site.cohort import Cohort
from evenflow.site.events import Release, Stored
from evenflow.site.facts import SourcesStand
from evenflow.site.ground import Ground
from evenflow.site.outcome import Outcome

OPENED_MAX: Final = 4096
"""Epochs of which it is remembered when their first row came, until a step has stored them: most have no rows."""
MARK_US: Final = 50_000
"""Of a sink whose readers want to know up to where no rows have come, an empty epoch is released so often, by the epochs' stamps (E10):
what waits for it downstream waits so much longer at most."""


class Releasing:
    """committed: by segment, the last epoch that its sink has stored, whichever replica it got it from."""

    def __init__(self, part: Ground) -> None:
        self._part = part
        self.committed: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._bytes: dict[tuple[int, int], int] = {}
        self._opened: dict[int, dict[int, int]] = {}
        self._closed: list[Release] = []
        self._marked_us: dict[int, int] = {}

    @property
    def frame_bytes(self) -> int:
        """Rows that a sink was given and has not stored yet."""
        return sum(self._bytes.values())

    @property
    def waiting_epochs(self) -> int:
        """Epochs that a sink was given and has not stored yet."""
        return len(self._bytes)

    def through(self, segment: int) -> int:
        return self.committed.get(segment, self._part.beginning.epoch)

    def taken(self, segment: int) -> int:
        """Last epoch that holds no room any more: the sink has stored it, or has planned to read it."""
        return max(self._taken.get(segment, 0), self.through(segment))

    def take(self, segment: int, epoch: int) -> None:
        """The sink has planned to read the epochs up to this one."""
        self._taken[segment] = max(epoch, self._taken.get(segment, 0))

    def commit(self, segment: int, epoch: int) -> None:
        """The sink has stored the epochs up to this one."""
        self.committed[segment] = max(epoch, self.through(segment))
        for key in [k for k in self._bytes if k[0] == segment and k[1] <= epoch]:
            del self._bytes[key]

    def all_stored(self, cohorts: Iterable[Cohort]) -> bool:
        """Sinks have stored all that these cohorts have finished for them."""
        return all(c.segment.sink is None or self.through(c.segment.id) >= c.hosted.done for c in cohorts)

    def finish(self, cohort: Cohort, outcome: Outcome) -> None:
        """An epoch of a cohort is done, and may be for a sink. An empty one needs none unless it is the last, or a mark; those of a copied
        cohort wait.
        """
        if cohort.hosted.ends:
            self._end(cohort, outcome)
        if outcome.released is None:
            return
        assert cohort.segment.sink is not None
        segment, sink = cohort.segment.id, cohort.segment.sink
        epoch, batch, last = outcome.tick.epoch, outcome.released, outcome.tick.last
        committed = self.through(segment)
        if epoch <= committed:
            return  # Another replica was faster.
        reads = self._part.layout.sinks[sink].where == "spark"  # Its numbers must be the same at every replica, empty epochs included.
        mark = self._marks(segment, sink, outcome)
        if batch.num_rows == 0 and not last and committed >= epoch - 1 and not (reads or mark):
            self.committed[segment] = epoch
            return
        if cohort.segment.unordered:
            batch = batch.slice(0, 0)  # They have been passed on as they came.
        self.pass_on(cohort, Release(segment, sink, epoch, batch, outcome.opened, last))

    def _marks(self, segment: int, sink: str, outcome: Outcome) -> bool:
        """Whether this epoch, if it has no rows, is a mark for readers downstream. Only epochs of all regions are."""
        part, stamp_us = self._part, outcome.tick.stamp
        if not (part.by_content and part.layout.sinks[sink].marked):
            return False
        due = stamp_us - self._marked_us.get(segment, 0) >= MARK_US
        if due:
            self._marked_us[segment] = stamp_us
        return due

    def pass_on(self, cohort: Cohort, release: Release) -> None:
        """A cohort has this for a sink: that of a copied one waits."""
        if cohort.number:
            cohort.waiting.append(release)
        else:
            self.release(release)

    def _end(self, cohort: Cohort, outcome: Outcome) -> None:
        """A step has stored something, perhaps of epochs before. The first replica of one of the partitions says so: of one partition there
        is one that does, and a site with several says it once."""
        if cohort.number:
            return
        view = self._part.view
        opened = self._opened.setdefault(cohort.segment.id, {})
        opened[outcome.tick.epoch] = outcome.opened
        stored = tuple([opened.pop(epoch) for epoch in outcome.stored if epoch in opened])
        if stored and not view.counted(cohort.segment.id).isdisjoint(cohort.partitions):
            self._part.act(Stored(cohort.segment.id, stored))
        if len(opened) > OPENED_MAX:
            del opened[next(iter(opened))]

    def become_live(self, cohort: Cohort) -> None:
        """What a copied cohort has finished may go to the sink now."""
        waiting, cohort.waiting = cohort.waiting, []
        for release in waiting:
            if release.epoch > self.through(release.segment):
                self.release(release)

    def release(self, release: Release) -> None:
        part = self._part
        if release.batch.num_rows and (stands := part.leading.stands()):
            part.tell(SourcesStand(stands))  # Before the rows.
        if part.view.counts(release.segment, (0,)):
            part.counters.rows_out += release.batch.num_rows
        key = release.segment, release.epoch
        self._bytes[key] = self._bytes.get(key, 0) + release.batch.nbytes
        if release.epoch > part.durable and part.layout.sinks[release.sink].where != "driver":
            self._closed.append(release)  # The driver, who has the sinks that are there, holds back what it gets by itself.
        else:
            part.act(release)

    def open(self) -> None:
        """More is durable: what was held back for that goes to its sink, unless another replica was faster."""
        closed, self._closed = self._closed, []
        for release in closed:
            if release.epoch > self._part.durable:
                self._closed.append(release)
            elif release.epoch > self.through(release.segment):
                self._part.act(release)
