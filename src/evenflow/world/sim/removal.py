"""Sites leave a simulated run as planned: what `engine.remove_sites` does with a running engine (decision 22), in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from evenflow.coordinator.events import DrainSite
from evenflow.coordinator.operations import is_empty, obstacles
from evenflow.errors import OperationRefused

if TYPE_CHECKING:
    from evenflow.world.sim.world import SimWorld

LOOK_US: Final = 1_000
"""How often it is looked whether a site is empty."""


class Removal:
    """These sites are emptied and let go, each as soon as it hosts nothing. left: those that are still there, or on their way out.

    Raises OperationRefused if a site is not there, if fewer sites than replicas would be left, or if something at a site cannot move.
    """

    def __init__(self, world: SimWorld, sites: Sequence[int]) -> None:
        self._world = world
        machine, present = world.coordinator, world.driver.present
        missing = [site for site in sites if site not in present]
        if missing or len(present) - len(sites) < world.replicas:
            raise OperationRefused(f"of sites {sorted(present)}, {list(sites)} cannot leave: {world.replicas} must stay")
        found = [each for site in sites for each in obstacles(machine, site)]
        if found:
            raise OperationRefused(f"sites {list(sites)} cannot leave: {'; '.join(found)}")
        self.left = list(sites)
        self._look()

    def call_off(self) -> None:
        """Who has not gone stays, and may host again."""
        for site in self.left:
            if site in self._world.coordinator.sites:
                self._world.driver.coordinate(DrainSite(site, stays=True))
        self.left = []

    def _look(self) -> None:
        driver, machine = self._world.driver, self._world.coordinator
        if self._world.ended:
            return
        for site in list(self.left):
            if site not in driver.present:
                self.left.remove(site)  # It has died.
                continue
            if machine.running and site in machine.sites and site not in machine.moving.leaving:
                driver.coordinate(DrainSite(site))
            if is_empty(machine, site):
                self.left.remove(site)
                driver.let_go(site)
        if self.left:
            self._world.clock.after(LOOK_US, lambda: driver.soon(self._look))
