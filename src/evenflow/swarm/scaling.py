"""Sites come and go as a person wants it: what `engine.add_sites` and `engine.remove_sites` do, while everything else goes wrong."""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.errors import OperationRefused
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.removal import Removal
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (5_000, 20_000, 100_000)
SITES_MAX: Final = 8


class Scaling(Recurring):
    """One removal at a time, as with an engine; it is called off when all faults end, or before that by a moody person."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        self._removal: Removal | None = None
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if random.random() < 0.5 else None)

    def end(self) -> None:
        """Who has not left by now stays."""
        super().end()
        if self._removal is not None:
            self._removal.call_off()

    def strike(self) -> None:
        random, world = self._random, self.world
        if world.driver.paused or not world.coordinator.running:
            return
        if self._removal is not None and self._removal.left:
            if random.random() < 0.2:
                self._removal.call_off()
        elif random.random() < 0.5:
            for _ in range(random.choice([1, 1, 2]) if len(world.driver.present) < SITES_MAX else 0):
                world.add_site()
        else:
            there = sorted(world.driver.present)
            try:
                self._removal = world.remove_sites(*random.sample(there, min(len(there), random.choice([1, 1, 2]))))
            except OperationRefused:
                pass  # Too few would be left, or something there cannot move.
