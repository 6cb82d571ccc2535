"""What is made of an output that was watched."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.experiments.harness.simulated import Deployment, difference, output, watch
from evenflow.experiments.harness.workload import SINK, grouped, monitor
from evenflow.query.planner import layout
from tests.experiments.fake_world import FakeWorld

DEPLOYMENT = Deployment(ef.Dataflow("unused"), sites=4, partitions=4, replicas=2)


def ten_rows_but(first_us: int, last_us: int) -> FakeWorld:
    """Ten rows a millisecond, but none from after `first_us` to `last_us`."""
    return FakeWorld(DEPLOYMENT, lambda now, killed: 0 if first_us < now <= last_us else 10)


def test_rates_bins_and_latency() -> None:
    seen = watch(ten_rows_but(500_000, 750_000), SINK, 1.0)
    assert seen.rate(0.0, 0.5) == 10_000 and seen.rate(0.0, 1.0) == 7_500
    at_s, rates, latency = seen.bins(0.25)
    assert at_s.tolist() == [0.125, 0.375, 0.625, 0.875]
    assert rates.tolist() == [10_000, 10_000, 0, 10_000]
    assert latency[0] == 4.0 and math.isnan(latency[2])
    assert seen.latency_ms(0.0, 1.0) == 4.0 and math.isnan(seen.latency_ms(0.5, 0.75))


@pytest.mark.parametrize(("gap_us", "found_ms"), [(0, 5), (5_000, 10), (100_000, 105), (2_000, 5)])
def test_a_gap_is_never_shorter_than_it_was(gap_us: int, found_ms: float) -> None:
    seen = watch(ten_rows_but(300_000, 300_000 + gap_us), SINK, 1.0)
    assert seen.longest_gap_ms(0.0, 1.0) == pytest.approx(found_ms) and found_ms >= gap_us / 1e3


def test_a_gap_that_goes_on_to_the_end_counts() -> None:
    assert watch(ten_rows_but(600_000, 10**12), SINK, 1.0).longest_gap_ms(0.5, 1.0) == pytest.approx(405.0)


def test_acts_happen_at_their_time_and_recovery_is_seen() -> None:
    world = FakeWorld(DEPLOYMENT, lambda now, killed: 10, copy_us=300_000, copied=2_000_000)
    seen = watch(world, SINK, 1.0, acts=[(0.4, lambda: world.kill(3))])
    assert world.killed == [3] and world.killed_us == 400_000
    assert seen.whole_after_s(0.4, 2) == pytest.approx(0.3, abs=0.01)
    assert seen.copied_mb(0.4, 1.0) == 2.0


def test_redundancy_that_never_comes_back_is_not_a_time() -> None:
    world = FakeWorld(DEPLOYMENT, lambda now, killed: 10, copy_us=10**9)
    assert math.isnan(watch(world, SINK, 1.0, acts=[(0.4, lambda: world.kill(3))]).whole_after_s(0.4, 2))


def test_the_watch_ends_with_the_run() -> None:
    world = FakeWorld(DEPLOYMENT, lambda now, killed: 10, ends_at_us=500_000)
    assert watch(world, SINK, 5.0).rows.sum() == 5_000 == output(world, SINK).num_rows


def test_lost_and_repeated_rows_are_counted_whatever_their_order() -> None:
    def table(*rows: tuple[int, float]) -> pa.Table:
        return pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]})

    right = table((1, 1.0), (1, 1.0), (2, 0.5), (3, 3.0))
    assert difference(right, table((3, 3.0), (1, 1.0), (2, 0.5), (1, 1.0))) == (0, 0)
    assert difference(right, table((1, 1.0), (2, 0.5), (3, 3.0), (3, 3.0))) == (1, 1)
    assert difference(right, table((1, 1.0), (1, 1.0), (2, 0.6), (3, 3.0))) == (1, 1), "a wrong value is a lost row and one too many"
    assert difference(right, pa.table({})) == (4, 0)


@pytest.mark.parametrize("flow", [monitor(keys=100, apps=10, shown=4), monitor(keys=100, apps=10, rate=50, rows=100), grouped(keys=100)])
def test_the_workloads_can_be_planned(flow: ef.Dataflow) -> None:
    planned = layout(flow.network, sites=4, partitions=8)
    assert [segment.kind for segment in planned.segments if segment.sink or segment.kind == "ingress"].count("ingress") == 1
    assert list(planned.sinks) == [SINK]
