"""How fast epochs close, as far as rounds tell: the only time that the coordinator hears of is in what they have collected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

AHEAD: Final = 4
"""k of V2: a plan is proposed this many epochs beyond the newest one that the coordinator has heard of; twice as many after a refusal,
since epochs close faster than proposals travel then, and so on until it is in time."""
LEAD_US: Final = 100_000
"""A proposal is with everybody within this. What closes meanwhile is ahead enough where epochs are slow: those of an overloaded site take
most of a second each, and what is to relieve it waits for all that lie before the plan."""


@dataclass(frozen=True, slots=True)
class Pace:
    """at_us, epoch: the newest epoch at the end of the last collection, None before the first. per_us: epochs per microsecond between
    the last two; infinite as long as there were less, since nothing is known then."""

    at_us: int | None = None
    epoch: int = 0
    per_us: float = math.inf

    def then(self, at_us: int, epoch: int) -> Pace:
        """With the newest epoch at the end of another collection."""
        if self.at_us is None or at_us <= self.at_us:
            return Pace(at_us, epoch, self.per_us)
        return Pace(at_us, epoch, max(0, epoch - self.epoch) / (at_us - self.at_us))

    @property
    def ahead(self) -> int:
        """Epochs that close while a proposal travels, from 1 to AHEAD; AHEAD if nothing is known."""
        return max(1, math.ceil(min(self.per_us * LEAD_US, AHEAD)))
