"""More comes than can be done behind where rows enter: the plan says which share of each arc's rows goes on (D3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.events import BEGIN_US, VaryingEvents
from evenflow.coordinator.ledger import shed_table
from evenflow.exchange.shedding import ALL
from evenflow.exchange.thinning import Thinner
from evenflow.plan.layout import Layout, Thin
from evenflow.policy.proposal import Parameters
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.rows import Rows
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.mutations import Mutation, planted
from evenflow.swarm.shed_mutations import SHEDDING
from evenflow.swarm.thinned_cases import Thinnings
from evenflow.swarm.thinned_checkers import Needed
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import CostModel
from tests.drawn import one_in

SITES = 3
CAN = 3_000
"""Rows per second that one output's work could have if it were alone."""
ROW_US = SITES * 1e6 / CAN
LATENCY = [("250 ms", 1), ("1 s", 0)]


class Overload:
    """A source of `load` times what the sites can do for two outputs together, of which one is worth a fifth of the other.

    Rows enter for nothing, and cost where they are dealt out; what the producers put on each arc is written down."""

    def __init__(
        self,
        load: float,
        seconds: float = 1.0,
        *,
        shedding: str = "lp",
        values: bool = False,
        protect: bool = False,
        then: float | None = None,
        **given: Any,
    ) -> None:
        """then: the load from half of the time on, if that is another."""
        rate = int(load * CAN / 2)
        self.rows = int(rate * seconds)
        made = ef.sources.generator(rate, 1000, rows=self.rows, partitions=SITES, seed=5).begun(1_000_000)
        if then is not None:
            steps = ((0, rate), (int(seconds * 5e5), int(then * CAN / 2)))
            self.rows = VaryingEvents(1, 1 << 40, 1000, count=SITES, steps=steps).due(BEGIN_US + int(seconds * 1e6))
            made = VaryingEvents(1, self.rows, 1000, count=SITES, steps=steps)
        flow = ef.Dataflow("overload")
        rows = flow.source(made, name="in").select("key", "value", "ts")
        worth: dict[str, Any] = {"value": ("value", [(0, 0.1), (1000, 1)])} if values else {}
        dear = ef.qos(latency=LATENCY, **worth)
        cheap = None if protect else ef.qos(latency=LATENCY, weight=0.2, **worth)
        rows.repartition().select("key", "value").to(ef.sinks.memory("dear"), name="dear", qos=dear)
        rows.repartition().select("key", "value").to(ef.sinks.memory("cheap"), name="cheap", qos=cheap)
        self.planned: Layout = layout(flow.network, sites=SITES)
        cost = CostModel(row_us=ROW_US / given.get("replicas", 1), free=frozenset({"ingress", "egress"}))
        options = FlowOptions(shedding=shedding, heartbeat_ms=50.0, linger_ms=20.0)
        settled = {"sites": SITES, "cost": cost, "options": options, "read_rows": 20_000, "read_every_us": (500, 1_500), "seed": 7}
        settled |= {"parameters": Parameters(delta_min_us=100_000)} | given
        self.cluster = SimCluster(self.planned, **settled)
        Checkers(self.world)
        self.told = Thinnings(("dear", "cheap"), ("cheap",) if protect else ())
        self.told.watch(self.world)

    @property
    def world(self) -> Any:
        return self.cluster.world

    def finish(self) -> Overload:
        while not self.world.ended:
            self.world.run_for(0.1)
            assert self.world.now_us < 60_000_000
        if self.world.error is not None:
            raise self.world.error
        assert self.told.judge({sink: self.world.output(sink) for sink in ("dear", "cheap")}) is None
        return self

    def counted_once(self) -> None:
        """What the coordinator was told is what is missing of what entered."""
        totals = self.world.coordinator.ledger.arcs.totals
        entered = sum(rows.num_rows for rows in self.told.entered.values())
        for arc, sink in ((0, "dear"), (2, "cheap")):
            gone = sum(totals[arc].dropped) if arc in totals else 0
            assert entered - gone == self.world.output(sink).num_rows

    def share(self, sink: str) -> float:
        return self.world.output(sink).num_rows / self.rows


def test_the_dear_output_keeps_more() -> None:
    """Goal: what is delivered is worth most. Twice what can be done is offered, and one output is worth five times the other: the dear one
    loses less, and all that comes is to the row what the plans' keeps leave of what entered."""
    run = Overload(2.0).finish()
    assert 0.6 < run.share("dear") <= 1 and run.share("cheap") < 0.5 * run.share("dear")
    assert any("the plan keeps" in event.text for _, event in run.world.happened if event.kind == "round")


def test_a_table_leaves_rows_out_where_they_come_in() -> None:
    run = Overload(2.0, shedding="fit").finish()
    assert 0.3 < run.share("dear") < 0.6 and abs(run.share("dear") - run.share("cheap")) < 0.05


def test_what_is_worth_most_is_kept() -> None:
    """Rows of eight classes: of the dear output the best ones come."""
    run = Overload(3.0, values=True).finish()
    values = run.world.output("dear").column("value").to_numpy()
    assert any(len(keep) == 8 for keep in run.told.keeps.values()) and np.median(values) > 550


def test_a_protected_output_gets_everything() -> None:
    run = Overload(1.5, protect=True).finish()
    assert run.share("cheap") == 1 and run.share("dear") < 1


