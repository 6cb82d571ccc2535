"""Spark's dynamic allocation on a cluster of its own: an engine asks for the executors that its sites need, and keeps them."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import evenflow as ef
from evenflow.errors import ClusterError
from evenflow.world.spark.cluster.placement import executors
from evenflow.world.spark.cluster.session import embedded_session, stop_session

conf = {
    "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "3", "spark.dynamicAllocation.executorIdleTimeout": "2s",
}
spark = embedded_session("local-cluster[4,2,1024]", "allocated", conf)
try:
    assert executors(spark.sparkContext) == []
    try:
        ef.Engine(spark, sites=4).__enter__()
    except ClusterError as error:
        print(error)
    with ef.Engine(spark, sites=2) as engine:
        flow, sink = ef.Dataflow("counted"), ef.sinks.memory("counted")
        flow.source(ef.sources.generator(rate=1000, rows=4000, keys=8)).group_by("key").agg(n="count(*)").to(sink)
        run = engine.start(flow)
        assert run.await_termination(60)
        newest = {row["key"]: row["n"] for row in sink.rows().to_pylist()}
        print(sum(newest.values()), len({site["executor"] for site in run.progress()["sites"]}))
        print(len(engine.add_sites(1, 60)), len(executors(spark.sparkContext)))
finally:
    stop_session(spark)
"""


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(240)
def test_executors_that_are_not_there_come_when_sites_need_them() -> None:
    """There are none at first, and idle ones go after two seconds: those that have a site stay."""
    program = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=220, check=False
    )
    assert program.returncode == 0, program.stderr
    refused, counted, added = program.stdout.splitlines()
    assert "4 sites need 4 executors" in refused
    assert "spark.dynamicAllocation.maxExecutors=3 allows no more" in refused
    assert counted == "4000 2"
    assert added == "1 3"
