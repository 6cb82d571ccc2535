"""Which losses a driver survives itself, and for how long it tries (availability.md, K14).

A run with a checkpoint location that has lost all replicas of something goes on as its next generation, in the same process, where a
restart would. It gives up when that gains nothing: then what it does is what loses it. And with which sites it goes on: who waits for all
of them has no results meanwhile, and who does not has all state read by those that came first. Decides; which sites are there, and when, is
the world's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from evenflow.errors import CheckpointCorrupt, DriverAway, EvenflowError, LostBeforeStart, PartitionsLost
from evenflow.stream.ids import SiteId

SURVIVED: Final = (PartitionsLost, DriverAway, CheckpointCorrupt, LostBeforeStart)
"""Errors of a generation that the next one makes good: the third begins with an older checkpoint."""
FRUITLESS_MAX: Final = 8
"""So many generations in a row may be lost before anything new is durable."""
SETTLE_S: Final = (0.25, 5.0)
"""Least and most time from a loss to the next generation: sites that die together are not seen to at one moment. It doubles."""

GATHER_S: Final = 1.0
"""After a site has come, others that were started at the same time are waited for. With half of the sites it takes twice as long until all
state is read."""


@dataclass(slots=True)
class Survival:
    """fruitless: how many generations were lost in a row without anything new. durable: what the best one of all has reached."""

    fruitless: int = 0
    durable: int = -1

    def survives(self, error: EvenflowError | None, durable: int) -> bool:
        """A generation has ended with this error, or well. durable: its last durable epoch. Whether the next one is to begin."""
        if not isinstance(error, SURVIVED):
            return False
        self.fruitless = self.fruitless + 1 if durable <= self.durable else 0
        self.durable = max(self.durable, durable)
        return self.fruitless < FRUITLESS_MAX

    @property
    def settle_s(self) -> float:
        """How long to wait before the next generation begins."""
        return min(SETTLE_S[1], SETTLE_S[0] * 2.0**self.fruitless)


@dataclass(slots=True)
class Gathering:
    """With which sites to go on after a loss. wanted: how many are best. replicas: with fewer, partitions have too few. patience_s: for how
    long all are waited for in any case; late_s: from when on any will do. Times are since it began.

    _there: that were seen; _newest_s: when one came that had not been there at first.
    """

    wanted: int
    replicas: int
    patience_s: float
    late_s: float
    _there: set[SiteId] | None = field(default=None, init=False)
    _newest_s: float | None = field(default=None, init=False)

    def chosen(self, sites: Sequence[SiteId], since_s: float) -> Sequence[SiteId] | None:
        """Those to go on with, of these that are there now; none if it is too late; None: wait."""
        if self._there is None:
            self._there = set(sites)
        if not self._there.issuperset(sites):
            self._there.update(sites)
            self._newest_s = since_s
        late = since_s >= self.late_s
        waits = since_s < self.patience_s or (self._newest_s is not None and since_s - self._newest_s < GATHER_S)
        if len(sites) >= self.wanted or (not waits and len(sites) >= self.replicas) or (late and sites):
            return sites
        return () if late else None
