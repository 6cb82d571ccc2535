"""A driver that is stopped for longer than its sites live without it, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evenflow.world.spark.cluster.processes import marked

MARK = "EVENFLOW_AWAY_TEST"
HERE = Path(__file__).resolve()
LEASE_S = 2.0
PROGRAM = """
import evenflow as ef
from evenflow.world.spark.cluster.session import embedded_session, stop_session
spark = embedded_session("local-cluster[2,2,1024]", "evenflow-away", sites_only=True)
try:
    flow = ef.Dataflow("away")
    said = []
    def write(epoch, batch):
        if not said:
            said.append(print("results come", flush=True))
    flow.source(ef.sources.generator(rate=1000, keys=8)).group_by("key").agg(n="count(*)").to(ef.sinks.callback(write))
    with ef.Engine(spark, sites=2, replicas=%(replicas)d, lease_s=%(lease_s)s) as engine:
        run = engine.start(flow)
        try:
            run.await_termination()
        except ef.errors.EvenflowError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
finally:
    stop_session(spark)
"""


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(240)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_driver_that_was_stopped_for_longer_than_the_lease_says_so(replicas: int, tmp_path: Path) -> None:
    environment = os.environ | {MARK: str(tmp_path), "PYTHONPATH": str(HERE.parents[2] / "src")}
    program = PROGRAM % {"replicas": replicas, "lease_s": LEASE_S}
    with open(tmp_path / "err", "w+b") as err:
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program],
            stdout=subprocess.PIPE, stderr=err, env=environment, start_new_session=True, text=True,
        )  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "results come", Path(err.name).read_text()
            child.send_signal(signal.SIGSTOP)
            threading.Event().wait(3 * LEASE_S)  # Sites look at their lease once a second.
            child.send_signal(signal.SIGCONT)
            line = child.stdout.readline()
            assert line.startswith("DriverAway: the driver was away for ") and "longer than lease_s (2 s)" in line, line
            assert child.wait(90) == 0
        finally:
            child.kill()
            for pid in marked(MARK, str(tmp_path)):
                os.kill(pid, signal.SIGKILL)
            if child.stdout is not None:
                child.stdout.close()
