"""Deaths at the very end of a run: of a site that has finished, when it has just said so, or of one that has not."""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, SiteSaid
from evenflow.site.facts import PartFinished
from evenflow.swarm.faults import Faults
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.world import SimWorld

DIE: Final = 0.2
"""In so many runs with replicas some do."""
EACH: Final = 0.4
"""So often when a site has finished."""


class Finishers(Observer):
    """random: of its own, so that a seed has the same faults otherwise. faults: say who may be lost."""

    def __init__(self, world: SimWorld, random: Random, faults: Faults) -> None:
        self._world, self._random, self._faults = world, random, faults
        able = faults.mix.kinds and faults.careful and world.detection.patience.votes
        if random.random() < DIE and able:
            world.observers = (*world.observers, self)

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        """Sinks may have everything by then, or wait for what only the one that dies has; others may not know yet that it was all."""
        world, random = self._world, self._random
        if world.ended or not isinstance(event, SiteSaid) or not isinstance(event.fact, PartFinished) or random.random() >= EACH:
            return
        site = random.choice([event.site, event.site, *world.coordinator.view.active()])
        world.clock.after(random.randint(1, random.choice([1, 500, 20_000])), lambda: self._die(site))

    def _die(self, site: int) -> None:
        """Until all faults are over, or at the end: between them redundancy is to become whole, while other sources go on."""
        if self._faults.over and not self._world.sources_may_end:
            return
        if not self._world.ended and self._faults.lose(site):
            self._faults.done["kill_finisher"] = self._faults.done.get("kill_finisher", 0) + 1
