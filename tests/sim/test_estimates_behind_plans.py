"""Estimates where a plan leaves rows out on the way: those that go on stand for them, too."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.exchange.shedding import ALL
from evenflow.exchange.thinning import Thinner
from evenflow.plan.layout import Thin
from evenflow.policy.proposal import Parameters
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.stream.rows import Rows
from evenflow.stream.weight import WEIGHT, WEIGHT_FIELD
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import CostModel

SITES = 3
CAN = 3_000
LATENCY = [("250 ms", 1), ("1 s", 0)]
WINDOW = "200 milliseconds"


def flow_of(source: Any) -> ef.Dataflow:
    """Rows are dealt out to an estimate of weight 1, and to an output of rows of weight 0.2."""
    flow = ef.Dataflow("estimated")
    rows = flow.source(source, name="in", weights=True)
    rows = rows.with_watermark("ts", "0 seconds")
    counted = rows.repartition().filter("value >= 0").group_by("key").window(WINDOW)
    counted.agg(n=ef.estimate("count(*)"), total=ef.estimate("sum(value)")).to(
        ef.sinks.memory("dear"), name="dear", qos=ef.qos(latency=LATENCY)
    )
    cheap = rows.repartition().select("key", "ts", WEIGHT)
    cheap.to(ef.sinks.memory("cheap"), name="cheap", qos=ef.qos(latency=LATENCY, weight=0.2))
    return flow


def generated(load: float, seconds: float) -> Any:
    rate = int(load * CAN / 2)
    return ef.sources.generator(rate, 4, rows=int(rate * seconds), partitions=SITES, seed=5).begun(1_000_000)


class Estimated:
    """A source of `load` times what the sites can do behind it."""

    def __init__(self, load: float, seconds: float = 1.6, **given: Any) -> None:
        self.source = generated(load, seconds)
        self.planned = layout(flow_of(self.source).network, sites=SITES, partitions=4)
        cost = CostModel(row_us=SITES * 1e6 / CAN / given.get("replicas", 1), free=frozenset({"ingress", "egress", "keyed"}))
        options = FlowOptions(shedding="lp", heartbeat_ms=50.0, linger_ms=20.0)
        settled = {"sites": SITES, "cost": cost, "options": options, "read_rows": 20_000, "read_every_us": (500, 1_500), "seed": 7}
        self.cluster = SimCluster(self.planned, **settled | {"parameters": Parameters(delta_min_us=100_000)} | given)
        Checkers(self.world)

    @property
    def world(self) -> Any:
        return self.cluster.world

    def finish(self) -> Estimated:
        self.world.run_until(lambda: self.world.ended, 60.0, "the end")
        if self.world.error is not None:
            raise self.world.error
        return self

    def truth(self) -> dict[tuple[int, int], tuple[int, float]]:
        found = defaultdict(list)
        for partition in range(SITES):
            reader = self.source.open(partition, SITES)
            while not reader.ended:
                for row in reader.read(1 << 50, 1 << 20).to_pylist():
                    at = round(row["ts"].timestamp() * 1e6)
                    found[row["key"], at // 200_000 * 200_000].append(row["value"])
        return {at: (len(values), float(sum(values))) for at, values in found.items()}

    def results(self) -> dict[tuple[int, int], dict[str, float]]:
        return {(row["key"], round(row["window_start"].timestamp() * 1e6)): row for row in self.world.output("dear").to_pylist()}


@pytest.mark.parametrize("replicas", [2, 1])
@pytest.mark.conformance
def test_estimates_hold_the_truth_where_a_plan_leaves_rows_out(replicas: int) -> None:
    """Goal: who counts gets about the right count, and knows how far off, wherever rows went. Method: three times what can be done, and a
    site dies; rows go where they enter, and on both arcs behind that."""
    run = Estimated(3.0, replicas=replicas)
    if replicas > 1:
        run.world.run_for(0.7)
        run.world.kill(2)
        run.world.add_site()
    run.finish()
    totals = run.world.coordinator.ledger.arcs.totals
    assert {arc for arc, told in totals.items() if sum(told.dropped)} >= {0}, "rows are left out before the estimate"
    results, truth = run.results(), run.truth()
    sampled = [at for at, row in results.items() if row["n_error"] > 0]
    assert len(sampled) > len(truth) / 3
    for place, name in enumerate(("n", "total")):
        missed = [at for at in sampled if abs(results[at][name] - truth[at][place]) > results[at][f"{name}_error"] + 1e-6]
        assert len(missed) <= 0.2 * len(sampled), (name, len(missed), len(sampled))
    stood, there = run.world.output("cheap").column(WEIGHT).to_numpy().sum(), sum(n for n, _ in truth.values())
    assert abs(stood / there - 1) < 0.25, "rows that come out themselves say what they stand for"
    assert all(min(keep) > 0 for keep in run.world.coordinator.plan.settings.keeps if keep), "some of all go on"


def test_a_row_that_goes_on_stands_for_those_that_do_not() -> None:
    """Goal: right in the mean, and the same whoever works it out. Method: rows that stand for two each, of which three in ten go on."""
    schema = pa.schema([("x", pa.int64()), WEIGHT_FIELD])
    thinner, found = Thinner.of(3, Thin(("out",), weighs=True), schema), []
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(500)), pa.array(np.full(500, 2.0))], schema=schema)
    for epoch in range(200):
        kept, _ = thinner.thinned(Rows(rows, np.zeros(500, np.int32)), epoch, (int(0.3 * ALL),))
        weights = kept.batch.column(WEIGHT).to_numpy()
        assert weights == pytest.approx(2 / 0.3) and kept.batch.schema == schema
        found.append(weights.sum())
    assert abs(np.mean(found) - 1000) < 4 * np.std(found) / np.sqrt(len(found))
    whole, _ = thinner.thinned(Rows(rows.slice(0, 1), np.zeros(1, np.int32)), 1, (ALL - 1,))
    assert whole.count == 1 and whole.batch.column(WEIGHT).to_numpy()[0] > 2, "it has stayed by chance"


def test_where_a_plan_may_leave_rows_out_before_estimates() -> None:
    """Goal: before each row, not before what is put together of several."""
    source = ef.sources.generator(100, 4, rows=100)
    planned = layout(flow_of(source).network, sites=SITES)
    first = [arc.id for arc in planned.arcs if arc.producer == 0]
    assert {arc: planned.thins.get(arc) for arc in first} == {
        first[0]: Thin(("dear",), weighs=True),
        first[1]: Thin(("cheap",), weighs=True),
    }
    for arc, thin in planned.thins.items():
        assert thin.weighs == (WEIGHT in planned.arcs[arc].schema.names)


def test_a_column_of_the_sources_own_with_that_name_says_nothing() -> None:
    flow = ef.Dataflow("own")
    mine = ef.sources.memory([], schema=pa.schema([("x", pa.int64()), WEIGHT_FIELD]))
    flow.source(mine, name="in").repartition().to(ef.sinks.memory("out"), name="out", qos=ef.qos(latency=LATENCY))
    assert not any(thin.weighs for thin in layout(flow.network, sites=SITES).thins.values())
