"""The session monitor of examples/network_sessions.py, whole, on real packets, against batch Spark SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import evenflow as ef
from evenflow.world.flow_file import load_module
from tests.oracle.running import CUTS, Cut, assert_same_rows, run
from tests.oracle.sessions_sql import sessions_sql, statistics_sql

pytestmark = pytest.mark.oracle

EXAMPLE = load_module(Path(__file__).resolve().parents[2] / "examples" / "network_sessions.py")


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_statistics(spark: Any, packets: Path, cut: Cut) -> None:
    def build(source: Any) -> ef.Dataflow:
        flow = ef.Dataflow("sessions")
        EXAMPLE.build(flow, flow.source(source, name="packets")).to(ef.sinks.memory("out"), name="out")
        return flow

    spark.read.parquet(str(packets)).createOrReplaceTempView("packets")
    got = run(build, pyarrow.parquet.read_table(packets), cut)
    assert_same_rows(got, spark.sql(statistics_sql(EXAMPLE.APPLICATIONS)))
    assert got.num_rows > 100


def test_sessions(spark: Any, packets: Path) -> None:
    def build(source: Any) -> ef.Dataflow:
        flow = ef.Dataflow("sessions")
        tcp = flow.source(source, name="packets").with_watermark("ts", "10 seconds").where("proto = 6")
        tcp.key_by("src", "dst").process(EXAMPLE.SessionTracker()).to(ef.sinks.memory("out"), name="out")
        return flow

    spark.read.parquet(str(packets)).createOrReplaceTempView("packets")
    got = run(build, pyarrow.parquet.read_table(packets), CUTS[1])
    assert_same_rows(got, spark.sql(sessions_sql(EXAMPLE.APPLICATIONS)))
