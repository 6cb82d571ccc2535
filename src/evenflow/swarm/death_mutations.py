"""Planted bugs of who is declared dead (protocol V4)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation

DEATHS: Final = (
    Mutation(
        "peers are asked whether the last one is dead",
        "coordinator.detector:Detector._may_come_back",
        "spoke = site.lost_us is None or site.lost_us - site.heard_us < self.patience.silent_us",
        "spoke = site.lost_us is None",
    ),
    Mutation(
        "who is silent counts as the other replica",
        "coordinator.detector:Detector._may_come_back",
        "self._silent(index, voters)",
        "()",
    ),
)
