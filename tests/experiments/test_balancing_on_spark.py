"""The load-balancing experiments on Spark, without Spark: what is slow and how much, and what is made of a run's events."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.experiments.harness import slow
from evenflow.experiments.harness.balancing import Variant, run
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.on_spark import BalancingWorld, Sessions
from evenflow.experiments.harness.simulated import Deployment, output, watch
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.harness.slow import Slowness
from evenflow.experiments.harness.workload import SINK, slow_totals
from evenflow.experiments.papers import after_failure, balancing_on_spark, memory, memory_on_spark, overload, rebalance
from evenflow.experiments.registry import EXPERIMENTS
from evenflow.experiments.result.drawing import draw
from evenflow.policy.proposal import Parameters
from evenflow.site.options import FlowOptions
from evenflow.statistics.progress import Progress
from evenflow.world.spark.driver.options import EngineOptions
from tests.experiments.fake_balancing import worlds
from tests.statistics.numbers import progress, site_progress

FLOW = slow_totals(keys=5, row_us=100.0, shown=1)


def test_an_executor_is_slow_from_when_it_is_said(tmp_path: Path) -> None:
    slowness = Slowness(str(tmp_path))
    assert slowness.of("7") == 1.0
    slowness.set("7", 12.5)
    assert (slowness.of("7"), slowness.of("70")) == (12.5, 1.0)
    slowness.set("7", 1.0)
    assert slowness.of("7") == 1.0 and [file.name for file in tmp_path.iterdir()] == ["7"]


def test_a_row_costs_more_in_a_slow_executor_and_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    monkeypatch.setattr(slow, "DEBT", SimpleNamespace(add=spent.append))
    monkeypatch.setattr(slow, "executor_here", lambda: "3")
    slowness = Slowness(str(tmp_path))

    def totals(slowness: Slowness | None) -> pa.Table:
        source = ef.sources.generator(rows=600, keys=5, partitions=2, rate=100_000)
        flow = slow_totals(keys=5, row_us=100.0, shown=1, source=source, slowness=slowness)
        world = start(Deployment(flow, 1, 4, options=FlowOptions(epoch_rows=50)))
        world.run_for(1.0)
        return output(world, SINK).sort_by([("key", "ascending"), ("rows", "ascending")])

    plain = totals(None)
    assert sum(spent) == pytest.approx(600 * 100.0)
    spent.clear()
    slowness.set("3", 4.0)
    assert totals(slowness).equals(plain) and sum(spent) == pytest.approx(4 * 600 * 100.0)
    assert plain.num_rows == 600, "a row for each row"
    for key in range(5):
        counts = plain.filter(pa.compute.equal(plain["key"], key))["rows"].to_pylist()
        assert counts == list(range(1, len(counts) + 1))


class FakeRun:
    """Two sites, in executors 4 and 5, between which there was a move."""

    is_active = True

    def __init__(self) -> None:
        self.limits: list[tuple[float | None, list[int]]] = []
        self._driven = SimpleNamespace(machine=SimpleNamespace(recovery=SimpleNamespace(spread=None)))

    def set_state_memory(self, mb: float | None, sites: list[int]) -> None:
        self.limits.append((mb, sites))

    def numbers(self) -> Progress:
        return progress(redundancy=2, p50_ms=12.5, sites=(site_progress(0, executor="4", pid=1), site_progress(1, executor="5", pid=2)))

    def events(self) -> list[dict[str, Any]]:
        return [
            {"at_s": 0.5, "kind": "move_begun", "site": 1, "text": "", "partitions": [1, 2], "bytes": 0},
            {"at_s": 1.5, "kind": "move_done", "site": 1, "text": "", "partitions": [1, 2], "bytes": 3_000_000},
        ]


def test_a_run_on_spark_tells_of_its_moves_and_can_be_slowed(tmp_path: Path) -> None:
    slowness, made = Slowness(str(tmp_path)), FakeRun()
    slowness.set("4", 23.0)  # A run before this one, on the same cluster, has left that.
    engine = SimpleNamespace(start=lambda flow: made)
    world = BalancingWorld(engine, Deployment(FLOW, 2, 4, replicas=2, spread=False), slowness)  # type: ignore[arg-type]
    assert made._driven.machine.recovery.spread is False
    world.slow_down(1, 2.0)
    assert (slowness.of("4"), slowness.of("5")) == (1.0, 2.0)
    assert [(at_us, told.kind, told.details["partitions"]) for at_us, told in world.happened][1] == (1_500_000, "move_done", [1, 2])
    assert 0 <= world.now_us < 10_000_000 and world.copied_bytes == 3_000_000
    seen = watch(world, SINK, 0.02, every_s=0.01)
    assert seen.copied_bytes.tolist() == [3_000_000] * 2
    assert list(world.latencies_us) == [12_500], "once a second"
    world.limit_memory(1, 3 * 2**20)
    world.limit_memory(0, None)
    assert made.limits == [(3.0, [1]), (None, [0])]


@pytest.mark.parametrize(("kept", "sessions"), [(True, 2), (False, 3)])
def test_a_cluster_on_which_nobody_dies_is_kept_for_the_next_run(kept: bool, sessions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from evenflow.world.spark.cluster import session
    from evenflow.world.spark.driver import engine

    made: list[str] = []
    stopped: list[str] = []
    engines: list[Any] = []

    class FakeEngine:
        def __init__(self, spark: str, *given: Any, **options: Any) -> None:
            self.spark, self.options, self.runs, self.over = spark, options, [], False
            engines.append(self)

        def __enter__(self) -> None:
            assert self.spark not in stopped

        def stop(self) -> None:
            self.over = True

    monkeypatch.setattr(engine, "Engine", FakeEngine)
    monkeypatch.setattr(session, "embedded_session", lambda master: made.append(f"{master} {len(made)}") or made[-1])
    monkeypatch.setattr(session, "stop_session", stopped.append)
    world = SimpleNamespace(begin=lambda: None)
    with Sessions(lambda engine, deployment: world, replaced=True, patience_s=1.0, kept=kept) as start:  # type: ignore[arg-type,return-value]
        for sites in (4, 4, 2):
            start(Deployment(FLOW, sites, 4, options=FlowOptions(state_memory_bytes=2**21)))
            assert [each.over for each in engines] == [True] * (len(engines) - 1) + [False]
    assert len(made) == sessions and stopped == made and all(each.over for each in engines)
    assert made[0].startswith("local-cluster[4,2") and made[-1].startswith("local-cluster[2,2")
    assert engines[0].options["state_memory_mb"] == 2.0


def test_memory_on_spark_takes_half_of_one_sites_memory_and_is_judged_by_when_it_is_back(tmp_path: Path) -> None:
    def falls(deployed: Deployment, now_us: int, since_us: int | None) -> int:
        return 50 if since_us is not None and (since_us < 4_000_000 or deployed.policy == "none") else 100

    times = memory_on_spark.QUICK
    made, begin = worlds(falls, ((11_000_000, 3),))
    seen = memory_on_spark.compare(Setting("spark", True, lambda text: None), begin, times)
    assert [world.memory for world in made] == [{memory.VICTIM: 22_000_000}] * 2
    assert all(world.deployment.options.state_memory_bytes == 44_000_000 and world.deployment.replicas == 1 for world in made)
    found = memory.figures(times, seen)
    assert [name for name, bound in memory_on_spark.targets().items() if not bound.holds(found[name])] == []
    assert found["share_none"] == pytest.approx(0.5) and 3.0 <= found["back_s_evenflow"] <= 6.0
    draw(memory.chart(times, seen), tmp_path / "memory.svg")


def test_history_is_state_of_every_key_and_the_answers_stay_one_for_each_row() -> None:
    source = ef.sources.generator(rows=600, keys=5, partitions=2, rate=100_000)
    flow = slow_totals(keys=5, row_us=0.0, shown=1, source=source, history=1_000)
    world = start(Deployment(flow, 1, 4, options=FlowOptions(epoch_rows=50)))
    world.run_for(1.0)
    assert output(world, SINK).num_rows == 600


@pytest.mark.parametrize("measured", [rebalance, overload, after_failure])
def test_only_evenflows_policy_is_judged(measured: Any) -> None:
    found = balancing_on_spark.of_evenflow(measured.targets())
    assert found and all("evenflow" in name for name in found) and len(found) < len(measured.targets())


@pytest.mark.parametrize("times", [balancing_on_spark.REBALANCE, balancing_on_spark.REBALANCE_QUICK])
def test_every_variant_has_the_slept_operator(times: rebalance.Times, tmp_path: Path) -> None:
    made, begin = worlds(lambda deployed, now_us, since_us: 100)
    run(begin, times.set_up, Variant("own", "own", "evenflow", 8), 1.0)
    with balancing_on_spark.clusters(times.set_up) as (_, set_up):
        run(begin, set_up, Variant("own", "own", "evenflow", 8), 1.0)
    kinds = [[box.kind for box in world.deployment.flow.network] for world in made]
    assert "process" not in kinds[0] and "process" in kinds[1]


def test_what_runs_on_spark_is_in_the_registry() -> None:
    on_spark = {name for name, experiment in EXPERIMENTS.items() if "spark" in experiment.worlds}
    assert on_spark == {
        "failover",
        "pair-overhead",
        "after-failure",
        "availability-modes",
        "large-state",
        "rebalance",
        "skewed-keys",
        "overload",
        "memory",
        "stalls",
    }


def test_parameters_of_the_policy_are_an_option_of_the_engine() -> None:
    assert EngineOptions(balance="evenflow", balance_parameters=Parameters(th_imb=1.5)).balance_parameters == Parameters(th_imb=1.5)
    with pytest.raises(TypeError, match="balance_parameters is 1.5; give a Parameters of evenflow.policy.proposal"):
        EngineOptions(balance_parameters=1.5)  # type: ignore[arg-type]
