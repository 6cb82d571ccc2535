"""Estimates: totals of rows of which some were left out, within a bound that says how wrong they may be."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.exchange.shedding import ALL
from evenflow.plan.layout import Layout, Shed
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.site.reflex import Reflex, Sheddable
from evenflow.site.tally import Tallies
from evenflow.stream.weight import WEIGHT, WEIGHT_FIELD
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.shed_cases import read_whole
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

SITES = 3
CAN = 12_000
"""Rows per second that the sites can do."""
QOS = ef.qos(latency=[("100 ms", 1), ("1 s", 0)])
WANTED = {"n": "count(*)", "known": "count(value)", "total": "sum(value)", "mean": "avg(value)"}


def drawn(flow: ef.Dataflow, source: Any, weights: bool = True) -> ef.Stream:
    return flow.source(source, name="in", weights=weights).with_watermark("ts", "0 seconds")


class Estimated:
    """A source of `load` times what the sites can do, into estimates of windows of a key."""

    def __init__(self, load: float, seconds: float, *, journal: bool = False, **given: Any) -> None:
        rate = int(load * CAN)
        self.source = ef.sources.generator(rate, 4, rows=int(rate * seconds), partitions=SITES, seed=5).begun(1_000_000)
        flow = ef.Dataflow("estimated")
        windows = drawn(flow, self.source).filter("value >= 0").group_by("key").window("250 milliseconds")
        wanted: dict[str, Any] = {name: ef.estimate(text) for name, text in WANTED.items()}
        windows.agg(**wanted).to(ef.sinks.memory("out"), name="out", qos=QOS)
        self.planned: Layout = layout(flow.network, sites=SITES, partitions=4)
        cost = CostModel(row_us=SITES * 1e6 / CAN / given.get("replicas", 1), free=frozenset({"egress"}))
        options = FlowOptions(shedding="reflex", heartbeat_ms=50.0)
        settled: dict[str, Any] = {
            "sites": SITES,
            "cost": cost,
            "options": options,
            "read_rows": 20_000,
            "read_every_us": (500, 1_500),
            "seed": 7,
        } | given
        self.cluster = SimCluster(self.planned, prepare=Checkers, **settled) if journal else None
        self.only = SimWorld(self.planned, **settled) if self.cluster is None else None
        if self.only is not None:
            Checkers(self.only)

    @property
    def world(self) -> Any:
        return self.only if self.cluster is None else self.cluster.world

    def results(self) -> dict[tuple[int, Any], dict[str, float]]:
        rows = [row for _, batch in self.world.released["out"] for row in batch.to_pylist()]
        found = {(row["key"], row["window_start"]): row for row in rows}
        assert len(found) == len(rows)
        return found

    def truth(self) -> dict[tuple[int, Any], np.ndarray[Any, Any]]:
        """The values of all rows of each window."""
        found = defaultdict(list)
        for partition in range(SITES):
            for row in read_whole(self.source.open(partition, SITES)).select(["key", "value", "ts"]).to_pylist():
                stamp = row["ts"]
                start = stamp.replace(microsecond=stamp.microsecond // 250_000 * 250_000)
                found[row["key"], start].append(row["value"])
        return {at: np.array(values, float) for at, values in found.items()}


def exact(values: np.ndarray[Any, Any]) -> dict[str, float]:
    return {"n": len(values), "known": len(values), "total": values.sum(), "mean": values.mean()}


def test_what_nothing_was_left_out_of_is_exact() -> None:
    run = Estimated(0.3, 0.6)
    run.world.run_until_quiet()
    results, truth = run.results(), run.truth()
    assert results.keys() == truth.keys()
    for at, row in results.items():
        for name, value in exact(truth[at]).items():
            assert row[name] == pytest.approx(value, rel=1e-12)
            assert row[f"{name}_error"] == 0


@pytest.mark.parametrize("loss", ["nothing", "a site", "everything"])
def test_overload_gives_estimates_about_the_truth(loss: str) -> None:
    """Also where another one leads from then on, and where epochs are made again from the journal."""
    run = Estimated(3.0, 2.0, replicas=2 if loss == "a site" else 1, journal=loss == "everything")
    if loss == "a site":
        run.world.run_for(0.7)
        run.world.kill(1)
    elif run.cluster is not None:
        run.world.run_for(1.2)
        run.cluster.lose_all()
        run.cluster.restart()
    run.world.run_until_quiet()
    results, truth = run.results(), run.truth()
    assert sum(row["n_error"] > 0 for row in results.values()) > len(results) / 2
    for name in WANTED:
        missed = [at for at, row in results.items() if abs(row[name] - exact(truth[at])[name]) > row[f"{name}_error"] + 1e-6]
        assert len(missed) <= 0.15 * len(results), (name, len(missed), len(results))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """The acceptance of distribution.md: 1,000 windows, kappa from .1 to .9, changing in the middle of a window."""
    random, inside, bias = np.random.default_rng(11), dict.fromkeys(("n", "total", "mean"), 0), []
    reflex = Reflex({0: Sheddable("in", Shed(("out",), 100_000))}, 2, Tallies(), active=True)
    for window in range(1000):
        parts = []
        for half in range(2):
            x = random.gamma(3.0, 10.0, 400)
            rows = pa.RecordBatch.from_arrays([pa.array(x), pa.array(np.ones(400))], schema=pa.schema([("x", pa.float64()), WEIGHT_FIELD]))
            first = (2 * window + half) * 400
            kept = reflex.thin_again((0, 0), rows, np.arange(first, first + 400), (int(ALL * random.uniform(0.1, 0.9)),))
            parts.append((x, kept.rows))
        truth = np.concatenate([x for x, _ in parts])
        w, x = (np.concatenate([rows.column(name).to_numpy() for _, rows in parts]) for name in (WEIGHT, "x"))
        mean = (w * x).sum() / w.sum()
        for name, value, of, is_ in (
            ("n", w.sum(), np.ones_like(x), len(truth)),
            ("total", (w * x).sum(), x, truth.sum()),
            ("mean", mean, (x - mean) / w.sum(), truth.mean()),
        ):
            inside[name] += abs(value - is_) <= 1.96 * np.sqrt((w * (w - 1) * of**2).sum())
        bias.append(w.sum() / len(truth) - 1)
    assert all(930 <= count <= 970 for count in inside.values()), inside
    assert abs(np.mean(bias)) < 4 * np.std(bias) / np.sqrt(len(bias))


def test_estimates_of_epochs_of_few_rows_are_right_in_the_mean() -> None:
    """Where all rows of an epoch stay by chance, they stand for those that would not have: else slow sources would be counted too low."""
    random, found = np.random.default_rng(12), []
    reflex = Reflex({0: Sheddable("in", Shed(("out",), 100_000))}, 2, Tallies(), active=True)
    for epoch in range(6_000):
        rows = pa.RecordBatch.from_arrays([pa.array(np.ones(2))], schema=pa.schema([WEIGHT_FIELD]))
        kept = reflex.thin_again((0, 0), rows, np.arange(2 * epoch, 2 * epoch + 2), (int(ALL * random.uniform(0.3, 0.9)),))
        found.append(kept.rows.column(WEIGHT).to_numpy().sum())
    assert abs(np.mean(found) - 2) < 4 * np.std(found) / np.sqrt(len(found))


def test_what_cannot_be_estimated_says_why() -> None:
    source = ef.sources.generator(100, 4, rows=100)
    for text, why in (("min(value)", "outermost"), ("count(distinct key)", "no trace"), ("stddev(value)", "only count"), ("n", "write")):
        with pytest.raises(QueryError, match=why):
            ef.estimate(text)
    n = ef.estimate("count(*)")
    stream = drawn(ef.Dataflow("estimated"), source)
    with pytest.raises(QueryError, match="'in', which does not say what they stand for"):
        drawn(ef.Dataflow("estimated"), source, weights=False).group_by("key").agg(n=n)
    with pytest.raises(QueryError, match="'select' does not hand on '_w'"):
        stream.select("key", "value").group_by("key").agg(n=n)
    with pytest.raises(QueryError, match="is behind 'aggregate'.*first aggregate"):
        stream.group_by("key").agg("sum(_w) as _w").group_by("key").agg(n=n)
    with pytest.raises(QueryError, match="'most' is beside an estimate"):
        stream.group_by("key").agg(n=n, most="max(value)")
    with pytest.raises(QueryError, match="where sessions begin"):
        stream.group_by("key").session("1 second").agg(n=n)
    with pytest.raises(QueryError, match="has no name"):
        stream.group_by("key").agg(n)
    with pytest.raises(QueryError, match="two results 'n_error'"):
        stream.group_by("key").agg(n=n, n_error=n)


def test_what_is_behind_an_estimate_must_not_need_whole_windows() -> None:
    flow = ef.Dataflow("estimated")
    counted = drawn(flow, ef.sources.generator(100, 4, rows=100)).group_by("key").window("1 second").agg(n=ef.estimate("count(*)"))
    counted.to(ef.sinks.memory("out"), name="out", qos=QOS)
    planned = layout(flow.network, sites=2)
    assert planned.sheds["in"].windows is None and not any(planned.arcs[arc].producer == 0 for arc in planned.thins)
    counted.group_by("key").window("10 seconds").agg(n="max(n)").to(ef.sinks.memory("most"), name="most", qos=QOS)
    assert not layout(flow.network, sites=2).sheds
