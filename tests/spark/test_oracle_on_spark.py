"""Whole networks of the oracle tests on real executors, over real packets, against batch Spark SQL on the same cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from tests.drawn import one_in
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


@pytest.mark.parametrize("name", one_in(2, ["row windows", "running"]))
def test_replayed_packets(spark: Any, engine: ef.Engine, packets: Path, name: str) -> None:
    asked = NETWORKS[name]
    spark.read.parquet(str(packets)).createOrReplaceTempView("t")
    got = result(engine, asked.build(ef.sources.replay(str(packets), speed=None)))
    assert_same_rows(newest_per_key(got, asked.keys) if asked.keys else got, spark.sql(asked.sql))


def test_a_join_of_two_streams_and_a_table(spark: Any, engine: ef.Engine, packets: Path) -> None:
    """Requests and the answers to them within a second, with the name of the port from a DataFrame of Spark."""
    spark.read.parquet(str(packets)).createOrReplaceTempView("t")
    spark.sql("SELECT CAST(53 AS INT) port, 'dns' name").createOrReplaceTempView("n")
    flow = ef.Dataflow("joins")
    sides = []
    for name, condition in (("there", "proto = 17 and dport = 53"), ("back", "proto = 17 and sport = 53")):
        source = flow.source(ef.sources.replay(str(packets), speed=None), name=name)
        sides.append(source.with_watermark("ts", "10 seconds").where(condition).drop("proto"))
    near = "r.ts between l.ts and l.ts + interval 1 second"
    same = "l.src = r.dst and l.dst = r.src and l.sport = r.dport"
    joined = sides[0].join(sides[1], how="left", condition=f"{same} and {near}", suffix="_back").with_columns(port="cast(dport as int)")
    joined.join(spark.table("n"), "port").select("ts", "src", "sport", "length", "length_back", "name").to(OUT, name="out")
    got = result(engine, flow)
    assert got.num_rows > 100
    sql = f"""SELECT l.ts, l.src, l.sport, l.length, r.length length_back, name
              FROM (SELECT * FROM t WHERE proto = 17 AND dport = 53) l
              LEFT JOIN (SELECT * FROM t WHERE proto = 17 AND sport = 53) r ON {same} AND {near}
              JOIN n ON l.dport = n.port"""
    assert_same_rows(got, spark.sql(sql))


@pytest.mark.parametrize("way", one_in(2, ["pushed", "replayed"]))
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
