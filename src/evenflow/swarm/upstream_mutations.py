"""Planted bugs of upstream backup (availability.md, B1, B2). Seeds find these, and scenarios (tests/sim/test_upstream.py)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation
from evenflow.swarm.traits import upstream

UPSTREAM: Final = (
    Mutation(
        "D of now",
        "site.depending:Depending._safe",
        "min(safe, default=cohort.hosted.done)",
        "cohort.hosted.done",
        needs=upstream,
    ),
    Mutation(
        "a base is that of the first who says one",
        "coordinator.reviving:Reviving.hear",
        "or not hosts <= known.keys()",
        "or not hosts & known.keys()",
        needs=upstream,
    ),
    Mutation(
        "a state reaches back to nothing",
        "site.depending:oldest_needed",
        "return tick.watermark - reach - ahead_us",
        "return tick.watermark",
        needs=upstream,
    ),
    Mutation(
        "frames of upstream backup go when they are received",
        "exchange.retention:Retention.released",
        "self.settled() if self.stable is None else min(self.settled(), self.stable)",
        "self.settled()",
        needs=upstream,
    ),
)
