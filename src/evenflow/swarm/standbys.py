"""A driver that stands by while a run is lost, stopped and gone on with (K14): the machine that decides it, over a simulated store.

What a look shows is what is in the store at that moment. So two things can be said from outside. Nobody is taken over who has appended
within the lease: that is a checker. Who has died is taken over, and what a person has stopped is not.
"""

from __future__ import annotations

from random import Random
from typing import Final

from evenflow.coordinator.standby import Looked, Missed, Standby, Verdict
from evenflow.errors import EvenflowError
from evenflow.world.sim.cluster import SimCluster

LEASE_US: Final = (100_000, 400_000)
LOOK_US: Final = (100, 20_000)
"""Least and greatest time of a look."""
LIMIT_LEASES: Final = 20
"""So many leases after a death it has begun, whatever was in its way."""


class StandsBy:
    """began: how often it has begun, or would have."""

    def __init__(self, cluster: SimCluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self.lease_us = random.randint(*LEASE_US)
        self.machine = Standby(self.lease_us / 1e6)
        self.began = 0
        self._begins = self._over = False
        self._look()

    def end(self) -> None:
        """It stands by no more."""
        self._over = True

    def _look(self) -> None:
        store, clock = self._cluster.store, self._cluster.lasting.clock
        if self._over:
            return
        began_us, said_us = clock.now_us, store.said_us
        took_us = int(store.slow * self._random.randint(*LOOK_US)) if not store.refuses else 0
        found = None if store.refuses else store.standing_or_none()

        def looked() -> None:
            if found is not None and not self._over:
                sign = found.last
                over = found.ended is not None
                event = Looked(began_us / 1e6, clock.now_us / 1e6, found.generation, sign, 0.0, over, found.stopped)
                if self.machine.handle(event) is Verdict.BEGIN:
                    self._begin(began_us - said_us, stopped=found.stopped)
            clock.after(int(self.machine.look_s * 1e6), self._look)

        clock.after(took_us, looked)

    def _begin(self, silent_us: int, *, stopped: bool) -> None:
        """silent_us: as of the beginning of the look that has shown it."""
        assert silent_us >= self.lease_us, f"who stands by takes over after {silent_us} us of silence, and the lease is {self.lease_us}"
        assert not stopped, "who stands by takes over what a person has stopped"
        self._begins = True
        self.began += 1
        self.machine.handle(Missed())

    # ------------------------------------------------------------ what happens to the run

    def takes_over(self) -> None:
        """The driver is gone: time goes on until this one begins."""
        if self._cluster.store.standing_or_none() is None:
            return  # Nobody could go on there.
        self._begins = False
        self._until(LIMIT_LEASES * self.lease_us)
        assert self._begins, f"nobody has taken over for {LIMIT_LEASES} leases"

    def leaves_alone(self) -> None:
        """A person has stopped the run: for however long."""
        self._begins = False
        self._until(3 * self.lease_us)
        assert not self._begins, "who stands by takes over what a person has stopped"

    def _until(self, most_us: int) -> None:
        clock = self._cluster.lasting.clock
        end_us = clock.now_us + most_us
        while not self._begins and clock.now_us < end_us:
            if not clock.step():
                raise EvenflowError("nobody looks any more")