@pytest.mark.parametrize("way", ["lp", "fit"])
def test_what_costs_where_rows_come_in_is_for_the_reflex(way: str) -> None:
    """A row that has entered has cost already what is too much: to leave it out then saves nothing, and a plan that did left out all."""
    run = Overload(2.0, shedding=way, cost=CostModel(row_us=2 * ROW_US, free=frozenset({"inner", "egress"})))
    run.finish()
    assert run.share("dear") > 0.25 and run.share("cheap") > 0.25
    assert not any(run.told.keeps.values())


def test_of_what_may_enter_the_dear_output_keeps_more() -> None:
    """Rows cost where they come in and behind it, too much both times."""
    run = Overload(3.0, cost=CostModel(row_us=ROW_US, free=frozenset({"egress"})))
    run.finish()
    assert run.share("dear") > 0.2 and run.share("cheap") < 0.8 * run.share("dear")


def test_nothing_is_left_out_while_all_can_be_done() -> None:
    run = Overload(0.7).finish()
    assert run.share("dear") == run.share("cheap") == 1
    assert not any(run.told.keeps.values()) and not run.world.coordinator.ledger.arcs.totals


def test_a_plan_that_leaves_rows_out_for_nothing_is_found() -> None:
    bug = next(mutation for mutation in SHEDDING if mutation.name == "a plan leaves rows out that sites could do")
    with planted(bug), pytest.raises(AssertionError, match="busy with all that is offered"):
        Overload(0.7).finish()


@pytest.mark.conformance
def test_a_plan_ends_when_all_can_be_done_again() -> None:
    """Goal: nothing is left out for long after an overload (D6). Method: twice what can be done, then a third of it. Seeds of the swarm are
    over sooner than that."""
    run = Overload(2.0, 4.0, then=0.3).finish()
    [needed] = [each for each in run.world.observers if isinstance(each, Needed)]
    assert needed.began == 1 and not run.world.coordinator.rounds.keeps and run.share("cheap") > 0.1
    words = "return None if found is None else self._keeps_of"
    bug = Mutation(
        "", "policy.shedding.live:FlowPlanner._wanted", words, words.replace("is None else", "is None or found.how == 'all' else")
    )
    with planted(bug), pytest.raises(AssertionError, match="has fitted for 11 looks"):
        Overload(2.0, 4.0, then=0.3).finish()


def test_who_takes_over_leaves_out_the_same_and_all_is_told_once() -> None:
    """Goal: replicas agree on what goes on, and what was left out is counted once (D3, D5). Method: two sites die under overload."""
    run = Overload(2.0, replicas=2)
    for site in (0, 2):
        run.world.run_for(0.4)
        assert any(run.world.coordinator.plan.settings.keeps), "the plan leaves rows out"
        run.world.kill(site)
        run.world.add_site()
    run.finish()
    run.counted_once()


def test_a_restart_keeps_what_was_kept() -> None:
    """Goal: epochs that are replayed are thinned as they were (J3). Method: everything dies under a plan that leaves rows out; the plan of
    each replayed epoch is that of the journal, and the answer is that of the oracle."""
    run = Overload(2.0)
    run.world.run_for(0.6)
    assert any(run.world.coordinator.plan.settings.keeps)
    before = dict(run.told.keeps)
    run.cluster.lose_all()
    run.cluster.restart()
    Checkers(run.world)
    run.told.watch(run.world)
    durable = run.world.coordinator.beginning.durable
    run.finish()
    again = {at: keep for at, keep in run.told.keeps.items() if at[1] <= durable}
    assert len([keep for keep in again.values() if keep]) > 3 and again.items() <= before.items()


@pytest.mark.parametrize("nested", one_in(2, [True, False]))
def test_thinned_rows_do_not_depend_on_their_order(nested: bool) -> None:
    """Goal: which rows go on follows from what they are (D1), equal ones included. Method: the same rows in other orders, in two
    partitions; as many of each kind go on, and a smaller share takes a part of the greater one's."""
    random = np.random.default_rng(3)
    numbers = random.choice([0.0, -0.0, 1.5], 400)
    deep = pa.array([[{"x": each, "of": {"k": [each]}}, None] for each in numbers.tolist()])
    rows = pa.record_batch({"a": random.integers(0, 5, 400), "b": deep if nested else numbers})
    partition = random.integers(0, 2, 400).astype(np.int32)
    thinner = Thinner.of(3, Thin(("out",)), rows.schema)

    def kept(order: Any, share: float, epoch: int = 7) -> list[tuple[Any, ...]]:
        given = Rows(rows.take(pa.array(order)), partition[order])
        went, told = thinner.thinned(given, epoch, (int(share * ALL),))
        assert told.offered.sum() - told.dropped.sum() == went.count and told.partitions == (0, 1)
        return sorted(zip(went.partition.tolist(), *[map(repr, column.to_pylist()) for column in went.batch.columns]))

    whole = kept(np.arange(400), 0.6)
    assert all(kept(random.permutation(400), 0.6) == whole for _ in range(5))
    assert abs(len(whole) - 240) < 40 and kept(np.arange(400), 0.6, epoch=8) != whole
    assert not Counter(kept(np.arange(400), 0.2)) - Counter(whole)


def test_what_was_left_out_is_in_the_table() -> None:
    run = Overload(2.0).finish()
    run.counted_once()
    told = [row for row in shed_table(run.planned, run.world.coordinator.ledger).to_pylist() if row["arc"]]
    assert told and {row["arc"] for row in told} <= {"in -> repartition", "in -> repartition_2"}
    assert all(row["source"] is None and row["outputs"] in (["dear"], ["cheap"]) for row in told)
