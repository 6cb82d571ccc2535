"""The load-balancing experiments on Spark, without Spark: what is slow and how much, and what is made of a run's events."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import ClusterError
from evenflow.experiments import balancing_on_spark, overload, rebalance, slow
from evenflow.experiments.balancing import Variant, run
from evenflow.experiments.on_spark import BalancingWorld
from evenflow.experiments.registry import EXPERIMENTS
from evenflow.experiments.simulated import Deployment, output, watch
from evenflow.experiments.simulator import start
from evenflow.experiments.slow import Slowness
from evenflow.experiments.workload import SINK, slow_totals
from evenflow.policy.proposal import Parameters
from evenflow.site.options import FlowOptions
from evenflow.world.spark.engine import EngineOptions
from tests.experiments.fake_balancing import worlds

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

    def progress(self) -> dict[str, Any]:
        return {"redundancy": 2, "sites": [{"site": 0, "executor": "4", "pid": 1}, {"site": 1, "executor": "5", "pid": 2}]}

    def events(self) -> list[dict[str, Any]]:
        return [
            {"at_s": 0.5, "kind": "move_begun", "site": 1, "text": "", "partitions": [1, 2], "bytes": 0},
            {"at_s": 1.5, "kind": "move_done", "site": 1, "text": "", "partitions": [1, 2], "bytes": 3_000_000},
        ]


def test_a_run_on_spark_tells_of_its_moves_and_can_be_slowed(tmp_path: Path) -> None:
    slowness, engine = Slowness(str(tmp_path)), SimpleNamespace(start=lambda flow: FakeRun())
    world = BalancingWorld(engine, Deployment(FLOW, 2, 4, replicas=2), slowness)  # type: ignore[arg-type]
    world.slow_down(1, 2.0)
    assert (slowness.of("4"), slowness.of("5")) == (1.0, 2.0)
    assert [(at_us, told.kind, told.details["partitions"]) for at_us, told in world.happened][1] == (1_500_000, "move_done", [1, 2])
    assert 0 <= world.now_us < 10_000_000 and world.copied_bytes == 3_000_000
    seen = watch(world, SINK, 0.02, every_s=0.01)
    assert seen.copied_bytes.tolist() == [3_000_000] * 2
    with pytest.raises(ClusterError, match="give the engine state_memory_mb"):
        world.limit_memory(1, 0)


@pytest.mark.parametrize("measured", [rebalance, overload])
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
    assert on_spark == {"failover", "pair-overhead", "after-failure", "large-state", "rebalance", "skewed-keys", "overload"}


def test_parameters_of_the_policy_are_an_option_of_the_engine() -> None:
    assert EngineOptions(balance="evenflow", balance_parameters=Parameters(th_imb=1.5)).balance_parameters == Parameters(th_imb=1.5)
    with pytest.raises(TypeError, match="balance_parameters must be a Parameters of evenflow.policy.proposal, not 1.5"):
        EngineOptions(balance_parameters=1.5)  # type: ignore[arg-type]
