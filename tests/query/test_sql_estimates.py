"""estimate(...) and estimate_error(...) in SQL: the sums that `ef.estimate` draws."""

from __future__ import annotations

from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld

QOS = ef.qos(latency=[("100 ms", 1), ("1 s", 0)])
BY_KEY = "FROM s WHERE s.value > 100 GROUP BY key, window(ts, '1 second')"


def stream(weights: bool = True) -> ef.Stream:
    source = ef.sources.generator(None, 4, rows=400, partitions=1, seed=5)
    return ef.Dataflow("estimated").source(source, name="in", weights=weights).with_watermark("ts", "0 seconds")


def rows(found: ef.Stream) -> list[tuple[Any, ...]]:
    found.to(ef.sinks.memory("out"), name="out", qos=QOS)
    world = SimWorld(layout(found.flow.network, sites=1, partitions=2), sites=1, replicas=1, seed=1)
    world.run_until_quiet()
    return sorted(zip(*world.output("out").to_pydict().values(), strict=True))


def test_estimates_of_rows_that_are_all_there_are_the_totals() -> None:
    words = "estimate(count(*)), estimate_error(count(*)), estimate(sum(value)), estimate(avg(value)), estimate_error(AVG(s.value))"
    found = ef.sql(f"SELECT key, {words} {BY_KEY} HAVING estimate(count(*)) > 1", {"s": stream()})
    [box] = found.flow.network.of_kind("aggregate")
    assert box.params["sampled"] and len(box.params["calls"]) == 7
    exact = rows(
        ef.sql(f"SELECT key, count(*), 0.0D AS a, double(sum(value)), avg(value), 0.0D AS b {BY_KEY} HAVING count(*) > 1", {"s": stream()})
    )
    assert rows(found) == [pytest.approx(row, rel=1e-12) for row in exact] and len(exact) > 3


def test_sources_of_scripts_have_weights_on_demand() -> None:
    made = "CREATE TEMPORARY VIEW s USING generator OPTIONS (rate '100', keys '4', rows '100', weights 'true')"
    found = ef.sql(f"{made}; SELECT key, estimate(count(*)) AS n FROM s GROUP BY key")
    found.to(ef.sinks.discard(), name="out", qos=QOS)
    assert [shed.weighs for shed in layout(found.flow.network, sites=2).sheds.values()] == [True]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("estimate(count(*)), max(value) FROM s", r"MAX\(value\) is beside an estimate"),
        ("estimate(count(*)) FROM s GROUP BY key HAVING count(*) > 1", r"COUNT\(\*\) is beside an estimate"),
        ("estimate(min(value)) FROM s", "outermost value"),
        ("estimate_error(count(DISTINCT value)) FROM s", "leaves no trace"),
        ("estimate(count(*)) FILTER (WHERE value > 1) FROM s", "goes into WHERE"),
        ("estimate(count(*), sum(value)) FROM s", "takes one count"),
        ("estimate(count(*)) FROM (SELECT key FROM s)", "needs the column _w.*every SELECT between has to name it"),
        ("estimate(count(*)) FROM (SELECT key, sum(_w) AS _w FROM s GROUP BY key, window(ts, '1 second'))", "only the first aggregate"),
        ("estimate(count(*)) FROM s GROUP BY key, session_window(ts, '1 second')", "where sessions begin"),
    ],
)
def test_what_cannot_be_estimated_says_why_and_where(words: str, why: str) -> None:
    with pytest.raises(QueryError, match=f"line 1, column .*{why}"):
        ef.sql(f"SELECT {words}", {"s": stream()})


def test_a_source_without_weights_and_a_function_of_that_name() -> None:
    with pytest.raises(QueryError, match=r"needs the column _w.*weights=True"):
        ef.sql("SELECT estimate(count(*)) FROM s", {"s": stream(weights=False)})
    mine = ef.sql("SELECT estimate(count(*)) AS n FROM s", {"s": stream()}, functions={"estimate": ef.udf(lambda n: n, "bigint")})
    assert not mine.flow.network.of_kind("aggregate")[0].params.get("sampled")
