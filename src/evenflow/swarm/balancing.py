"""Balancing of a run: rounds of a policy on statistics that are late, rounds by hand on statistics of long ago, pins, spares.

Thresholds are drawn so that the policies move much more than they would for anybody's good.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

from evenflow.coordinator.events import Pin, RebalanceRequested, SparesChanged
from evenflow.policy.proposal import Parameters
from evenflow.statistics.statistics import Statistics
from evenflow.swarm.recurring import Recurring
from evenflow.world.sim.world import SimWorld

OFTEN_US: Final = (3_000, 20_000)
REMEMBERED: Final = 8
"""Statistics that a round by hand may be decided on, the newest among them."""


def draw_balance(random: Random) -> dict[str, Any]:
    """Arguments of SimWorld: the policy, its parameters, and how late its statistics are."""
    if random.random() < 0.5:
        return {}
    parameters = Parameters(
        th_imb=random.choice([1.0, 1.02, 1.2]),
        th_util=random.choice([0.9, 1.0]),
        delta_min_us=random.choice([1_000, 5_000, 20_000]),
        moves_max=random.choice([1, 4, 128]),
        delta_least_us=1_000,
        delta_most_us=random.choice([5_000, 50_000]),
        noise_factor=random.choice([0.0, 2.0]),
        hold_rounds=random.choice([0, 8]),
        severe=random.choice([1.0, 1.2]),
        move_bytes=random.choice([0, 1_000]),
        idle=random.choice([0.0, 0.05]),
    )
    policy = random.choice(["evenflow", "evenflow", "utilization", "memory", "hybrid"])
    report_us = (0, random.choice([0, 2_000, 50_000]))
    parameters = replace(parameters, relief_us=random.choice([0, 5_000, 50_000]), evidence_us=parameters.delta_most_us)
    return {"policy": policy, "parameters": parameters, "report_us": report_us}


class Balancing(Recurring):
    """What a person does about load. It is in every second run, whether that has a policy or not."""

    def __init__(self, world: SimWorld, random: Random, until_us: int) -> None:
        self._known: list[Statistics] = []
        super().__init__(world, random, until_us, random.choice(OFTEN_US) if random.random() < 0.5 else None)

    def strike(self) -> None:
        random, driver = self._random, self.world.driver
        if driver.paused or not self.world.coordinator.running:
            return
        kind = random.choice(["rebalance", "pin", "unpin", "spares"])
        if kind == "rebalance":
            self._known = [*self._known, self.world.collect()][-REMEMBERED:]
            driver.coordinate(RebalanceRequested(random.choice(self._known)))
        elif kind == "spares":
            driver.coordinate(SparesChanged(random.choice([0, 0, 1, 2])))
        else:
            segment = random.choice(self.world.layout.segments)
            count = random.choice([1, segment.partitions])
            partitions = frozenset((segment.id, p) for p in random.sample(range(segment.partitions), count))
            driver.coordinate(Pin(partitions, pinned=kind == "pin"))
