"""Rows that may go anywhere: who is slow gets fewer of them, and every row has its effect once, whoever fails."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import evenflow as ef
from evenflow.policy.proposal import Parameters
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.balance_checkers import BalanceCheckers
from evenflow.swarm.cases import differ, rows_of, source
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

EAGER = Parameters(th_imb=1.05, th_util=1.0, delta_min_us=50_000, moves_max=128, delta_least_us=50_000, idle=0.0)
ROWS = 12_000


class River:
    """Two source partitions whose rows are dealt out to four sites; the last one needs `slow` times as long for everything."""

    def __init__(self, slow: float, **given: Any) -> None:
        random = Random(4)
        self.parts = [[(2 * at + p + 1, at % 10, at) for at in range(ROWS)] for p in range(2)]
        flow = ef.Dataflow("river")
        there = flow.source(source(self.parts, random), name="in").repartition().select("k", "v * 2 as w")
        there.to(ef.sinks.memory("out"), name="out")
        self.planned = layout(flow.network, sites=4)
        (self.segment,) = self.planned.dealt()
        cost = CostModel(row_us=100.0, slow=(1.0, 1.0, 1.0, slow), free=frozenset({"ingress", "egress"}))
        options = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0)
        settled: dict[str, Any] = {"policy": "evenflow", "parameters": EAGER, "patience_ms": 50.0, "seed": 3} | given
        self.world = SimWorld(self.planned, sites=4, cost=cost, options=options, read_rows=100, **settled)
        Checkers(self.world)
        BalanceCheckers(self.world)

    def shares(self, seconds: float) -> list[float]:
        """Of the rows that are dealt out, by partition, in so much time from now on."""
        self.world.collect()
        self.world.run_for(seconds)
        rows = self.world.collect().rows()
        counts = [rows.get((self.segment, p), 0) for p in range(4)]
        return [count / sum(counts) for count in counts]

    def finish(self) -> None:
        self.world.run_until_quiet()
        answer = [(k, 2 * v) for part in self.parts for _, k, v in part]
        assert differ(rows_of(self.world.output("out")), answer) is None


def test_a_slow_site_gets_fewer_rows() -> None:
    """Goal: nobody waits for a slow site. Method: one is three times slower; its share goes to a tenth, that of the others to three."""
    river = River(3.0)
    early = river.shares(0.02)
    assert max(early) - min(early) < 0.1
    river.world.run_for(0.8)
    late = river.shares(0.2)
    assert abs(late[3] - 0.1) < 0.03 and all(abs(share - 0.3) < 0.04 for share in late[:3])
    plan = river.world.coordinator.plan
    assert plan.weights[river.segment][3] < min(plan.weights[river.segment][:3])
    assert "dealt out anew" in " ".join(event.text for _, event in river.world.happened if event.kind == "round")
    river.finish()


@pytest.mark.conformance
def test_it_is_worth_it() -> None:
    """One of four sites three times slower: the even deal goes at a third of the rate, the weighted one at 10/12 of it."""
    took = []
    for policy in ("none", "evenflow"):
        river = River(3.0, policy=policy)
        began_us = river.world.now_us
        river.finish()
        took.append(river.world.now_us - began_us)
    assert took[1] * 1.6 < took[0]


@pytest.mark.conformance
def test_without_a_policy_the_deal_is_even_and_stays_so() -> None:
    river = River(3.0, policy="none")
    river.world.run_for(0.3)
    assert max(abs(share - 0.25) for share in river.shares(0.2)) < 0.05
    assert river.world.coordinator.plan.weights == ()
    river.finish()


@pytest.mark.conformance
def test_a_site_that_is_fast_again_gets_its_rows_back() -> None:
    river = River(1.0)
    river.world.slow_down(3, 4.0)
    river.world.run_for(0.4)
    assert river.shares(0.05)[3] < 0.15
    river.world.slow_down(3, 1.0)
    river.world.run_for(0.25)
    assert river.shares(0.05)[3] > 0.2
    river.finish()


@pytest.mark.parametrize("seed", one_in(3, range(4)))
@pytest.mark.parametrize("twice", one_in(2, [True, False]))
def test_two_replicas_deal_alike_what_reached_them_in_different_orders(seed: int, twice: bool) -> None:
    """Goal: the deal goes by the place of a row, so it is no one's order of arrival. Method: rows that are put out in the order in which
    they came, of totals by key, or of a deal before, are dealt out by both replicas of their partition."""
    random = Random(seed)
    parts = [[(2 * at + p + 1, random.randrange(40), at) for at in range(1_500)] for p in range(3)]
    flow = ef.Dataflow("again")
    rows = flow.source(source(parts, random), name="in")
    first = rows.repartition(3).select("k", "v") if twice else rows.group_by("k").agg(v="count(*)", combine=False)
    first.repartition(4).select("k", "v + 0 as v").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=4, partitions=6)
    options = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0)
    world = SimWorld(planned, sites=4, replicas=2, options=options, read_rows=100, seed=seed)
    Checkers(world)
    world.run_for(0.01)
    world.kill(seed)
    world.add_site()
    world.run_until_quiet()
    out = rows_of(world.output("out"))
    if twice:
        assert differ(out, [(k, v) for part in parts for _, k, v in part]) is None
    else:
        assert len(out) == len(set(out))
        assert Counter({k: max(v for key, v in out if key == k) for k in range(40)}) == Counter(k for part in parts for _, k, _ in part)


@pytest.mark.parametrize("seed", one_in(2, range(2)))
def test_two_replicas_deal_totals_alike_while_weights_change(seed: int) -> None:
    """Goal: the deal behind a keyed box is a function of addresses and plans. Method: totals by key are dealt out with two replicas, a site
    is slow, so plans with new weights follow each other, and one dies in between."""
    random = Random(seed)
    parts = [[(2 * at + p + 1, random.randrange(40), at) for at in range(4_000)] for p in range(2)]
    flow = ef.Dataflow("again")
    totals = flow.source(source(parts, random), name="in").group_by("k").agg(v="count(*)", combine=False)
    totals.repartition(4).select("k", "v + 0 as v").to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=4, partitions=6)
    cost = CostModel(row_us=100.0, slow=(1.0, 1.0, 1.0, 4.0), free=frozenset({"ingress", "egress"}))
    options = FlowOptions(linger_ms=0.5, epoch_rows=40, heartbeat_ms=10.0)
    world = SimWorld(
        planned, sites=4, replicas=2, cost=cost, options=options, read_rows=100, seed=seed, policy="evenflow", parameters=EAGER,
        patience_ms=50.0,
    )  # fmt: skip
    Checkers(world)
    BalanceCheckers(world)
    world.run_until(lambda: bool(world.coordinator.plan.weights), 5.0, "the first weights")
    first = world.coordinator.plan.weights
    world.kill(1 + seed)
    world.run_until(lambda: 1 + seed not in world.coordinator.sites, 5.0, "the verdict")
    world.add_site()
    world.run_until(lambda: world.coordinator.plan.weights != first, 5.0, "other weights")
    world.run_until_quiet()
    counts = Counter(k for part in parts for _, k, _ in part)
    out = rows_of(world.output("out"))
    assert len(out) == len(set(out)) and {k: max(v for key, v in out if key == k) for k in counts} == counts


@pytest.mark.parametrize("victim", one_in(2, [0, 3]))
def test_results_are_the_same_whoever_dies_while_weights_change(victim: int) -> None:
    """E3: a frame that is made again goes where it went before. Method: a site dies while plans with new weights follow each other."""
    river = River(3.0, replicas=2)
    river.world.run_until(lambda: bool(river.world.coordinator.plan.weights), 5.0, "the first weights")
    river.world.kill(victim)
    river.world.run_until(lambda: victim not in river.world.coordinator.sites, 5.0, "the verdict")
    river.world.add_site()
    river.finish()
    assert river.world.fired("T2", "lose_link")
