"""Memory of a run: how much state a site may hold, and what becomes of its disk. Budgets change, disks are full, refuse, spoil, and break.

Random numbers are of its own, so that a seed has the same faults otherwise, whatever is drawn here.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from evenflow.site.events import StateMemoryChanged
from evenflow.swarm.faults import Faults
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.model import DiskModel
from evenflow.world.sim.world import SimWorld

BUDGETS: Final = (1, 1_000, 10_000)
OFTEN_US: Final = (5_000, 30_000)
DIES_US: Final = 3_000
"""A site whose disk is broken and that has not noticed ends for good after this long."""


def draw_memory(random: Random) -> tuple[dict[str, Any], DiskModel]:
    """Options of the dataflow, and the disks."""
    disk = DiskModel((10, random.choice([100, 2_000])), random.choice([1.0, 100.0]), random.choice([0, 0, 20_000]))
    if random.random() < 0.4:
        return {}, disk
    return {"state_memory_bytes": random.choice(BUDGETS), "spill_gap_ms": random.choice([0.0, 0.0, 5.0])}, disk


class Memory(Recurring):
    """What happens to budgets and disks. faults: say who may be lost."""

    def __init__(self, world: SimWorld, random: Random, until_us: int, faults: Faults) -> None:
        self._faults = faults
        every_us = random.choice(OFTEN_US)
        wanted = world.options.state_memory_bytes is not None and random.random() < 0.6
        super().__init__(world, random, until_us, every_us if wanted else None)

    def end(self) -> None:
        """Disks are as they should be."""
        super().end()
        for site in self.world.sites:
            if site.disk.broken and self._faults.may_lose((site.index,)):
                self.world.kill(site.index)
            site.disk.broken = False
            site.disk.refuses, site.disk.spoils, site.disk.capacity_bytes = False, 0, 0

    def strike(self) -> None:
        living = self._faults.living()
        if not living:
            return
        site = self.world.sites[self._random.choice(living)]
        kind = self._random.choice(["budget", "budget", "refuse", "spoil", "full", "break"])
        if kind == "budget":
            site.deliver(StateMemoryChanged(self._random.choice([*BUDGETS, None])))
        elif kind == "refuse":
            site.disk.refuses = not site.disk.refuses
        elif kind == "spoil":
            site.disk.spoils = 0 if site.disk.wrong else 1  # What is read wrong twice is lost.
        elif kind == "full":
            site.disk.capacity_bytes = self._random.choice([1, 5_000])
        elif len(self.world.coordinator.plan.placement[0][0]) > 1 and self._faults.may_lose((site.index,)):
            self._break(site.index)

    def _break(self, index: int) -> None:
        self._faults.lose_for_good(index)
        self.world.sites[index].disk.breaks()
        self.world.clock.after(DIES_US, lambda: self._end(index))

    def _end(self, index: int) -> None:
        """What would begin again elsewhere when the disk broke may be unable to by now: then the site dies later. When
        all faults are over its disk is as it should be, and it counts among the sites that there are to be: it dies no more."""
        if self.world.ended or self.over:
            return
        if self._faults.may_lose((index,)):
            self.world.kill(index)
        else:
            self.world.clock.after(DIES_US, lambda: self._end(index))
