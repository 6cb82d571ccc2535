"""Runs in the simulator to watch: scenes and readings without Spark."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

import evenflow as ef
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import encoded
from evenflow.monitor.scene import Scene
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.watching import watched
from evenflow.world.sim.world import SimWorld

ROWS = 3_000


def counts(name: str = "counts", partitions: int = 4) -> ef.Dataflow:
    """Rows by key, and how many there are: a source, a filter, a count that is combined before the exchange, a sink."""
    flow = ef.Dataflow(name)
    values = pa.record_batch({"key": pa.array([i % 50 for i in range(ROWS)], pa.int64()), "value": pa.array(range(ROWS), pa.int64())})
    rows = flow.source(ef.sources.memory([values] * 40), name="events")
    rows.where("value >= 0", name="kept").group_by("key").agg(n="count(*)").name("counts").to(ef.sinks.memory("out"), name="out")
    return flow


def world_of(flow: ef.Dataflow, *, sites: int = 3, replicas: int = 2, partitions: int = 4, spares: int = 1, seed: int = 0) -> SimWorld:
    planned = layout(flow.network, sites=sites, partitions=partitions)
    options = FlowOptions(linger_ms=20.0, heartbeat_ms=100.0)
    return SimWorld(
        planned, sites=sites, replicas=replicas, spares=spares, seed=seed, options=options, read_every_us=(20_000, 40_000), read_rows=500
    )


@cache
def stream(seconds: float = 3.0, kill_s: float | None = None) -> list[Scene | Reading]:
    """What is told in so many virtual seconds. kill_s: when the first site is killed."""
    flow = counts()
    world = world_of(flow)
    if kill_s is not None:
        world.clock.after(int(kill_s * 1e6), lambda: world.kill(0))
    return list(watched(world, flow.network, seconds=seconds))


def scenes_of(told: list[Scene | Reading]) -> list[Scene]:
    return [each for each in told if isinstance(each, Scene)]


def readings_of(told: list[Scene | Reading]) -> list[Reading]:
    return [each for each in told if isinstance(each, Reading)]


def line_of(each: Scene | Reading) -> str:
    """Of a recording, with its end."""
    return encoded(each).decode() + "\n"
