"""Deaths of sites that have something alone, when that would begin again from a base behind the first epoch (availability.md, B1).

One site dies at a time (B3), and only while the run says that nothing would be lost of it. If it is lost all the same, that is a fault.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from evenflow.availability.mode import BASED
from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, SiteLost
from evenflow.errors import PartitionsLost
from evenflow.stream.ids import SiteId
from evenflow.swarm.base_checkers import may_begin_again
from evenflow.swarm.faults import LOOK_US, LOOKS, Faults
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (5_000, 20_000)
MOMENTS: Final = ("now", "pasting", "uneven", "unheard")
TRIES: Final = 100
"""So often it is looked whether such a moment has come; then any will do."""


class BasedDeaths(Recurring, Observer):
    """faults: say who may be lost, and undo what lasts. promised: (the site that has died last, the plan under which it died), as long as
    nothing has happened since that the promise does not cover."""

    def __init__(self, world: SimWorld, random: Random, until_us: int, faults: Faults, *, active: bool) -> None:
        self._faults = faults
        self._awaits = False
        self.promised: tuple[int, int] | None = None
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if active else None)
        if active:
            world.observers = (*world.observers, self)

    def strike(self) -> None:
        if not self._awaits:
            self._awaits = True
            images = self.world.coordinator.backing.active
            self._await(self._random.choice(MOMENTS if images else ("now", "unheard")), LOOKS)

    def _await(self, moment: str, tries: int) -> None:
        """Look again and again whether somebody may be lost at such a moment."""
        world = self.world
        if self.over or world.ended or not tries:
            self._awaits = False
            return
        victim = self._victim(moment if tries > LOOKS - TRIES else "now")
        if victim is None:
            world.clock.after(4 * LOOK_US, lambda: self._await(moment, tries - 1))
        elif moment == "unheard":
            self._hang_another(victim)
        else:
            self._awaits = False
            self._lose(victim, ())

    def _victim(self, moment: str) -> int | None:
        """A site that may be lost now, and has something with a base alone. pasting: a capture of it is being pasted elsewhere. uneven: the
        image of a producer there is ahead of that of its consumer there."""
        machine = self.world.coordinator
        if not machine.running or not machine.plan.modes or self.world.driver.paused or not may_begin_again(self.world):
            return None
        is_it = {"pasting": self._pasting, "uneven": self._uneven}.get(moment)
        able = sorted(site for site in self._alone() if is_it is None or is_it(site))
        site = self._random.choice(able) if able else None
        return site if site is not None and site in self._faults.living() and self._faults.may_lose((site,)) else None

    def _alone(self) -> set[int]:
        """Sites with something that would begin again behind the first epoch."""
        machine, found = self.world.coordinator, set()
        for segment, mode in enumerate(machine.plan.modes):
            if mode in BASED and not machine.backing.active and machine.reviving.base_of(segment) > 0:
                found |= {site for block in machine.view.blocks(segment) for site in machine.view.live(block)}
        return found | {site for (_, site), held in machine.backing.units.items() if held.base > 0}

    def _pasting(self, site: int) -> bool:
        machine, sites = self.world.coordinator, self.world.sites
        mine = {held.unit.number for held in machine.backing.units.values() if held.site == site}
        return any(kept.busy and unit in mine for other in machine.sites for unit, kept in sites[other].part.imaging.images.items())

    def _uneven(self, site: int) -> bool:
        units = self.world.coordinator.backing.units
        here = SiteId(site)
        bases = [(units.get((arc.producer, here)), units.get((arc.consumer, here))) for arc in self.world.layout.arcs]
        return any(up is not None and down is not None and up.base > down.base for up, down in bases)

    # ------------------------------------------------------------ a death

    def _hang_another(self, victim: int) -> None:
        """What another one would have received of the victim waits, while that is captured; then the victim dies."""
        others = [site for site in self._faults.living() if site != victim]
        silent_us = self.world.detection.patience.silent_us
        if not others:
            self._awaits = False
            return
        other = self._random.choice(others)
        self._faults.risk([other], silent_us // 2)
        self.world.hang(other)
        self._faults.lasting(silent_us // 2, lambda: self.world.go_on(other))
        self.world.clock.after(self._random.randint(silent_us // 6, silent_us // 3), lambda: self._after_hang(victim, other))

    def _after_hang(self, victim: int, other: int) -> None:
        self._awaits = False
        if not self.over and not self.world.ended and may_begin_again(self.world):
            self._lose(victim, (other,))

    def _lose(self, victim: int, though: tuple[int, ...]) -> None:
        plan = self.world.coordinator.plan.number
        if self._faults.lose(victim, though):
            self._faults.done["lose_alone"] = self._faults.done.get("lose_alone", 0) + 1
            self.promised = (victim, int(plan))

    # ------------------------------------------------------------ what was promised

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        """A promise is for one death, under the plan of then."""
        if self.promised is None:
            return
        victim, plan = self.promised
        known = victim not in driver.machine.sites
        other: Any = isinstance(event, SiteLost) and event.site != victim
        if other or (not known and driver.machine.plan.number != plan):
            self.promised = None

    def judge(self) -> str | None:
        """What is wrong at the end, or None."""
        if self.promised is None or not isinstance(self.world.error, PartitionsLost):
            return None
        return f"site {self.promised[0]} has died, of which nothing would be lost, as the run had said: {self.world.error}"
