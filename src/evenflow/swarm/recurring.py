"""What happens to a run again and again, at random times, while faults may."""

from __future__ import annotations

from random import Random

from evenflow.world.sim.world import SimWorld


class Recurring:
    """random: of its own, so that a seed has the same faults with it and without. until_us: virtual time after which nothing happens any
    more; every_us: mean time between two, None for never."""

    def __init__(self, world: SimWorld, random: Random, until_us: int, every_us: int | None) -> None:
        self.world, self._random = world, random
        self.over = False
        self._end_us = world.clock.now_us + until_us
        if every_us is not None:
            self._wait(every_us)

    def end(self) -> None:
        """Nothing happens any more."""
        self.over = True

    def strike(self) -> None:
        """Let it happen, if it may."""
        raise NotImplementedError

    def _wait(self, every_us: int) -> None:
        self.world.clock.after(int(self._random.expovariate(1.0) * every_us) + 1, lambda: self._again(every_us))

    def _again(self, every_us: int) -> None:
        if not self.over and not self.world.ended and self.world.clock.now_us <= self._end_us:
            self.strike()
            self._wait(every_us)
