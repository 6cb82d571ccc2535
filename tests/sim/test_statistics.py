"""The windows of all sites add up to what was fed, whatever the moments at which they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.events import ScheduledEvents
from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.plan.layout import KEY_GROUPS
from evenflow.query.planner import layout
from evenflow.sinks import read_committed
from evenflow.site.options import FlowOptions
from evenflow.statistics.statistics import Statistics
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

pytestmark = pytest.mark.one_in(2)

PARTITIONS = 16
ROWS = 6_000
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def batch(seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return pa.record_batch([rng.zipf(1.5, ROWS) % 100, rng.integers(0, 100, ROWS)], schema=SCHEMA)


FED = [batch(1), batch(2)]


def world_of(*, sites: int = 3, replicas: int = 1, cost: CostModel | None = None) -> SimWorld:
    """Two source partitions, a filter that half of the rows pass, a window of rows per key, which cannot be combined, and a total."""
    flow = ef.Dataflow("counted")
    parts = [[part.slice(at, 50) for at in range(0, ROWS, 50)] for part in FED]
    rows = flow.source(ef.sources.memory(parts), name="rows").where("value < 50", name="half")
    rows.group_by("key").rows(10).agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=sites, partitions=PARTITIONS)
    options = FlowOptions(linger_ms=1, epoch_rows=100)
    return SimWorld(planned, sites=sites, replicas=replicas, options=options, cost=cost, read_rows=50, seed=3)


def followed(world: SimWorld, every_s: float = 0.003) -> list[Statistics]:
    """Run it to its end and ask for the windows again and again."""
    found = []
    while not world.ended:
        world.run_for(every_s)
        found.append(world.collect())
    assert world.error is None
    return found


def segments(world: SimWorld) -> tuple[int, int]:
    """The ingress segment and the keyed one."""
    keyed = next(s.id for s in world.layout.segments if s.partitions == PARTITIONS)
    return next(s.id for s in world.layout.segments if s.kind == "ingress"), keyed


def passed() -> pa.Table:
    """The rows that pass the filter."""
    return pa.Table.from_batches([part.filter(pa.array(part["value"].to_numpy() < 50)) for part in FED]).combine_chunks()


def expected_rows() -> dict[int, int]:
    """Rows of each partition of the keyed segment."""
    rows = pa.RecordBatch.from_arrays([passed()["key"].chunk(0)], ["key"])
    owners = partition_of(hash_columns(rows, ("key",)), table_of_ranges(PARTITIONS, KEY_GROUPS))
    return dict(enumerate(np.bincount(owners, minlength=PARTITIONS).tolist()))


def rows_of(statistics: Statistics, segment: int) -> dict[int, int]:
    return {partition: rows for (number, partition), rows in statistics.rows().items() if number == segment}


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_rows_of_all_windows_are_the_rows_fed(replicas: int) -> None:
    world = world_of(replicas=replicas)
    windows = followed(world)
    assert len(windows) > 10
    whole = Statistics.of(window for statistics in windows for window in statistics.sites)
    ingress, keyed = segments(world)
    assert rows_of(whole, ingress) == {0: replicas * ROWS, 1: replicas * ROWS}
    assert rows_of(whole, keyed) == {p: replicas * rows for p, rows in expected_rows().items()}
    hosted = sum(len(sites) for segment in world.coordinator.plan.placement for sites in segment)
    idle = world.collect()  # Who has nothing to do still has partitions that a policy may move.
    assert len(whole.replicas()) == len(idle.replicas()) == hosted
    assert not any(load.rows for load in idle.replicas())


def test_the_boxes_of_all_windows_have_cost_and_selectivity() -> None:
    world = world_of(cost=CostModel(row_us=2.0))
    whole = Statistics.of(window for statistics in followed(world) for window in statistics.sites)
    half = next(box for box in whole.boxes().values() if box.name == "half")
    assert half.rows_in == 2 * ROWS
    assert half.rows_out == passed().num_rows
    assert half.selectivity == pytest.approx(0.5, abs=0.05)
    assert half.cost_us is not None and half.cost_us > 0
    for window in whole.sites:
        for segment in window.segments:
            assert sum(box.busy_us for box in segment.boxes) <= segment.busy_us
            assert segment.cost_us is None or segment.cost_us >= 2.0


def test_boxes_may_have_costs_of_their_own() -> None:
    """Goal: a box costs what the rows that came to it do, more at a slow site, and the others cost nothing."""
    world = world_of(cost=CostModel(work_us=0.0, slow=(1.0, 2.0, 1.0), boxes={"half": 20.0}))
    whole = Statistics.of(window for statistics in followed(world) for window in statistics.sites)
    costs = [(window.site, box.name, box.cost_us) for window in whole.sites for segment in window.segments for box in segment.boxes]
    assert {(site, name, cost) for site, name, cost in costs if cost} == {(0, "half", 20.0), (1, "half", 40.0)}
    assert sum(segment.busy_us for window in whole.sites for segment in window.segments) == (20 + 40) * ROWS


def test_what_is_offered_is_told_even_if_nobody_can_read_it() -> None:
    """Goal: offered load is no utilization. Method: 20,000 rows/s fall due and sites have time for a third of them, so the rest waits at
    the source; what each window says was offered is the rate all the same, and what arcs had is what was processed."""
    flow = ef.Dataflow("offered")
    source = ScheduledEvents(rate=20_000, rows=20_000, keys=50, count=2)
    flow.source(source, name="rows").where("value < 500", name="half").group_by("key").rows(10).agg(n="count(*)").to(
        ef.sinks.memory("out"), name="out"
    )
    planned = layout(flow.network, sites=2, partitions=4)
    cost = CostModel(work_us=0.0, event_us=0.0, boxes={"half": 300.0})
    world = SimWorld(planned, sites=2, options=FlowOptions(linger_ms=1, epoch_rows=20, heartbeat_ms=5.0), cost=cost, read_rows=50, seed=3)
    world.run_for(0.2)
    world.collect()
    offered = []
    for _ in range(4):
        world.run_for(0.1)
        sources = [each for window in world.collect().sites for each in window.sources]
        assert {(each.source, each.partition) for each in sources} == {("rows", 0), ("rows", 1)}
        offered.append(sum(each.offered for each in sources))
        assert not any(each.dropped for each in sources)
        # A row that waits at the end of such a line has done so for as long as the line was due.
        assert all(abs(each.waited_us - (each.behind or 0) * 100) < 15_000 for each in sources)
    assert all(abs(count - 2_000) <= 100 for count in offered), offered
    whole = world.statistics.over(10**9)
    read = [each for window in whole.sites for each in window.sources]
    assert sum(each.kept for each in read) < 6_000 < sum(each.behind or 0 for each in read)
    assert abs(sum(each.kept + (each.behind or 0) for each in read) - 12_000) <= 100
    ingress = [segment for window in whole.sites for segment in window.segments if segment.name == "rows"]
    put = sum(rows for segment in ingress for _, rows in segment.arc_rows)
    assert put == sum(box.rows_out for segment in ingress for box in segment.boxes if box.name == "half") > 0


def test_the_busy_time_of_all_windows_is_the_processor_time_used() -> None:
    world = world_of()
    windows = followed(world)
    whole = Statistics.of(window for statistics in windows for window in statistics.sites)
    waiting_us = sum(max(0, site.free_at_us - world.clock.now_us) for site in world.sites)
    assert sum(window.busy_us for window in whole.sites) == world.cpu_us() - waiting_us
    assert all(0 <= window.busy_us <= window.end_us - window.begin_us for statistics in windows for window in statistics.sites)
    assert [(w.begin_us, w.end_us) for w in whole.sites] == [(windows[0].begin_us, world.clock.now_us)] * 3


def test_a_slow_site_is_the_most_utilized() -> None:
    world = world_of(cost=CostModel(row_us=5.0, slow=(1.0, 3.0, 1.0)))
    world.run_for(0.05)
    used = [window.utilization for window in world.collect().sites]
    assert used[1] > 1.2 * max(used[0], used[2])


def test_state_is_what_is_held_now_and_a_site_that_is_gone_says_nothing() -> None:
    world = world_of(replicas=2)
    world.run_for(0.03)
    _, keyed = segments(world)
    held = {p: size for (segment, p), size in world.collect().state_bytes().items() if segment == keyed}
    assert {p for p, size in held.items() if size} == {p for p, rows in expected_rows().items() if rows}
    world.kill(1)
    assert [window.site for window in world.collect().sites] == [0, 2]
    assert [window.site for window in world.statistics.over(10**9).sites] == [0, 1, 2]


@pytest.mark.conformance
def test_latency_is_of_what_was_released_from_a_site() -> None:
    world = world_of()
    windows: list[Any] = [window for statistics in followed(world) for window in statistics.sites if window.latency.count]
    assert sum(window.latency.count for window in windows) > 10
    assert {window.site for window in windows} == {site for sites in world.coordinator.plan.placement[-1] for site in sites}
    assert all(0 < window.latency.p50_us <= window.latency.p99_us < 50_000 for window in windows)


@pytest.mark.parametrize(("kind", "replicas"), [("parquet", 1), ("parquet", 2), ("discard", 1), ("discard", 2)])
def test_rows_that_end_at_sites_are_counted_with_the_time_that_they_took(tmp_path: Path, kind: str, replicas: int) -> None:
    """A file is there later than its epochs' rows: their latency is until then."""
    flow = ef.Dataflow("ended")
    parts = [[part.slice(at, 50) for at in range(0, ROWS, 50)] for part in FED]
    sink = ef.sinks.parquet(str(tmp_path), commit_interval_ms=20) if kind == "parquet" else ef.sinks.discard()
    flow.source(ef.sources.memory(parts), name="rows").where("value < 50", name="half").to(sink)
    world = SimWorld(
        layout(flow.network, sites=3, partitions=4), sites=3, replicas=replicas, options=FlowOptions(linger_ms=1), read_rows=50, seed=3
    )
    world.run_until_quiet()
    assert world.error is None
    assert sum(site.part.counters.rows_out for site in world.sites) == passed().num_rows
    assert len(world.latencies_us) > 20
    assert min(world.latencies_us) >= 0
    if kind == "parquet":
        assert 5_000 < np.median(world.latencies_us) < 40_000
        assert read_committed(str(tmp_path)).num_rows == passed().num_rows


def test_every_site_that_counts_a_partition_says_how_long_its_rows_took() -> None:
    """Each of three sites is the first replica of a partition of the sink, and the second one of another, which may come before it."""
    flow = ef.Dataflow("ended")
    parts = [[part.slice(at, 50) for at in range(0, ROWS, 50)] for part in FED]
    flow.source(ef.sources.memory(parts), name="rows").group_by("key").rows(10).agg(n="count(*)").to(ef.sinks.discard())
    world = SimWorld(
        layout(flow.network, sites=3, partitions=6), sites=3, replicas=2, options=FlowOptions(linger_ms=1), read_rows=50, seed=3
    )
    world.run_until_quiet()
    ends = next(segment.id for segment in world.layout.segments if segment.partitions == 6)
    first = {sites[0] for sites in world.coordinator.plan.placement[ends]}
    assert len(first) == 3
    assert {site.index for site in world.sites if site.reporting.latencies_us} == first
