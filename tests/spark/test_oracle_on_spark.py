"""Whole networks of the oracle tests on real executors, over real packets, against batch Spark SQL on the same cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from tests.oracle.running import assert_same_rows, newest_per_key
from tests.oracle.sessions_sql import statistics_sql
from tests.oracle.test_networks import PACKETS
from tests.oracle.test_sessions import EXAMPLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
NETWORKS = {query.name: query for query in PACKETS}
OUT = ef.sinks.memory("out")
"""The sink of all networks: a run begins by emptying it."""


def result(engine: ef.Engine, flow: ef.Dataflow) -> pa.Table:
    """What the sink has when the sources have ended."""
    run = engine.start(flow)
    try:
        assert run.await_termination(120), f"{run.progress()}"
        return OUT.rows()
    finally:
        run.stop()


@pytest.mark.parametrize("name", ["running", "row windows"])
def test_replayed_packets(spark: Any, engine: ef.Engine, packets: Path, name: str) -> None:
    asked = NETWORKS[name]
    spark.read.parquet(str(packets)).createOrReplaceTempView("t")
    got = result(engine, asked.build(ef.sources.replay(str(packets), speed=None)))
    assert_same_rows(newest_per_key(got, asked.keys) if asked.keys else got, spark.sql(asked.sql))


@pytest.mark.parametrize("way", ["replayed", "pushed"])
def test_the_session_monitor(spark: Any, engine: ef.Engine, packets: Path, way: str) -> None:
    """pushed: Spark's tasks read the file and push its rows, which event time brings back into their order."""
    frame = spark.read.parquet(str(packets))
    frame.createOrReplaceTempView("packets")
    flow = ef.Dataflow("sessions")
    rows = flow.from_spark(frame) if way == "pushed" else flow.source(ef.sources.replay(str(packets), speed=None))
    EXAMPLE.build(flow, rows).to(OUT, name="out")
    got = result(engine, flow)
    assert got.num_rows > 100
    assert_same_rows(got, spark.sql(statistics_sql(EXAMPLE.APPLICATIONS)))
