"""Nexmark on real executors gives what batch Spark SQL gives on the same events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evenflow as ef
from evenflow import nexmark
from tests.nexmark.dataflows import create_views, streams
from tests.oracle.running import assert_same_rows, newest_per_key

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = {"events": 20_000, "event_rate": 200, "disorder": 100, "seed": 4}


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["q4", "q5", "q7", "q11", "q15", "q19"])
def test_a_query_on_executors_gives_what_batch_spark_gives(spark: Any, engine: ef.Engine, named: Callable[[str], str], name: str) -> None:
    query = nexmark.query(name)
    flow = ef.Dataflow(named(name))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    create_views(spark, query.inputs, **EVENTS)
    out = ef.sinks.memory(named("out"))
    ef.sql(query.sql, streams(flow, query, partitions=2, **EVENTS)).to(out)
    assert engine.start(flow).await_termination(120)
    got = out.rows()
    assert_same_rows(newest_per_key(got, query.newest) if query.newest else got, spark.sql(query.sql))
