"""Planted bugs of checkpoints and journals that scenarios of their own show, and seeds hardly ever (J3, K2, K5).

`evenflow swarm --mutations` asks for none of them.
"""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

SELDOM: Final = (
    Mutation(
        "what is stored late counts for the next one",
        "coordinator.checkpointing:Checkpointing.owes",
        "self.open.number == number and",
        "",
    ),
    Mutation(
        "what has not joined is captured empty",
        "site.capturing:Capturing._has",
        "return cohort.ready and set(partitions) <= set(self._departing.staying(cohort))",
        "return True",
    ),
    Mutation("nobody hears of a full store", "coordinator.appending:_wait", "not journal.trouble and", "False and"),
)
"""The first: a site must have stored when another one cannot, and say so behind the next order (`Wishes` see to that), and that order must
become whole. The second: an order comes between a copy and its joining, and the copy is still behind when the order's epoch ends at its
site, four epochs later: of 69 seeds with a journal two met the former, and none the latter. The third: a store has no room for a quarter
of a second, which few runs last."""
