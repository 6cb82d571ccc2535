"""The load-balancing experiments, held against worlds whose figures are known, and what they need of the simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenflow.experiments.harness.balancing import FLUX_2002, THESIS, SetUp, Slow, Variant, deployment, quick, run
from evenflow.experiments.harness.experiment import Setting
from evenflow.experiments.harness.pools import rotating, throughput
from evenflow.experiments.harness.simulated import Deployment, watch
from evenflow.experiments.harness.simulator import start
from evenflow.experiments.harness.workload import SINK, grouped, slow_totals
from evenflow.experiments.papers import after_failure, degradation, overload, rebalance, skewed_keys, transient_skew
from evenflow.experiments.result.drawing import draw
from evenflow.experiments.result.result import Measurement
from evenflow.policy.proposal import Parameters
from evenflow.query.builder import Dataflow
from evenflow.query.planner import layout
from tests.drawn import one_in
from tests.experiments.fake_balancing import worlds

QUICK = Setting("sim", True, lambda text: None)


def missed(found: Measurement) -> set[str]:
    return {name for name, bound in found.target.items() if not bound.holds(found.measured.get(name))}


def drops_to(static: float, thesis: float, own: float, after_us: int = 1_000_000) -> object:
    """100 rows a step; from the change on the static share, and after a while the policy's."""

    def rate(deployed: Deployment, now_us: int, since_us: int | None) -> int:
        if since_us is None:
            return 100
        settled = {"none": static, "utilization": thesis, "evenflow": own}[deployed.policy]
        return round(100 * (settled if since_us > after_us else static))

    return rate


def test_rebalance_holds_at_the_papers_share_and_near_the_ideal(tmp_path: Path) -> None:
    made, begin = worlds(drops_to(0.5, 0.85, 0.87), ((3_000_000, 4), (4_000_000, 3)))  # type: ignore[arg-type]
    found = rebalance.measure(QUICK, begin)
    assert missed(found) == set()
    assert found.measured["share_static"] == pytest.approx(0.5) and found.measured["share_evenflow"] == pytest.approx(0.87)
    assert found.measured["partitions_moved_thesis"] == 7 and found.measured["balanced_s_thesis"] == pytest.approx(2.0)
    assert [world.slow for world in made] == [{rebalance.VICTIM: 2.0}] * 3 and all(world.deployment.ends_free for world in made)
    draw(found.chart, tmp_path / "rebalance.svg")


@pytest.mark.parametrize(
    ("rate", "misses"),
    [
        (drops_to(0.5, 0.78, 0.87), {"share_thesis"}),
        (drops_to(0.5, 0.92, 0.87), {"share_thesis"}),
        (drops_to(0.5, 0.85, 0.84), {"share_evenflow", "share_evenflow_after_5_s"}),
        (drops_to(0.5, 0.85, 0.87, after_us=7_500_000), {"share_evenflow_after_5_s"}),
    ],
)
def test_rebalance_misses_what_it_should(rate: object, misses: set[str]) -> None:
    assert missed(rebalance.measure(QUICK, worlds(rate)[1])) == misses  # type: ignore[arg-type]


def test_the_papers_set_up_is_the_papers() -> None:
    made = deployment(SetUp(), rebalance.PAPERS)
    assert (made.sites, made.replicas, made.partitions, made.placement, made.link_mbit_per_s) == (4, 2, 32, "chained", 100.0)
    parameters = made.parameters
    assert parameters is not None
    assert (parameters.th_imb, parameters.th_util, parameters.delta_min_us, parameters.moves_max) == (1.15, 0.925, 250_000, 1)


@pytest.mark.parametrize("flow", [grouped(keys=10), slow_totals(keys=10, row_us=1.0)])
@pytest.mark.parametrize("parameters", [THESIS, FLUX_2002])
def test_the_papers_policies_balance_the_group_by_alone(flow: Dataflow, parameters: Parameters) -> None:
    """FT 5.1.3.2: the controller considers one segment; the others had machines of their own."""
    segments = layout(flow.network, sites=4, partitions=8).segments
    assert [segments[number].kind for number in parameters.segments or ()] == ["inner"]
    assert [segment.kind for segment in segments].count("inner") == 1


