"""Sites leave a simulated run as planned: what `engine.remove_sites` does with a running engine (decision 22), in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from evenflow.coordinator.fleet import Drain, Look, Stay

if TYPE_CHECKING:
    from evenflow.world.sim.world import SimWorld

LOOK_US: Final = 1_000
"""How often it is looked whether a site is empty."""


class Removal:
    """These sites are emptied and let go, each as soon as it hosts nothing. left: those that are still there, or on their way out.

    Raises OperationRefused if a site is not there, if fewer sites than replicas would be left, or if something at a site cannot move.
    """

    def __init__(self, world: SimWorld, sites: Sequence[int]) -> None:
        self._world, self._sites = world, tuple(sites)
        world.driver.fleet.check_drain(sites, world.replicas)
        world.driver.observe(Drain(self._sites))
        self._look()

    @property
    def left(self) -> list[int]:
        leaving = self._world.driver.fleet.leaving
        return [site for site in self._sites if site in leaving]

    def call_off(self) -> None:
        """Who has not gone stays, and may host again."""
        self._world.driver.observe(Stay(tuple(self.left)))

    def _look(self) -> None:
        driver = self._world.driver
        if self._world.ended:
            return
        driver.observe(Look())
        if self.left:
            self._world.clock.after(LOOK_US, lambda: driver.soon(self._look))
