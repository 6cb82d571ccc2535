"""Sources that fall silent: event time goes on without them if they may be idle, and waits if not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.world import SimWorld
from tests.sim.test_scenarios import Stage

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())])


def batches(*times: int) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array([ts], pa.timestamp("us")), pa.array([ts % 3])], schema=SCHEMA) for ts in times]


def stage(idle: str | None, *, replicas: int = 1, nested: bool = False) -> SimWorld:
    """Source `quiet` has a row at 5 and, later, at 7 and 300; `busy` one every 10 microseconds. Windows of 20.

    nested: each source has windows of its own, and those of both are counted in windows of 40.
    """
    flow = ef.Dataflow("quiet")
    busy = flow.source(ef.sources.memory([batches(*range(0, 200, 10))]), name="busy").with_watermark("ts", "0 seconds", idle=idle)
    quiet = flow.source(ef.sources.memory([batches(5, 7, 300)]), name="quiet").with_watermark("ts", "0 seconds", idle=idle)
    if nested:
        each = [stream.group_by("k").window("20 microseconds").agg(n="count(*)") for stream in (busy, quiet)]
        made = each[0].union(each[1]).group_by().window("40 microseconds").agg(n="sum(n)")
    else:
        made = busy.union(quiet).group_by().window("20 microseconds").agg(n="count(*)")
    made.select("window_start", "n").to(ef.sinks.memory("out"), name="out")
    made.late().to(ef.sinks.memory("late"), name="late")
    options = FlowOptions(linger_ms=0.5, heartbeat_ms=10.0)
    world = SimWorld(layout(flow.network, sites=3, partitions=4), sites=3, replicas=replicas, options=options, seed=2, patience_ms=50.0)
    Checkers(world)
    world.sources_may_end = False
    world.quotas[next(s.id for s in world.layout.segments if s.name == "quiet"), 0] = 1
    return world


def found(world: SimWorld) -> list[tuple[int, int]]:
    rows: list[dict[str, Any]] = world.output("out").to_pylist()
    return sorted((pa.scalar(row["window_start"], pa.timestamp("us")).value, row["n"]) for row in rows)


def released(world: SimWorld) -> None:
    world.quotas.clear()
    world.sources_may_end = True
    world.run_until_quiet(20.0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_idle_source_does_not_hold_event_time_back(replicas: int) -> None:
    world = stage("40 milliseconds", replicas=replicas)
    world.run_for(0.5)
    assert found(world) == [(0, 3), *((start, 2) for start in range(20, 180, 20))]
    released(world)
    assert found(world) == [(0, 3), *((start, 2) for start in range(20, 200, 20)), (300, 1)]
    assert world.output("late").column("ts").cast(pa.int64()).to_pylist() == [7]


def test_without_it_event_time_waits() -> None:
    world = stage(None)
    world.run_for(0.5)
    assert found(world) == []
    released(world)
    assert found(world) == [(0, 4), *((start, 2) for start in range(20, 200, 20)), (300, 1)]
    assert world.output("late").num_rows == 0


def test_a_silence_that_is_short_enough_is_waited_for() -> None:
    world = stage("1 second")
    world.run_for(0.5)
    assert found(world) == []


def test_whoever_hears_only_of_idle_sources_is_idle_too() -> None:
    """The windows of the quiet source stay open, and do not hold back what is behind both."""
    world = stage("40 milliseconds", nested=True)
    world.run_for(0.5)
    assert found(world) == [(start, 4) for start in range(0, 160, 40)]


def test_if_all_are_idle_event_time_stands_still() -> None:
    """Both sources fall silent, and nothing is closed by that."""
    world = stage("40 milliseconds")
    world.run_for(3.0)
    assert found(world)[-1] == (160, 2)


def test_idleness_moves_with_its_partition_and_survives_its_leader() -> None:
    """Goal: replicas agree on who is idle. Method: leaders of the sources die; every result of every replica is compared."""
    played = Stage("idle", sites=4, replicas=2)
    played.world.run_for(0.05)
    played.world.kill(played.leader())
    played.world.add_site()
    played.wait(lambda: any(event.kind == "take_over" for _, event in played.world.happened), "the take-over")
    played.whole()
    played.finish()
    assert played.world.fired("T2", "lose_link")
