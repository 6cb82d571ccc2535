"""What is combined behind an exchange is the same at every replica, whatever order frames arrive in (E3)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import differ, make_rows, newest, source
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.model import LinkModel
from evenflow.world.sim.world import SimWorld


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_several_producers_are_combined_alike_at_all_replicas(seed: int) -> None:
    """Goal: which rows share a place in the combining table does not depend on who was faster. Method: rows of four producers meet over
    uneven links and are combined by many keys before they go on; the checkers compare the replicas."""
    parts = make_rows(Random(seed), 4, 600, 300)
    flow = ef.Dataflow("combined")
    there = flow.source(source(parts, Random(seed)), name="in").repartition(2).select("k")
    there.group_by("k").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    options = FlowOptions(linger_ms=0.5, epoch_rows=60, heartbeat_ms=10.0)
    planned = layout(flow.network, sites=4, partitions=2)
    world = SimWorld(planned, sites=4, replicas=3, placement="chained", seed=seed, options=options, link=LinkModel((10, 3_000)))
    Checkers(world)
    world.run_until_quiet()
    counts = Counter(k for part in parts for _, k, _ in part)
    assert differ(newest(world.output("out")).values(), counts.items()) is None
