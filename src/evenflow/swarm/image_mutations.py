"""Planted bugs of images at other sites (availability.md, P1 to P5). Seeds find these, and scenarios (tests/sim/test_images.py)."""

from __future__ import annotations

from typing import Final

from evenflow.swarm.mutation import Mutation
from evenflow.swarm.traits import images

IMAGES: Final = (
    Mutation(
        "own-site frames missing",
        "site.backing:Backing._frames",
        "max(self._part.stable[consumer], cohort.retained[stream].floor)",
        "cohort.hosted.done",
        needs=images,
    ),
    Mutation("sent before received", "site.backing:Backing._is_received", "received >= backed.captured", "True", needs=images),
    Mutation("pending unpasted", "site.imaging:Imaging._answer", "(each.busy or each.waiting)", "False", needs=images),
    Mutation(
        "old image dropped",
        "coordinator.backing:Backing.settle",
        "held.unit.backup in there]",
        "held.unit.backup in there and held in self.units.values()]",
        needs=images,
    ),
    Mutation(
        "stable of the newest image",
        "coordinator.backing:Backing.pasted",
        "self._least(segment)",
        "said.epoch",
        needs=images,
    ),
    Mutation(
        "stable at capture",
        "site.backing:Backing.go_on",
        "self._part.act(ship)",
        "(self._part.act(ship), setattr(self._part, 'stable', (backed.captured,) * len(self._part.stable)),"
        " self._part.audience.hold(self._housing.order, self._part.stable))",
        needs=images,
    ),
    Mutation(
        "an image begins again an epoch late",
        "coordinator.backing:Backing.begun_again",
        "(held.unit.number, held.base)",
        "(held.unit.number, held.base + 1)",
        needs=images,
    ),
)
