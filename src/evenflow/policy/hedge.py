"""When to ask a second one for what the first has not brought (race.md, A7, W3, W6).

Asking too early doubles the traffic, too late doubles the wait. So who waits asks when the first is later than it is nineteen times out of
twenty, at most 50 ms behind; and a bucket of tokens bounds how often, whatever the delays. Where nobody brings anything there is
nobody to ask: a hedge is due only when somebody has shown that it is there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

MOST_US: Final = 50_000
SHARE: Final = 0.05
"""Of epochs, that may be asked for twice."""
AT_ONCE: Final = 16
"""Tokens that a bucket has room for; after so many hedges in a row the slower one is not waited for any more."""
WINDOW: Final = 256
"""Delays that are remembered."""
FEW: Final = 20
"""Before there are so many, nothing is known of a leg, and the longest hedge holds."""


@dataclass(slots=True)
class Hedge:
    """Of one reader. delays_us: by how much the first choice came behind whoever was first, per epoch. tokens: that are left."""

    most_us: int = MOST_US
    share: float = SHARE
    tokens: float = float(AT_ONCE)
    delays_us: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    in_a_row: int = 0

    @property
    def wait_us(self) -> int:
        """So long the first choice is waited for behind the first sign: the 95th percentile of its delays."""
        if len(self.delays_us) < FEW:
            return self.most_us
        ordered = sorted(self.delays_us)
        return min(self.most_us, ordered[(len(ordered) * 95 - 1) // 100])

    def came(self, behind_us: int, *, late: bool) -> None:
        """The first choice brought an epoch, so much later than the first sign of it. late: another one was asked meanwhile."""
        self.delays_us.append(max(0, behind_us))
        if not late:
            self.in_a_row = 0

    def passed(self) -> None:
        """An epoch is through, whoever brought it."""
        self.tokens = min(float(AT_ONCE), self.tokens + self.share)

    def spend(self) -> bool:
        """Ask another one, if the budget allows it."""
        self.in_a_row += 1
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    @property
    def given_up(self) -> bool:
        """The first choice was late so often, one time after the other, that another one should be it."""
        return self.in_a_row >= AT_ONCE

    def changed(self) -> None:
        """There is another first choice, of which nothing is known."""
        self.in_a_row = 0
        self.delays_us.clear()
