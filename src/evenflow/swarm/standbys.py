"""A driver that stands by while a run is lost, stopped and gone on with (K14): the machine that decides it, over a simulated store.

What a look shows is what is in the store at that moment. So four things can be said from outside. Nobody is taken over who has appended
within its lease; time in which the store was away is no silence, but for the part of a lease that two looks may be apart; who could not
take over waits for the lease again: these are checkers. Who has died is taken over, and what a person has stopped is not.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from evenflow.coordinator.standby import UNSEEN, Looked, Missed, Standby, Verdict
from evenflow.errors import EvenflowError
from evenflow.world.sim.cluster import SimCluster

LEASE_US: Final = (100_000, 400_000)
LOOK_US: Final = (100, 20_000)
"""Least and greatest time of a look."""
LIMIT: Final = 20
"""So many times its patience after a death it has begun, whatever was in its way. A store that was slow has made it patient, also by a look
that was under way at the death: how patient, it knows when that look ends."""

AWAY: Final = 0.3
"""So often the store is away once, for longer than the lease."""


class StandsBy:
    """lease_us: of this driver. theirs_us: of the one that it waits for, as that one says. began: how often it has begun, or would have."""

    def __init__(self, cluster: SimCluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self.lease_us = random.randint(*LEASE_US)
        self.machine = Standby(self.lease_us / 1e6)
        self.began = 0
        self._missed_us: int | None = None
        self._said_us = self._seen_us = 0
        self._refused, self._away_us = False, list[int]()
        self._begins = self._over = False
        others = Random(f"the store of who waits {self.lease_us} us")
        self.theirs_us = others.choice([0, others.randint(*LEASE_US)])
        if others.random() < AWAY:
            cluster.lasting.clock.after(others.randint(1, 100_000), lambda: self._go_away(others.randint(1, 2) * self.lease_us))
        self._look()

    def end(self) -> None:
        """It stands by no more."""
        self._over = True

    def _go_away(self, for_us: int) -> None:
        """Nobody can look, or write, meanwhile."""
        store = self._cluster.store
        store.refuses = True

        def come_back() -> None:
            store.refuses = False

        self._cluster.lasting.clock.after(for_us + self.lease_us // 4, come_back)

    def _look(self) -> None:
        store, clock = self._cluster.store, self._cluster.lasting.clock
        if self._over:
            return
        began_us, said_us = clock.now_us, store.said_us
        took_us = int(store.slow * self._random.randint(*LOOK_US)) if not store.refuses else 0
        found = None if store.refuses else store.standing_or_none()
        self._refused = self._refused or found is None

        def looked() -> None:
            if found is not None and not self._over:
                self._note(began_us, said_us)
                sign = found.last
                over = found.ended is not None
                event = Looked(began_us / 1e6, clock.now_us / 1e6, found.generation, sign, self.theirs_us / 1e6, over, found.stopped)
                if self.machine.handle(event) is Verdict.BEGIN:
                    self._begin(began_us, said_us, stopped=found.stopped)
            clock.after(int(self.machine.look_s * 1e6), self._look)

        clock.after(took_us, looked)

    def _note(self, began_us: int, said_us: int) -> None:
        """For how long nobody could look since the last sign of life."""
        if said_us != self._said_us:
            self._said_us, self._away_us = said_us, []
        elif self._refused:
            self._away_us.append(began_us - self._seen_us)
        self._refused, self._seen_us = False, self._cluster.lasting.clock.now_us

    def _begin(self, looked_us: int, said_us: int, *, stopped: bool) -> None:
        """looked_us: beginning of the look that has shown that all is silent. said_us: the last sign of life that was there then."""
        silent_us, lease_us = looked_us - said_us, max(self.lease_us, self.theirs_us)
        assert silent_us >= lease_us, f"who stands by takes over after {silent_us} us of silence, and the lease is {lease_us}"
        seen_us = silent_us - sum(self._away_us) + int(UNSEEN * self.lease_us * len(self._away_us))
        assert seen_us >= lease_us, f"who stands by takes over after {seen_us} us of silence that it could see, and the lease is {lease_us}"
        again_us = None if self._missed_us is None else looked_us - self._missed_us
        assert again_us is None or again_us >= lease_us, f"who missed it begins {again_us} us later, and the lease is {lease_us}"
        assert not stopped, "who stands by takes over what a person has stopped"
        if self._cluster.store.said_us == said_us:  # An entry that came during the look is where this driver's own would be.
            self._begins = True
            self.began += 1
        self._missed_us = self._cluster.lasting.clock.now_us
        self.machine.handle(Missed())

    # ------------------------------------------------------------ what happens to the run

    def takes_over(self) -> None:
        """The driver is gone: time goes on until this one begins."""
        if self._cluster.store.standing_or_none() is None:
            return  # Nobody could go on there.
        self._begins = False
        limit_us = self._until(lambda: int(LIMIT * self.machine.patience_s * 1e6))
        over = self._cluster.over  # Its last word was under way when it died.
        assert self._begins or over, f"nobody has taken over for {limit_us} us, and the lease is {self.lease_us}"

    def leaves_alone(self) -> None:
        """A person has stopped the run: for however long."""
        self._begins = False
        self._until(lambda: 3 * self.lease_us)
        assert not self._begins, "who stands by takes over what a person has stopped"

    def _until(self, most_us: Callable[[], int]) -> int:
        """Until it begins, or so much time has passed. most_us: as far as that is known by now. Returns the most that it has been."""
        clock = self._cluster.lasting.clock
        since_us, limit_us = clock.now_us, most_us()
        while not self._begins and clock.now_us < since_us + limit_us:
            if not clock.step():
                raise EvenflowError("nobody looks any more")
            limit_us = max(limit_us, most_us())
        return limit_us
