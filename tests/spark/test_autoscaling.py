"""Sites of an engine come and go by themselves, on a cluster of its own: executors are asked for, and given back."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import evenflow as ef
from evenflow.errors import ClusterError, OptionError

PROGRAM = """
import sys, time
import evenflow as ef
from evenflow.bench.events import VaryingEvents
from evenflow.bench.slowed import RowCost
from evenflow.bench.scaling import Costly
from evenflow.policy.scaling import Times
from evenflow.world.spark.cluster.placement import executors
from evenflow.world.spark.cluster.session import embedded_session, stop_session

conf = {
    "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0", "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "3", "spark.dynamicAllocation.executorIdleTimeout": "2s",
}
spark = embedded_session("local-cluster[4,2,1024]", "autoscaled", conf)
times = Times(past_s=10.0, calm_s=5.0, start_s=5.0)
steps = ((0, 100), (4_000_000, 500), (16_000_000, 60))
try:
    with ef.Engine(spark, sites=1, autoscale=(1, 4), autoscale_times=times, place_timeout_s=30.0) as engine:
        assert len(executors(spark.sparkContext)) == 1
        rows = 100 * 4 + 500 * 12 + 60 * 30
        source = VaryingEvents(1, rows, 64, count=4, begin_us=time.time_ns() // 1000 + 3_000_000, steps=steps)
        flow, sink = ef.Dataflow("scaled"), ef.sinks.memory("scaled")
        flow.source(source).key_by("key").process(Costly(RowCost(4000.0, 1.0)), name="costly").to(sink)
        run = engine.start(flow)
        most, least_after = 0, 9
        while not run.await_termination(0.5):
            there = len(engine.sites_now)
            most = max(most, there)
            least_after = there if there < least_after or there == most else least_after
        kinds = [event["kind"] for event in run.events()]
        print(most, len(engine.sites_now), sink.rows().num_rows == rows, kinds.count("scaling"), "scaling_waits" in kinds)
        print([event["text"] for event in run.events() if event["kind"].startswith("scaling")])
        print(max((move["stall_ms"] for move in run.moves() if move["state"] == "done"), default=0.0))
finally:
    stop_session(spark)
"""


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(240)
def test_sites_come_and_go_with_the_load() -> None:
    """Four sites would be wanted and three executors can be had: it goes on with three, says so, and comes back to one."""
    program = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=220, check=False
    )
    assert program.returncode == 0, program.stderr
    most, at_last, whole, scalings, waits = program.stdout.splitlines()[0].split()
    assert (most, whole, waits) == ("3", "True", "True"), program.stdout
    assert int(at_last) == 1 and 2 <= int(scalings) <= 4, program.stdout


@pytest.mark.parametrize("given", [(3, 2), (0, 2), (1,), 4, "2-8", (1, 2, 3)])
def test_bounds_that_are_none(given: object) -> None:
    with pytest.raises(OptionError, match="fewest and the most"):
        ef.EngineOptions(autoscale=given)  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_cluster_that_is_too_small_for_the_most_is_an_error(spark: object) -> None:
    with pytest.raises(ClusterError, match="99 sites need 99 executors"):
        ef.Engine(spark, sites=2, autoscale=(1, 99))  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="replicas=2"):
        ef.Engine(spark, sites=2, replicas=2, autoscale=(1, 2))  # type: ignore[arg-type]