def test_overload_has_the_thesis_partitions_on_each_machine() -> None:
    """FT 5.4: 16 a machine, both replicas counted; and each run lasts longer than the thesis needs to balance it."""
    made = deployment(overload.SHORT, overload.PAPERS)
    assert made.partitions * made.replicas // made.sites == 16
    times = overload.TIMES
    for load in overload.LOADS:
        needed = float(overload.PAPER[f"balanced_s_{load}_thesis"] or 0)
        assert times.seconds[load, "thesis"] > times.slow_at_s + needed + times.steady_s


@pytest.mark.parametrize(
    ("own", "misses"), [(0.75, set()), (0.7, {f"share_{x}_evenflow{y}" for x in ("heavy", "severe") for y in ("", "_after_10_s")})]
)
def test_overload_is_judged_by_what_three_sites_can_do(own: float, misses: set[str], tmp_path: Path) -> None:
    made, begin = worlds(drops_to(0.1, 0.7, own))  # type: ignore[arg-type]
    found = overload.measure(QUICK, begin)
    assert missed(found) == misses
    assert [world.slow[overload.VICTIM] for world in made] == [12.0, 12.0, 23.0, 23.0]
    draw(found.chart, tmp_path / "overload.svg")


def test_degradation_is_judged_by_its_worst_point(tmp_path: Path) -> None:
    ideal = {1: degradation.ideal(degradation.QUICK, 1), 2: degradation.ideal(degradation.QUICK, 2)}
    counts = iter([1, 1, 2])

    def rate_of(lost: float) -> object:
        slow: Counter[int] = Counter()

        def rate(deployed: Deployment, now_us: int, since_us: int | None) -> int:
            if now_us == 50_000:
                slow[id(deployed)] = next(counts)
            if since_us is None:
                return 100
            return 43 if deployed.policy == "none" else round(100 * ideal[slow[id(deployed)]] * (1 - lost))

        return rate

    found = degradation.measure(QUICK, worlds(rate_of(0.01))[1])  # type: ignore[arg-type]
    assert missed(found) == set() and found.measured["share_1_slow_static"] == pytest.approx(0.43)
    draw(found.chart, tmp_path / "degradation.svg")
    counts = iter([1, 1, 2])
    assert missed(degradation.measure(QUICK, worlds(rate_of(0.05))[1])) == {"least_share_of_ideal_evenflow"}  # type: ignore[arg-type]


def test_what_the_thresholds_of_flux_let_it_reach() -> None:
    assert degradation.ideal(degradation.TIMES, 8) == pytest.approx((24 + 8 * 0.43) / 32)
    assert degradation.by_thresholds(degradation.TIMES, 8) == pytest.approx((24 / 1.2 + 8 * 0.43) / 32)


@pytest.mark.parametrize(("tuned", "holds"), [(98, True), (90, False)])
def test_skewed_keys_holds_the_tuned_delta_against_the_best_fixed_one(tuned: int, holds: bool, tmp_path: Path) -> None:
    def rate(deployed: Deployment, now_us: int, since_us: int | None) -> int:
        if deployed.policy != "evenflow":
            return 50
        return tuned if deployed.parameters is None else 100

    found = skewed_keys.measure(QUICK, worlds(rate)[1])
    assert (missed(found) == set()) is holds and found.measured["evenflow_by_best_fixed_no_load"] == pytest.approx(tuned / 100)
    assert found.measured["flux_least_delta_ms_better_than_static_no_load"] is None
    draw(found.chart, tmp_path / "skewed-keys.svg")


