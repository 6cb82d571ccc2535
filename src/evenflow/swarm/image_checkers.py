"""Images at other sites are where the run relies on them (availability.md, P3, P5, B2)."""

from __future__ import annotations

from typing import Final

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, SiteLost
from evenflow.site.events import Event
from evenflow.site.images import CapturePasted
from evenflow.swarm.base_checkers import all_keep
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld

EVERY: Final = 16
"""Events of sites from one look to the next."""


class ImageCheckers(Observer):
    """Of a run whose passive standby has no checkpoint location. By segment: what no producer is asked for any more is in images of all
    partitions, and from the oldest of them on producers have all.

    _exposed: segments for which that is not so, by right: a site has died with images, a capture came damaged, or the plan has other
    ranges, another version or other modes. Once it is so again, it stays so. looked: how often a segment was looked at.
    """

    def __init__(self, world: SimWorld) -> None:
        self.world, self.looked, self._events = world, 0, 0
        self._exposed: set[int] = set()
        self._plan = world.coordinator.plan
        world.observers = (*world.observers, self)

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        before, self._plan = self._plan, driver.machine.plan
        other = (before.ranges, before.version, before.modes) != (self._plan.ranges, self._plan.version, self._plan.modes)
        if other or isinstance(event, SiteLost):
            self._expose()

    def _expose(self) -> None:
        self._exposed = {segment.id for segment in self.world.layout.segments}

    def handled(self, site: SimSite, event: Event) -> None:
        if isinstance(event, CapturePasted) and event.epoch < 0:
            self._expose()  # From here on, and not only when the coordinator hears of it.
        self._events += 1
        machine = self.world.coordinator
        if self._events % EVERY or not machine.backing.active or not machine.running or machine.under_way() or machine.recovery.lost():
            return
        if not all(self.world.sites[site].alive for site in machine.sites):
            return
        for segment in sorted({number for number, _ in machine.backing.units}):
            self.looked += 1
            self._look(segment)

    def _look(self, segment: int) -> None:
        machine = self.world.coordinator
        name = self.world.layout.segments[segment].name
        bases = self._bases(segment)
        heard = [self.world.sites[site].part.stable[segment] for site in machine.sites]
        stable = max(*heard, machine.backing.stable[segment])  # Which may be on its way to them.
        lacking = sorted(partition for partition, base in bases.items() if base < stable)
        if not lacking:
            self._exposed.discard(segment)
        elif segment not in self._exposed:
            raise AssertionError(
                f"partitions {lacking} of {name}: no image is of epoch {stable}, and nobody is asked for what came up to there"
            )
        if machine.backing.protected():
            for stream in self.world.layout.segments[segment].inputs:
                all_keep(self.world, stream, min(bases.values()))

    def _bases(self, segment: int) -> dict[int, int]:
        """By partition: as of which epoch its newest image is, at a site that has it."""
        machine, sites = self.world.coordinator, self.world.sites
        found = dict.fromkeys(range(len(machine.plan.placement[segment])), 0)
        for held in machine.backing.images:
            kept = sites[held.unit.backup].part.imaging.images.get(held.unit.number)
            if held.unit.segment == segment and kept is not None:
                found |= {p: max(found[p], kept.image.epoch) for p in held.unit.partitions if p in found}
        return found
