"""Modes of availability change while a run goes on and everything else goes wrong (availability.md, M2)."""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.availability.choosing import changed
from evenflow.errors import AvailabilityError
from evenflow.swarm.cases import Case
from evenflow.swarm.faults import Faults
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (5_000, 20_000, 100_000)
DEADLY: Final = 0.4
DEATHS: Final = ("kill", "kill", "kill_leader", "kill_two", "strand_leader", "kill_copy", "hang", "drop_link", "cut_control")
"""What goes wrong so often soon after another mode was asked for, in cases that want it."""


class Remodes(Recurring):
    """In some runs none does. case: has those that each box may have without giving another guarantee than it is judged by."""

    def __init__(self, world: SimWorld, random: Random, until_us: int, case: Case, faults: Faults) -> None:
        self._deadly = faults if case.deadly else None
        self._modes = modes = case.modes
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if modes and random.random() < case.changes else None)

    def strike(self) -> None:
        world, random = self.world, self._random
        if world.driver.paused or world.ended:
            return
        box = random.choice(sorted(self._modes))
        mode = random.choice(self._modes[box])
        wanted = world.coordinator.modes.modes
        sites, (_, replicas, *_) = len(world.coordinator.sites), world.placed
        try:
            modes = changed(world.layout, wanted, box, mode, max(sites, 2), replicas, located=world.store is not None)
        except AvailabilityError:
            return  # What is behind the box has replicas, or what is before it may lose something.
        world.set_availability(modes, replicas)
        if self._deadly is not None and random.random() < DEADLY:
            name, wait_us = random.choice(DEATHS), random.randint(0, random.choice([100, 2_000, 20_000]))
            world.clock.after(wait_us, lambda: self._go_wrong(name))

    def _go_wrong(self, name: str) -> None:
        if self._deadly is not None and not (self._deadly.over or self.world.ended):
            self._deadly.strike(name)
