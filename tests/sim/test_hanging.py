"""A simulated site that hangs is a process that gets no processor: what waits for it stays in order."""

from __future__ import annotations

import pyarrow as pa

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.events import Event, SinkTook
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


class Heard(Observer):
    def __init__(self) -> None:
        self.order: list[int] = []

    def before_handled(self, site: SimSite, event: Event) -> None:
        if isinstance(event, SinkTook):
            self.order.append(event.epoch)


def test_what_came_before_it_hung_is_not_overtaken_when_it_goes_on() -> None:
    """Goal: messages of a link are heard in their order. Method: ten of them wait for the processor, which takes one a millisecond; the
    site hangs in between, for some of their turns only."""
    flow, heard = ef.Dataflow("order"), Heard()
    flow.source(ef.sources.memory([], schema=pa.schema([("k", pa.int64())])), name="rows").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=1, partitions=1), sites=1, cost=CostModel(event_us=1_000), observers=[heard])
    world.sources_may_end = False
    world.run_for(0.05)
    for epoch in range(1, 11):
        world.sites[0].deliver(SinkTook(len(world.layout.segments) - 1, epoch))
    world.run_for(0.0025)
    world.hang(0)
    world.run_for(0.0035)
    world.go_on(0)
    world.run_for(0.05)
    assert heard.order == list(range(1, 11))
