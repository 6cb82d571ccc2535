"""Modes of availability change while a run goes on and everything else goes wrong (availability.md, M2)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from evenflow.availability.choosing import changed
from evenflow.availability.mode import Mode
from evenflow.errors import AvailabilityError
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (5_000, 20_000, 100_000)


class Remodes(Recurring):
    """In some runs none does. modes: by box, those that it may have without giving another guarantee than its case is judged by."""

    def __init__(self, world: SimWorld, random: Random, until_us: int, modes: Mapping[str, tuple[Mode, ...]]) -> None:
        self._modes = modes
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if modes and random.random() < 0.4 else None)

    def strike(self) -> None:
        world, random = self.world, self._random
        if world.driver.paused or world.ended:
            return
        box = random.choice(sorted(self._modes))
        mode = random.choice(self._modes[box])
        wanted = world.coordinator.modes.modes
        sites, replicas = len(world.coordinator.sites), world.replicas
        try:
            modes = changed(world.layout, wanted, box, mode, max(sites, 2), replicas, located=world.store is not None)
        except AvailabilityError:
            return  # What is behind the box has replicas, or what is before it may lose something.
        world.set_availability(modes, replicas)