def test_80_20_keys_are_80_20_at_every_scale() -> None:
    reader = skewed_keys.SelfSimilarSource(rate=None, keys=10_000, count=1).open(0, 1)
    batch = reader.read(0, 50_000)
    assert batch is not None
    keys = np.asarray(batch.column("key"))
    assert keys.min() >= 0 and keys.max() < 10_000
    assert np.mean(keys < 2_000) == pytest.approx(0.8, abs=0.01)
    assert np.mean(keys < 400) == pytest.approx(0.64, abs=0.01)


@pytest.mark.parametrize(("share", "holds"), [(0.87, True), (0.8, False)])
def test_transient_skew_is_judged_with_the_widest_window(share: float, holds: bool, tmp_path: Path) -> None:
    def rate(deployed: Deployment, now_us: int, since_us: int | None) -> int:
        return 100 if since_us is None else round(100 * (0.5 if deployed.options.pipeline == 1 else share))

    made, begin = worlds(rate)
    found = transient_skew.measure(QUICK, begin)
    assert (missed(found) == set()) is holds and found.measured["share_without_buffer"] == pytest.approx(0.5)
    assert all(set(world.slow.values()) == {2.0, 1.0} or set(world.slow.values()) == {2.0} for world in made)
    draw(found.chart, tmp_path / "transient-skew.svg")


def test_a_shared_pool_needs_less_room_than_a_divided_one() -> None:
    """As in FL figure 3: half without, near all with 2048 rows where they are shared, and not where they are divided."""
    speed = rotating(32, 0.5, 0.43)

    def taken(pool: str, entries: int) -> float:
        return throughput(pool, entries, 32, 21_500, speed, 2.0)  # type: ignore[arg-type]

    assert taken("shared", 0) == taken("divided", 0) == pytest.approx(0.46, abs=0.03)
    assert taken("shared", 2048) > 0.95 > 0.75 > taken("divided", 2048)
    assert throughput("divided", 2048, 4, 10_000, lambda second, consumer: 1.0, 0.5) > 0.95


@pytest.mark.parametrize(
    ("thesis", "own", "misses"),
    [
        (0.71, 0.74, set()),
        (0.6, 0.74, {"share_after_balanced_thesis", "share_after_unbalanced_thesis"}),
        (0.71, 0.7, {"share_after_balanced_evenflow", "share_after_unbalanced_evenflow"}),
    ],
)
def test_after_failure_with_balancing(thesis: float, own: float, misses: set[str], tmp_path: Path) -> None:
    made, begin = worlds(drops_to(0.5, thesis, own))  # type: ignore[arg-type]
    found = after_failure.measure(QUICK, begin)
    assert missed(found) == misses and [world.killed for world in made] == [[3]] * 6
    assert [world.deployment.spread for world in made] == [True] * 3 + [False] * 3
    draw(found.chart, tmp_path / "after-failure.svg")


def test_a_slow_site_is_relieved_in_the_simulator() -> None:
    """The whole of it, small: the site that becomes slow gives partitions away, and they are counted."""
    set_up = replace(quick(SetUp(sites=2, replicas=1)), every_s=0.05)
    found = run(start, set_up, Variant("own", "", "evenflow", 16), 4.0, [Slow(1.0, 1, 3.0)])
    assert found.moved(1.0) >= 2 and 0.0 < found.balanced_s(1.0) < 3.0


@pytest.mark.parametrize(("spread", "homes"), one_in(2, [(True, {0, 1, 2}), (False, {1})], spread=True))
def test_unbalanced_recovery_puts_everything_on_one_site(spread: bool, homes: set[int]) -> None:
    deployed = replace(deployment(quick(SetUp()), Variant("none", "", "none", 8)), spread=spread)
    world = start(deployed)
    before = {(1, p): set(sites) for p, sites in enumerate(world.coordinator.plan.placement[1])}  # type: ignore[attr-defined]
    watch(world, SINK, 5.0, every_s=0.05, acts=[(0.3, lambda: world.kill(3))])
    plan, membership = world.coordinator.plan, world.coordinator.membership  # type: ignore[attr-defined]
    new = {site for (segment, p), sites in before.items() for site in set(membership.live(plan, segment, p)) - sites}
    assert world.redundancy() == 2 and new == homes
