"""Divisions of a run: keyed segments get other numbers of partitions, again and again, while everything else goes wrong."""

from __future__ import annotations

from random import Random

from evenflow.coordinator.events import RepartitionRequested
from evenflow.swarm.movements import OFTEN_US
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.world import SimWorld


class Divisions(Recurring):
    """In some runs there are none."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if random.random() < 0.5 else None)

    def strike(self) -> None:
        divide(self.world, self._random)


def divide(world: SimWorld, random: Random) -> None:
    """A keyed segment, or all of them, are to have another number."""
    keyed = [segment for segment in world.layout.segments if segment.is_keyed(world.layout)]
    if keyed and not world.driver.paused and world.coordinator.running:
        wanted = random.choice([keyed, [random.choice(keyed)]])
        count = random.randint(1, wanted[0].partitions)
        world.driver.coordinate(RepartitionRequested(tuple(segment.id for segment in wanted), count))
