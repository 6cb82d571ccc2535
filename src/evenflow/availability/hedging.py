"""When a subscriber asks a second leg for what the first has not brought: `policy.hedge`'s delays and budget, for one first choice (W6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from evenflow.policy.hedge import KEPT_ON, MOST_US, Budget, Delays

FEW: Final = 20
"""Before there are so many delays nothing is known of a leg, and the longest hedge holds."""


@dataclass(slots=True)
class Hedge:
    """Of one reader. delays: by how much the first choice came behind whoever was first, per epoch; known: how many. in_a_row: hedges since
    it was in time."""

    delays: Delays = field(default_factory=Delays)
    budget: Budget = field(default_factory=Budget)
    known: int = 0
    in_a_row: int = 0

    @property
    def wait_us(self) -> int:
        """So long the first choice is waited for behind the first sign."""
        return self.delays.hedge_us if self.known >= FEW else MOST_US

    def came(self, behind_us: int, *, late: bool) -> None:
        """The first choice brought an epoch, so much later than the first sign of it. late: another one was asked meanwhile."""
        self.delays.note(max(0, behind_us))
        self.known += 1
        if not late:
            self.in_a_row = 0

    def passed(self) -> None:
        """An epoch is through, whoever brought it."""
        self.budget.pass_on()

    def spend(self) -> bool:
        """Ask another one, if the budget allows it."""
        self.in_a_row += 1
        return self.budget.take()

    @property
    def given_up(self) -> bool:
        """The first choice was late so often, one time after the other, that another one should be it."""
        return self.in_a_row >= KEPT_ON

    def changed(self) -> None:
        """There is another first choice, of which nothing is known."""
        self.delays, self.known, self.in_a_row = Delays(), 0, 0
