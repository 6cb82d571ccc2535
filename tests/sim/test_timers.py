"""Timers while nothing comes in: epochs close for them, and for nothing else; whoever dies, moves or is on disk."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.exchange.section import NEVER_US
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.site.outcome import Outcome
from evenflow.site.turns import joined
from evenflow.stream.epoch import Tick
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.timed_cases import TIMED, Silences
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld

SCHEMA = pa.schema([("k", pa.int64())])
ROWS = 40


def world_of(after_ms: int, replicas: int, **options: Any) -> SimWorld:
    """One source of two partitions, silent after its first rows. Without timers an epoch would close once a minute."""
    flow = ef.Dataflow("silent")
    parts = [[pa.record_batch([pa.array([k])], schema=SCHEMA) for k in range(part, ROWS, 2)] for part in (0, 1)]
    rows = flow.source(ef.sources.memory(parts), name="in")
    made = rows.key_by("k").process(Silences(timedelta(milliseconds=after_ms)))
    made.to(ef.sinks.memory("out"), name="out")
    options = {"linger_ms": 0.5, "heartbeat_ms": 60_000.0, **options}
    plan = layout(flow.network, sites=3, partitions=6)
    world = SimWorld(plan, sites=3, spares=1, replicas=replicas, options=FlowOptions(**options), seed=4, patience_ms=50.0)
    Checkers(world)
    world.sources_may_end = False
    world.quotas |= {(0, 0): 10, (0, 1): 10}
    return world


def found(world: SimWorld) -> list[tuple[int, int]]:
    """(key, rows) of the silences that were told. They are told when they are due."""
    rows = world.output("out").to_pylist()
    for row in rows:
        assert timedelta(0) <= row["now"] - row["at"] < timedelta(milliseconds=5), row
    return sorted((row["k"], row["n"]) for row in rows)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_timer_demands_an_epoch(replicas: int) -> None:
    world = world_of(100, replicas)
    world.run_for(0.09)
    before = max(site.part.closed for site in world.sites)
    assert found(world) == []
    world.run_for(0.1)
    assert found(world) == [(k, 1) for k in range(20)]
    after = max(site.part.closed for site in world.sites)
    assert before < after <= before + 10, "an epoch for all keys whose timers come together, at each of the leaders' clocks"
    world.run_for(5.0)
    assert max(site.part.closed for site in world.sites) == after, "and none when no timer is set"
    world.quotas.clear()
    world.run_for(1.0)
    assert found(world) == [(k, 1) for k in range(ROWS)]


def test_a_death_loses_no_timer() -> None:
    world = world_of(300, 2)
    world.run_for(0.05)
    world.kill(0)
    world.run_for(0.6)
    assert found(world) == [(k, 1) for k in range(20)]


def test_timers_of_partitions_on_disk_come_too() -> None:
    world = world_of(100, 1, state_memory_bytes=1)
    world.run_for(0.4)
    assert any(site.disk.written_bytes for site in world.sites)
    assert found(world) == [(k, 1) for k in range(20)]


def test_of_partitions_that_take_turns_the_first_timer_counts() -> None:
    outcomes = [Outcome((1, 0), Tick(1, 1, 0, 0), 1, due_us=due) for due in (5, 3, NEVER_US)]
    assert joined(outcomes).due_us == 3


@pytest.mark.parametrize("name", sorted(TIMED))
def test_a_case_is_judged_right(name: str) -> None:
    case = TIMED[name](Random(5), 300)
    world = SimWorld(layout(case.flow.network, sites=2, partitions=5), sites=2, replicas=2, options=FlowOptions(linger_ms=1.0), seed=1)
    Checkers(world)
    world.run_until_quiet(60.0)
    tables = {sink: world.output(sink) for sink in ("out",)}
    assert case.judge_part(tables) is None and case.judge(tables) is None
    assert case.judge({"out": tables["out"].slice(1)}) is not None


@pytest.mark.parametrize("replicas", [1, 2])
def test_rows_of_a_stream_that_falls_silent_become_visible_when_their_interval_ends(replicas: int, tmp_path: Path) -> None:
    flow = ef.Dataflow("silent")
    parts = [[pa.record_batch([pa.array([k])], schema=SCHEMA) for k in range(part, ROWS, 2)] for part in (0, 1)]
    flow.source(ef.sources.memory(parts), name="in").to(ef.sinks.parquet(str(tmp_path), commit_interval_ms=100))
    options = FlowOptions(linger_ms=0.5, heartbeat_ms=60_000.0)
    world = SimWorld(layout(flow.network, sites=3, partitions=6), sites=3, replicas=replicas, options=options, seed=4)
    world.sources_may_end = False
    world.quotas |= {(0, 0): 10, (0, 1): 10}
    world.run_for(0.3)
    assert sorted(ef.sinks.read_committed(str(tmp_path))["k"].to_pylist()) == list(range(20))
    before = max(site.part.closed for site in world.sites)
    world.run_for(5.0)
    assert max(site.part.closed for site in world.sites) == before, "and no epoch closes when nothing is held"


def test_a_clock_that_is_behind_the_journal_holds_no_timer_up_for_long(tmp_path: Path) -> None:
    """Goal: what is due by the stamps comes at half the pace at worst, until the clock has caught up. Method: the run begins with a clock
    that is a day ahead, and all is lost while timers wait; those who come have the right time."""

    def told(world: SimWorld) -> list[int]:
        return sorted(row["k"] for row in world.output("out").to_pylist())

    flow = ef.Dataflow("silent")
    parts = [[pa.record_batch([pa.array([k])], schema=SCHEMA) for k in range(part, ROWS, 2)] for part in (0, 1)]
    rows = flow.source(ef.sources.memory(parts), name="in")
    rows.key_by("k").process(Silences(timedelta(milliseconds=100))).to(ef.sinks.memory("out"), name="out")
    rows.to(ef.sinks.parquet(str(tmp_path), commit_interval_ms=100), name="files")
    options = FlowOptions(linger_ms=0.5, heartbeat_ms=60_000.0)
    cluster = SimCluster(layout(flow.network, sites=3, partitions=6), sites=3, replicas=1, options=options, seed=4)
    cluster.lose_all()
    cluster.restart(ahead_us=86_400_000_000)
    cluster.world.sources_may_end = False
    cluster.world.quotas |= {(0, 0): 10, (0, 1): 10}
    cluster.world.run_for(0.05)
    assert told(cluster.world) == [] and cluster.store.standing().durable > 0
    cluster.lose_all()
    cluster.restart()
    day_us = cluster.world.clock.now_us + 86_000_000_000
    cluster.world.run_for(0.5)
    assert told(cluster.world) == list(range(20))
    assert sorted(ef.sinks.read_committed(str(tmp_path))["k"].to_pylist()) == list(range(20))
    assert max(site.part.ingress.stamp for site in cluster.world.sites) > day_us, "time does not go back"
    epochs = max(site.part.closed for site in cluster.world.sites)
    cluster.world.run_for(5.0)
    assert max(site.part.closed for site in cluster.world.sites) == epochs, "and none when no timer is set"
    cluster.world.quotas.clear()
    cluster.world.run_for(1.0)
    assert told(cluster.world) == list(range(ROWS))
