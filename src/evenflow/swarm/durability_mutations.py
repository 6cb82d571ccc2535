"""Planted bugs of runs that journal checkpoints only (J3, durability "no-loss"). Scenarios show them: `tests/sim/test_no_loss.py`.

`evenflow swarm --mutations` asks for none of them: few seeds draw such a run, and lose it behind a checkpoint.
"""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

DURABILITY: Final = (
    Mutation(
        "what comes again is taken for what is there",
        "availability.durability:Durability.sinks_run",
        "self is Durability.PRECISE",
        "self in Durability",
    ),
    Mutation(
        "what a checkpoint has kept is forgotten",
        "coordinator.journal:Journal.appended",
        "self.durable = entry.matter.epoch",
        "pass",
    ),
)
