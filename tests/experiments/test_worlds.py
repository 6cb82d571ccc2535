"""The worlds that experiments run in: deployments in the simulator, and what is the same on Spark but for the cluster."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow.bench.events import ScheduledEvents
from evenflow.experiments.harness.on_spark import recording
from evenflow.experiments.harness.simulated import Deployment, World, output, watch
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.harness.workload import SINK, filled, monitor, slow_totals
from evenflow.experiments.papers import failover_on_spark, pair_overhead
from evenflow.experiments.papers.pair_overhead import VARIANTS
from evenflow.experiments.papers.recovery_on_spark import LARGE, Large, large_chart, large_figures, large_targets
from evenflow.site.options import FlowOptions
from tests.experiments.fake_world import FakeWorld

FLOW = monitor(keys=50, apps=10, rate=2_000, rows=2_000)


@pytest.mark.conformance
def test_a_deployment_in_the_simulator_survives_a_death() -> None:
    def run(kill: bool) -> tuple[World, pa.Table]:
        world = start(Deployment(FLOW, 3, 8, replicas=2, spares=1, placement="chained", link_mbit_per_s=100.0))
        seen = watch(world, SINK, 3.0, acts=[(0.4, lambda: world.kill(0))] if kill else [])
        assert seen.redundancy[10] == 2 and (seen.whole_after_s(0.4, 2) < 2.0 or not kill)
        return world, output(world, SINK)

    (_, calm), (world, found) = run(kill=False), run(kill=True)
    assert world.copied_bytes > 0 and world.cpu_us() > 0
    assert calm.num_rows > 0 and calm.sort_by("ts").equals(found.sort_by("ts"))


def test_cluster_pairs_are_two_dataflows_that_are_fed_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Deployment] = []

    def fake(deployment: Deployment) -> World:
        made.append(deployment)
        return FakeWorld(deployment, lambda now, killed: 10 + len(made))

    load_of = pair_overhead.load_in_simulator(fake, quick=True)
    loads = {variant.name: load_of(variant, 0) for variant in VARIANTS}
    assert [(d.sites, d.replicas, d.seed) for d in made] == [(4, 1, 0), (2, 1, 0), (2, 1, 1), (4, 2, 0)]
    assert made[1].flow is made[2].flow
    assert loads["cluster_pairs"].rows == 2 * pair_overhead.SHOWN * 12 * 2_000, "a row counts when both have taken it"
    assert loads["none"].cpu_s == pytest.approx(8.0) and loads["cluster_pairs"].cpu_s == pytest.approx(8.0)


@pytest.mark.parametrize("flow", [FLOW, filled(ScheduledEvents(10, 100, 10)), slow_totals(keys=10, row_us=1.0)])
def test_a_recorded_dataflow_is_the_same_but_for_its_sinks(flow: object) -> None:
    recorded, records = recording(flow)  # type: ignore[arg-type]
    assert list(records) == [SINK] and [box.name for box in recorded.network] == [box.name for box in flow.network]  # type: ignore[attr-defined]
    sink = next(box.params["sink"] for box in recorded.network if box.kind == "sink")
    sink.open("run").write(3, pa.record_batch({"x": [1]}))
    sink.open("run").write(4, pa.record_batch({"x": pa.array([], pa.int64())}))
    assert [epoch for epoch, _ in records[SINK].batches] == [3]


def test_slow_totals_add_up() -> None:
    world = start(Deployment(slow_totals(keys=5, row_us=0.0, shown=1), 2, 4, options=FlowOptions(epoch_rows=50)))
    world.run_for(0.2)
    found = output(world, SINK)
    last = {row["key"]: row["rows"] for row in found.to_pylist()}
    assert set(last) == set(range(5)) and all(count > 10 for count in last.values())


@pytest.mark.parametrize(("stall_us", "misses"), [(100_000, []), (1_500_000, ["longest_stall_ms", "seconds_without_output"])])
def test_large_state_on_spark_is_judged_by_its_stall(stall_us: int, misses: list[str]) -> None:
    large = Large(kill_at_s=1.0, seconds=4.0, every_s=0.01)
    world = FakeWorld(Deployment(FLOW, 4, 4, replicas=2), lambda now, killed: 0 if killed and now < killed + stall_us else 20)
    seen = watch(world, SINK, large.seconds, every_s=large.every_s, acts=[(large.kill_at_s, lambda: world.kill(3))])
    found = large_figures(large, seen, 300_000_000, 75_000_000)
    assert found["state_mb"] == 150.0 and found["lost_mb"] == 75.0 and found["recovery_s"] == pytest.approx(1.0, abs=0.02)
    assert [name for name, bound in large_targets(large).items() if not bound.holds(found[name])] == misses
    assert np.isfinite(large_chart(large, seen).panels[0].marks[1].x)  # type: ignore[union-attr]
    assert LARGE.keys == 2_000_000


def report(gap_ms: float | None, **changes: object) -> dict[str, object]:
    each = {"gap_ms": gap_ms, "first_second_gap_ms": gap_ms}
    names = ("gap_ms_max", "gap_ms_p50", "first_second_gap_ms_max", "usual_gap_ms_max", "redundancy_s", "p99_ms_before", "p99_ms_during")
    whole = {"kills": 1, "rows_compared": 9, "rows_lost": 0, "rows_wrong": 0, "rows_repeated": 0, "failed": None, "each": [each]}
    return {**dict.fromkeys(names, gap_ms), **whole, **changes}


@pytest.mark.parametrize(
    ("told", "misses"),
    [
        (report(40.0), set()),
        (report(140.0), {"longest_gap_ms"}),
        (report(1_140.0), {"longest_gap_ms", "seconds_without_output"}),
        (report(40.0, rows_wrong=1), {"rows_lost"}),
        (report(None, failed="PartitionsLost"), {"longest_gap_ms", "seconds_without_output", "kills"}),
    ],
)
def test_failover_on_spark_is_judged_by_the_report_of_its_harness(told: dict[str, object], misses: set[str]) -> None:
    found = failover_on_spark.figures(told)
    good = {f"{name}_no_spare": value for name, value in failover_on_spark.figures(report(40.0)).items()}
    targets = failover_on_spark.targets(1)
    assert {name for name, bound in targets.items() if not bound.holds({**found, **good}.get(name))} == misses
    assert len(failover_on_spark.chart({"": told, "_no_spare": report(5.0)}).panels) == 2
