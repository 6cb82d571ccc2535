"""Planted bugs of boxes that answer otherwise each time they are asked (N1)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

ASKED: Final = (
    Mutation(
        "effects emitted early",
        "site.cohort:Cohort._answered",
        "all(log.settled >= epoch for log in self.logs.values())",
        "all(log.end >= epoch and not setattr(log, 'settled', log.end) for log in self.logs.values())",
    ),
    Mutation("a box answers at each replica", "site.hosted:Hosted._run_steps", "if number == 0 and effects is not None:", "if number < 0:"),
    Mutation("a copied box has no records", "site.housing:Housing.move_in", "if segment.led:", "if segment.kind == 'ingress':"),
    Mutation(
        "a death leaves a box without a leader",
        "coordinator.leaders:Leaders.successors",
        "for segment, row in enumerate(after.leaders)",
        "for segment, row in enumerate(after.leaders[:1])",
    ),
)
