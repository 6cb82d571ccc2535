"""Movements of a run: partitions that go to and fro, and sites that are emptied, while everything else goes wrong.

They have random numbers of their own, so that a seed has the same faults with them and without.
"""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.coordinator.events import DrainSite, MovesRequested
from evenflow.policy.move import Move
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (2_000, 10_000, 50_000)


class Movements(Recurring):
    """In some runs nothing moves."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if random.random() < 0.4 else None)

    def end(self) -> None:
        """Nothing moves any more but what is under way, and what a policy wants; who is being emptied stays."""
        super().end()
        for site in sorted(self.world.coordinator.moving.leaving):
            self.world.driver.coordinate(DrainSite(site, stays=True))

    def strike(self) -> None:
        world = self.world
        if not world.driver.paused and world.coordinator.running:
            if self._random.random() < 0.1:
                self._empty_one()
            else:
                world.driver.coordinate(MovesRequested(tuple(self._draw() for _ in range(self._random.randint(1, 3)))))

    def _draw(self) -> Move:
        """Some of what a site hosts goes to any site; now and then what cannot go there."""
        random, machine = self._random, self.world.coordinator
        segment = random.choice(machine.layout.segments)
        block = random.choice(machine.view.blocks(segment.id))
        live = machine.view.live(block)
        count = random.choice([1, len(block.partitions), random.randint(1, len(block.partitions))])
        partitions = tuple(sorted(random.sample(block.partitions, count)))
        able = [site for site in machine.sites if site not in live] or machine.sites
        target = random.choice(able if random.random() < 0.9 else machine.sites)
        return Move(segment.id, partitions, random.choice(live or machine.sites), target, "the swarm wants it", asked=True)

    def _empty_one(self) -> None:
        machine = self.world.coordinator
        leaving = machine.moving.leaving
        if leaving and self._random.random() < 0.5:
            self.world.driver.coordinate(DrainSite(self._random.choice(sorted(leaving)), stays=True))
        elif len(machine.sites) - len(leaving) > 1:
            self.world.driver.coordinate(DrainSite(self._random.choice([site for site in machine.sites if site not in leaving])))
