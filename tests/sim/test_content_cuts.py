"""Sources that are cut by content: replicas read for themselves, and what comes out is the same (protocol E9 to E11, I4, A6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import RepartitionRequested
from evenflow.errors import SourceError
from evenflow.plan.layout import Layout
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.forgetting import Kept
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def memory(seed: int, partitions: int, rows: int) -> tuple[Any, dict[int, int]]:
    random = np.random.default_rng(seed)
    parts, sums = [], Counter[int]()
    for _ in range(partitions):
        k, v = random.integers(0, 10, rows), random.integers(-50, 50, rows)
        for key, value in zip(k.tolist(), v.tolist(), strict=True):
            sums[key] += value
        parts.append([pa.record_batch([k, v], schema=SCHEMA)])
    return ef.sources.memory(parts), dict(sums)


def laid_out(source: Any, *, sites: int, max_partitions: int | None = None, **cut: Any) -> Layout:
    flow = ef.Dataflow("cuts")
    rows = flow.source(source, cut="content", **cut)
    rows.group_by("k").agg(n="sum(v)").to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=sites, partitions=8, max_partitions=max_partitions)


def world_of(planned: Layout, *, seed: int = 0, sites: int = 4, replicas: int = 2, **more: Any) -> SimWorld:
    options = FlowOptions(linger_ms=0.5, heartbeat_ms=20.0, partitions=8)
    world = SimWorld(planned, sites=sites, replicas=replicas, seed=seed, options=options, **more)
    Checkers(world)
    return world


def sums(world: SimWorld) -> dict[int, int]:
    return {row["k"]: row["n"] for row in world.output("out").to_pylist()}


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_what_comes_out_is_what_was_read(seed: int, replicas: int) -> None:
    source, wanted = memory(seed, 3, 700)
    world = world_of(laid_out(source, sites=4, width_rows=64), seed=seed, replicas=replicas, read_rows=40)
    world.run_until_quiet(20.0)
    assert sums(world) == wanted


@pytest.mark.parametrize("seed", one_in(4, range(6)))
def test_a_site_dies_and_a_copy_reads_on_behind_its_state(seed: int) -> None:
    """Goal: no row lost or repeated. Method: kill a site that reads, while all read; a newcomer takes its place."""
    source, wanted = memory(seed, 4, 3000)
    world = world_of(laid_out(source, sites=4, width_rows=50), seed=seed, read_rows=30)
    world.add_site()
    world.run_for(0.02 + 0.01 * seed)
    world.kill(seed % 4)
    world.run_until(lambda: world.redundancy() == 2, 20.0, "two replicas of everything")
    assert not world.coordinator.over, "nothing was left to be read by the copy"
    world.run_until_quiet(30.0)
    assert sums(world) == wanted


def test_a_copy_begins_further_on_than_a_time_may_be_ahead() -> None:
    """Goal: what was let pass where it was read is let pass where it is read again. Method: the bound is a fifth of what has passed."""
    source = ef.sources.generator(100, 20, rows=200, partitions=2, seed=4)
    flow = ef.Dataflow("paced")
    rows = flow.source(source, cut="content", width_ms=20, cut_ahead_ms=100)
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    world = world_of(layout(flow.network, sites=4, partitions=8))
    world.add_site()
    world.run_for(0.5)
    for site in range(2):
        world.kill(site)
        world.run_until(lambda: world.redundancy() == 2, 20.0, "two replicas of everything")
        assert not world.coordinator.over, "nothing was left to be read by the copy"
        world.add_site()
    world.run_until_quiet(20.0)
    assert sum(row["n"] for row in world.output("out").to_pylist()) >= 200


def test_no_records_and_no_words_between_readers() -> None:
    source, wanted = memory(1, 2, 500)
    world = world_of(laid_out(source, sites=4, width_rows=50), read_rows=40)
    said = []
    for site in world.sites:
        flush = site.part.flush

        def watched(now_us: int, flush: Any = flush) -> Any:
            found = flush(now_us)
            said.extend([word.section for word in found if word.section.records or word.section.held or word.section.settled])
            return found

        site.part.flush = watched  # type: ignore[method-assign]
    world.run_until_quiet(20.0)
    assert sums(world) == wanted and not said


def test_a_paced_source_keeps_its_time_and_stamps_are_those_of_the_grid() -> None:
    """Epochs are as wide as they should be, empty ones too, and their stamps are content."""
    source = ef.sources.generator(200, 20, rows=60, partitions=2, seed=4)
    flow = ef.Dataflow("paced")
    flow.source(source, cut="content", width_ms=20).group_by("key").agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    world = world_of(layout(flow.network, sites=4, partitions=8))
    world.run_until_quiet(20.0)
    assert sum(row["n"] for row in world.output("out").to_pylist()) >= 60
    site = world.sites[0].part
    # 60 rows at 200 a second are 300 ms, and their last one is in the epoch from 280 to 300 ms.
    assert site.closed == 15
    source = world.layout.sources["generator"]
    assert site.ingress.stamp == source.begin_us + 15 * 20_000


def test_a_silent_partition_holds_epochs_back_and_its_next_row_lets_them_go() -> None:
    quiet = [pa.record_batch([[1, 1], [1, 1]], schema=SCHEMA)]
    busy = [pa.record_batch([[2] * 500, [1] * 500], schema=SCHEMA)]
    world = world_of(laid_out(ef.sources.memory([quiet, busy]), sites=4, width_rows=10), read_rows=40)
    world.sources_may_end = False
    world.quotas[0, 0] = 1
    world.run_for(0.3)
    assert sums(world) == {} and {site.part.processed for site in world.sites} == {0}
    assert sorted(site.part.closed for site in world.sites)[:2] == [0, 0], "who reads the silent partition closes nothing"
    world.quotas.clear()
    world.sources_may_end = True
    world.run_until_quiet(20.0)
    assert sums(world) == {1: 2, 2: 500}


def ended_as_one(world: SimWorld, planned: Layout) -> bool:
    """All replicas have read up to the same row, not the last one, and what came out is of these rows."""
    rows = {log.taken for site in world.sites for log in site.part.leading.logs.values()}
    assert len(rows) == 1 and 0 < next(iter(rows)) < 5000
    wanted = Counter[int]()
    for (batch,) in planned.sources["memory"].source.per_partition:
        for key, value in zip(*[column.to_pylist()[: next(iter(rows))] for column in batch.columns], strict=True):
            wanted[key] += value
    return sums(world) == dict(wanted)


@pytest.mark.parametrize("seed", one_in(3, range(4)))
def test_a_drained_run_ends_in_one_epoch_everywhere(seed: int) -> None:
    """Replicas have read different rows by then; a plan says which epoch is the last that has any."""
    source, _ = memory(seed, 3, 5000)
    planned = laid_out(source, sites=4, width_rows=20)
    world = world_of(planned, seed=seed, read_rows=20)
    world.run_for(0.02 + 0.01 * seed)
    world.stop(drain=True)
    world.run_until_quiet(20.0)
    assert ended_as_one(world, planned)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_divides_state_is_drained(seed: int) -> None:
    """Goal: the last epoch with rows is one that nobody has closed. Method: a plan that comes into force far ahead is committed, and the
    one that says where the run ends is made at once, when sites have come differently far."""
    source, _ = memory(seed, 3, 5000)
    planned = laid_out(source, sites=4, max_partitions=16, width_rows=20)
    world = world_of(planned, seed=seed, read_rows=20)
    world.run_for(0.02)
    keyed = tuple(segment.id for segment in planned.segments if segment.is_keyed(planned))
    world.driver.coordinate(RepartitionRequested(keyed, 16, 7))
    world.run_until(lambda: bool(world.coordinator.plan.ranges), 5.0, "the split")
    world.stop(drain=True)
    world.run_until_quiet(20.0)
    assert ended_as_one(world, planned)


def test_a_run_is_drained_while_a_restart_makes_its_epochs_again() -> None:
    """Goal: the last epoch with rows is behind all that were given out."""
    source, _ = memory(0, 3, 5000)
    planned = laid_out(source, sites=4, width_rows=20)
    options = FlowOptions(linger_ms=0.5, heartbeat_ms=20.0, partitions=8)
    cluster = SimCluster(planned, prepare=lambda world: Checkers(world) and None, sites=4, replicas=2, options=options, read_rows=20)
    cluster.world.run_until(lambda: cluster.store.standing().durable > 30, 5.0, "durable epochs")
    cluster.lose_all()
    world = cluster.restart()
    world.run_until(lambda: world.coordinator.running, 5.0, "the restart")
    world.stop(drain=True)
    world.run_until_quiet(20.0)
    assert ended_as_one(world, planned)


def test_a_source_that_has_lost_its_end_is_named_when_it_is_read_again() -> None:
    """Goal: rows that were given out and are gone end the run, which went on without them as if the source had always ended there. Method:
    all is lost, and the source has the rows of three epochs when it is read again."""
    source, _ = memory(1, 1, 700)
    options = FlowOptions(linger_ms=0.5, heartbeat_ms=20.0, partitions=8)
    planned = laid_out(source, sites=3, width_rows=4)
    cluster = SimCluster(planned, seed=1, sites=3, replicas=2, options=options, read_rows=10, read_every_us=(500, 2_000))
    cluster.world.run_until(lambda: cluster.store.standing().durable > 10, 5.0, "some epochs")
    cluster.lose_all()
    cluster.restart()
    (key,) = cluster.world.coordinator.beginning.cuts
    cluster.lasting.kept[key] = Kept(behind=12)
    with pytest.raises(SourceError, match="epoch 4, which .* goes from position 12 to 16, and the source has ended there"):
        cluster.world.run_until_quiet(20.0)


@pytest.mark.parametrize("hang_ms", [0, 8, 30])
def test_readers_of_a_slow_source_end_in_the_epoch_of_the_plan(hang_ms: int) -> None:
    """Goal: all say in the same epoch that the source has ended, wherever they were when they heard of it. Method: most epochs have no
    row; the run is drained, and one reader hangs then."""
    source = ef.sources.generator(20, 20, rows=40_000, partitions=1, seed=4)
    flow = ef.Dataflow("paced")
    rows = flow.source(source, cut="content", width_ms=1)
    rows.select("key", "ts").to(ef.sinks.memory("rows"), name="rows")
    windows = rows.with_watermark("ts", "0 seconds").group_by("key").window("1 second")
    windows.agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    world = world_of(layout(flow.network, sites=4, partitions=8))
    world.run_for(0.3)
    world.stop(drain=True)
    world.run_for(0.002)
    if hang_ms:
        world.hang(2)
        world.run_for(hang_ms / 1000)
        world.go_on(2)
    world.run_until_quiet(20.0)
    found = Counter[int]()
    for row in world.output("out").to_pylist():
        found[row["key"]] += row["n"]
    assert found == Counter(row["key"] for row in world.output("rows").to_pylist())
