"""Planted bugs of checkpoints that scenarios of their own show, and seeds hardly ever (K2, K4, K5).

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
    Mutation("what was altered is believed", "state.folding:_read", "name not in proven and digest_of(data) != digest", "False"),
)
"""A site must have stored when another one cannot, and say so behind the next order; an order must come between a copy and its joining; an
altered byte must be one that Parquet does not miss."""
