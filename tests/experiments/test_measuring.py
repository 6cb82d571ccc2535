"""The experiments that measure a world, held against worlds whose figures are known: good ones hold, bad ones do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.simulated import Deployment
from evenflow.experiments.harness.workload import SHOWN
from evenflow.experiments.papers import failover, large_state, pair_overhead
from evenflow.experiments.papers.pair_overhead import Load, Variant
from evenflow.experiments.result.drawing import draw
from evenflow.experiments.result.result import Measurement
from tests.experiments.fake_world import FakeWorld

QUICK = Setting("sim", True, lambda text: None)
Rate = Callable[[int, int | None], int]


def steady(now_us: int, killed_us: int | None) -> int:
    return 20


def stalled(stall_us: int, then: int = 20) -> Rate:
    """20 rows a millisecond; none for so long after a kill, and then another number."""

    def rate(now_us: int, killed_us: int | None) -> int:
        if killed_us is None:
            return 20
        return 0 if now_us <= killed_us + stall_us else then

    return rate


def missed(found: Measurement) -> list[str]:
    return [name for name, bound in found.target.items() if not bound.holds(found.measured.get(name))]


def worlds(rate: Rate, **how: Any) -> tuple[list[FakeWorld], Callable[[Deployment], FakeWorld]]:
    made: list[FakeWorld] = []

    def start(deployment: Deployment) -> FakeWorld:
        made.append(FakeWorld(deployment, rate, **how))
        return made[-1]

    return made, start


def test_failover_without_a_trace_holds(tmp_path: Path) -> None:
    made, start = worlds(steady, ends_at_us=5_000_000)
    found = failover.measure(QUICK, start)
    assert missed(found) == [] and found.measured["rows_lost"] == found.measured["rows_repeated"] == 0
    assert found.measured["copy_s"] == pytest.approx(1.0, abs=0.01) and found.measured["copied_mb"] == 8.5
    assert [world.killed for world in made] == [[], [failover.VICTIM]]
    assert made[0].deployment.replicas == 2 and made[0].deployment.spares == 1 and made[0].deployment.placement == "chained"
    draw(found.chart, tmp_path / "failover.svg")


def test_a_short_gap_that_loses_rows_does_not_hold() -> None:
    found = failover.measure(QUICK, worlds(stalled(20_000), ends_at_us=5_000_000)[1])
    assert missed(found) == ["rows_lost"] and found.measured["rows_lost"] == 20 * 20
    assert found.measured["longest_gap_ms"] == pytest.approx(25.0) and found.measured["seconds_without_output"] == 0


def test_failover_as_in_the_thesis_does_not_hold() -> None:
    found = failover.measure(QUICK, worlds(stalled(1_100_000), ends_at_us=5_000_000)[1])
    assert set(missed(found)) == {"longest_gap_ms", "seconds_without_output", "rows_lost"}


def test_the_papers_set_up_of_failover_is_the_papers() -> None:
    deployment = failover.deployment(failover.PAPER_SET_UP)
    assert (deployment.sites, deployment.spares, deployment.link_mbit_per_s) == (4, 1, 100.0)
    source = next(box for box in deployment.flow.network if box.kind == "source").params["source"]
    assert (source.rate, source.keys, source.rows) == (42_000, 100_000, 42_000 * 25)


def loads(pairs_cpu_s: float) -> Callable[[Variant, int], Load]:
    cpu_s = {"none": 4.0, "cluster_pairs": 8.0, "pairs": pairs_cpu_s}
    return lambda variant, number: Load(100_000 + number, 1.0, cpu_s[variant.name])


@pytest.mark.parametrize(("pairs_cpu_s", "holds"), [(8.2, True), (9.0, False)])
def test_pair_overhead_judges_the_cpu_per_row(pairs_cpu_s: float, holds: bool, tmp_path: Path) -> None:
    found = pair_overhead.measure(QUICK, loads(pairs_cpu_s), rounds=3)
    assert found.measured["pairs_by_none_cpu"] == pytest.approx(pairs_cpu_s / 4) and (missed(found) == []) is holds
    assert found.measured["cluster_pairs_by_none_cpu"] == pytest.approx(2.0)
    assert found.paper["pairs_by_none_cpu"] == pytest.approx(2.28, abs=0.01)
    draw(found.chart, tmp_path / "pair-overhead.svg")


def test_pair_overhead_in_the_simulator_counts_both_replica_sets_of_cluster_pairs() -> None:
    load_of = pair_overhead.load_in_simulator(worlds(steady)[1], quick=True)
    none, cluster, pairs = (load_of(variant, 0) for variant in pair_overhead.VARIANTS)
    assert none.cpu_s == cluster.cpu_s == pairs.cpu_s == pytest.approx(8.0), "four sites for two seconds, however they are used"
    assert none.rows == 2 * SHOWN * 20 * 2_000


@pytest.mark.parametrize(
    ("how", "misses"),
    [
        pytest.param({"rate": stalled(100_000)}, [], marks=pytest.mark.conformance),
        ({"rate": stalled(2_300_000)}, ["longest_stall_ms_256_partitions"]),
        pytest.param({"rate": stalled(100_000), "copy_us": 10**9}, ["recovery_s_256_partitions"], marks=pytest.mark.conformance),
    ],
)
def test_large_state_must_neither_stall_nor_stay_broken(how: dict[str, Any], misses: list[str], tmp_path: Path) -> None:
    found = large_state.measure(QUICK, worlds(**how)[1])
    assert missed(found) == misses
    assert found.paper["seconds_without_output_4_partitions"] == 4.6
    draw(found.chart, tmp_path / "large-state.svg")
