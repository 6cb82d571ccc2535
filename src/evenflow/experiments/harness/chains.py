"""Two chains of two boxes on two sites, whose inputs have twice the rate in turn (BO fig. 3), as a dataflow in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

import evenflow as ef
from evenflow.bench.events import BurstingEvents
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.placement import first_plan
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

RATE: Final = 300
"""Rows per second of an input outside its turn; then twice of it."""
BOXES: Final = ("a0", "b0", "a1", "b1")


def chains(rate: int = RATE) -> Layout:
    flow = ef.Dataflow("chains")
    for at, first in enumerate((False, True)):
        rows = flow.source(BurstingEvents(rate, 2**40, 100, count=1, seed=at, first=first), name=f"in{at}").repartition(1)
        rows = rows.where("value >= 0", name=f"a{at}").repartition(1).where("value >= 0", name=f"b{at}")
        rows.to(ef.sinks.discard(), name=f"out{at}")
    return layout(flow.network, sites=2)


def chain_of(segment: Segment) -> int:
    """Of a segment of `chains`; a chain has three: its input, and its two boxes."""
    return segment.id // 3


def whole(segment: Segment, partition: int, columns: int) -> int:
    """Each chain at a site of its own."""
    return chain_of(segment)


def cut(segment: Segment, partition: int, columns: int) -> int:
    """The second box of each chain is at the other's site."""
    return (chain_of(segment) + (segment.id % 3 == 2)) % 2


@dataclass(frozen=True, slots=True)
class Lived:
    """p99_ms: of latency behind the first `settle_s`. crossed: chains whose boxes are at different sites at the end."""

    p99_ms: float
    crossed: int


def live(
    load: float, place: Callable[[Segment, int, int], int], policy: str, settle_s: float, measure_s: float, pipeline: int = 2
) -> Lived:
    """load: of what the two sites can do, so that a row costs a box load / (3 RATE)."""
    planned = chains()
    world = SimWorld(
        planned,
        sites=2,
        plan=first_plan(planned, 2, place=place),
        cost=CostModel(work_us=20.0, event_us=2.0, boxes=dict.fromkeys(BOXES, load / (3 * RATE) * 1e6)),
        options=FlowOptions(linger_ms=20, epoch_rows=1_000, heartbeat_ms=100.0, pipeline=pipeline),
        read_rows=100,
        policy=policy,
        seed=1,
    )
    world.run_for(settle_s)
    before = len(world.latencies_us)
    world.run_for(measure_s)
    at = [view_site(world, segment) for segment in planned.segments]
    crossed = sum(at[3 * chain + 1] != at[3 * chain + 2] for chain in range(2))
    return Lived(float(np.quantile(world.latencies_us[before:], 0.99)) / 1000, crossed)


def view_site(world: SimWorld, segment: Segment) -> int:
    """Where the only replica of the segment's only partition is."""
    (site,) = world.coordinator.view.live(world.coordinator.view.blocks(segment.id)[0])
    return site
