"""Which losses a driver survives itself, and for how long it tries (availability.md, K14).

A run with a checkpoint location that has lost all replicas of something goes on as its next generation, in the same process, where a
restart would. It gives up when that gains nothing: then what it does is what loses it. Decides; when sites are there is the world's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evenflow.errors import CheckpointCorrupt, DriverAway, EvenflowError, LostBeforeStart, PartitionsLost

SURVIVED: Final = (PartitionsLost, DriverAway, CheckpointCorrupt, LostBeforeStart)
"""Errors of a generation that the next one makes good: the third begins with an older checkpoint."""
FRUITLESS_MAX: Final = 8
"""So many generations in a row may be lost before anything new is durable."""
SETTLE_S: Final = (0.25, 5.0)
"""Least and most time from a loss to the next generation: sites that die together are not seen to at one moment. It doubles."""


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
