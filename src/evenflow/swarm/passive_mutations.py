"""Planted bugs of passive standby with a checkpoint location (availability.md, B1, B2). Seeds find these, and scenarios
(tests/sim/test_reviving.py)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation
from evenflow.swarm.traits import stored

PASSIVE: Final = (
    Mutation(
        "frames go when they are received",
        "exchange.retention:Retention.released",
        "self.settled() if self.stable is None else min(self.settled(), self.stable)",
        "self.settled()",
        needs=stored,
    ),
    Mutation(
        "stable at a checkpoint's capture",
        "site.effects:Effects.begin_checkpoint",
        "self.captures_at = event.epoch",
        "self.captures_at = event.epoch\n    self.stable = (event.epoch,) * len(self.stable)\n"
        "    self.audience.hold(self.housing.order, self.stable)",
        needs=stored,
    ),
    Mutation(
        "what is made again is awaited by who has it",
        "site.arriving:Arriving._is_level",
        "since = min(start, retained.floor)",
        "since = view.plan.effective - 1",
        needs=stored,
    ),
    Mutation(
        "a base begins an epoch late",
        "site.arriving:Arriving.begin",
        "copy.base if copy.revives",
        "copy.base + 1 if copy.revives",
        needs=stored,
    ),
)
