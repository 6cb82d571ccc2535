"""What is declared lost is what was lost, where modes let sites lose something (availability.md, B4)."""

from __future__ import annotations

from collections.abc import Iterator

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, SiteSaid
from evenflow.site.events import Event, PlanCommitted
from evenflow.site.facts import Voided
from evenflow.site.hosted import Work
from evenflow.site.outcome import Outcome
from evenflow.stream.ids import SiteId
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

Frame = tuple[int, int, int, int]
"""(site, stream, epoch, producer partition)"""


class LossCheckers(Observer):
    """actual: frames that some consumer has read as empty, as it has processed their epoch. afterwards: the same, when the run was over.
    too_late: frames whose declaration has come when the run was over: nobody counts them any more. changing: modes may change in the run.

    _through: how far each inbox was before an event. _absent: by inbox, (partition, first, last) that it waits for no more.
    """

    def __init__(self, world: SimWorld, *, changing: bool = False) -> None:
        self.world = world
        self.actual: set[Frame] = set()
        self.afterwards: set[Frame] = set()
        self.too_late: set[Frame] = set()
        self._through: dict[tuple[int, int], tuple[int, dict[int, int]]] = {}
        self._absent: dict[tuple[int, int, int], set[tuple[int, int, int]]] = {}
        if world.coordinator.plan.modes or changing:
            world.observers = (*world.observers, self)

    def before_handled(self, site: SimSite, event: Event) -> None:
        self._through = {
            (cohort.born, stream): (inbox.through, dict(inbox.voids))
            for cohort in site.part.cohorts.values()
            for stream, inbox in cohort.inboxes.items()
        }

    def handled(self, site: SimSite, event: Event) -> None:
        self._note_passed(site, event)
        for cohort in site.part.cohorts.values():
            for stream, inbox in cohort.inboxes.items():
                through, known = self._through.get((cohort.born, stream), (0, {}))
                for partition, last in inbox.voids.items():
                    if known.get(partition) != last:
                        self._absent.setdefault((site.index, cohort.segment.id, stream), set()).add((partition, through + 1, last))

    def _note_passed(self, site: SimSite, event: Event) -> None:
        """A plan lets producers begin anew, and what was waited for is complete without them and may be taken out by now."""
        if not isinstance(event, PlanCommitted):
            return
        until = event.plan.effective - 1
        for copy in event.plan.copies:
            for cohort in site.part.cohorts.values() if copy.void else ():
                for stream, inbox in cohort.inboxes.items():
                    through, _ = self._through.get((cohort.born, stream), (until, {}))
                    if self.world.layout.arcs[stream].producer == copy.segment and through < until <= inbox.through:
                        absent = self._absent.setdefault((site.index, cohort.segment.id, stream), set())
                        absent.update((partition, through + 1, until) for partition in copy.partitions)

    def worked(self, site: SimSite, work: Work, outcome: Outcome) -> None:
        epoch = work.tick.epoch
        frames = self.afterwards if self.world.coordinator.over else self.actual
        for stream in work.hosted.segment.inputs:
            absent = self._absent.get((site.index, work.hosted.segment.id, stream), ())
            frames.update((site.index, stream, epoch, p) for p, first, last in absent if first <= epoch <= last)

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if isinstance(event, SiteSaid) and isinstance(event.fact, Voided) and self.world.coordinator.over:
            self.too_late.update(_frames(event.site, event.fact))

    def judge(self) -> str | None:
        """What is wrong at the end, or None. Whoever has died since may have declared what it did not come to read, or not have told; and
        a run that is stopped may not have come to the epochs that were declared, or may be over when it is told."""
        declared = {frame for site, said in self.world.coordinator.losses.voided for frame in _frames(site, said)}
        counted = self.world.coordinator.losses.frames
        if counted != len(declared):
            return f"{counted} frames are counted as read as empty, and {len(declared)} were declared"
        if self.world.error is not None:
            return None
        there = set(self.world.coordinator.sites)
        silent = sorted(frame for frame in self.actual - declared - self.too_late if frame[0] in there)
        unread = declared - self.actual - self.afterwards
        idle = sorted(frame for frame in unread if frame[0] in there and frame[2] <= self.world.sites[frame[0]].part.processed)
        if silent:
            return f"read as empty and not declared (site, stream, epoch, partition): {silent[:3]}"
        return f"declared and not read as empty (site, stream, epoch, partition): {idle[:3]}" if idle else None


def _frames(site: SiteId, said: Voided) -> Iterator[Frame]:
    return ((int(site), said.stream, epoch, partition) for epoch in range(said.first, said.last + 1) for partition in said.partitions)
