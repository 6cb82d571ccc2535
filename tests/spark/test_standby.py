"""A driver stands by on executors: the one that runs is killed, JVM and all; and Ctrl-C ends the command that waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evenflow.world.spark.cluster.processes import marked
from tests.restarting import ROOT, Driver, Setting, compare, wait_until, written

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(600)]
MARK = "EVENFLOW_STANDBY_TEST"


def test_a_cluster_that_is_killed_is_taken_over_by_another_one(tmp_path: Path) -> None:
    """Goal: every row once, though nobody starts anything. Method: two clusters; kill -9 of driver, JVM and executors of the one that
    runs, when some rows are in the table."""
    setting = Setting(str(tmp_path), spark=True, endless=True, rate=500, checkpoint_s=2.0)
    first = Driver(setting)
    standby = None
    try:
        assert first.line() == "running 1"
        standby = Driver(replace(setting, standby=True))
        assert standby.line() == "waits 1"
        wait_until(lambda: len(written(setting)) > 1_000, 120, "1,000 rows are in the table")
        first.kill()
        there = len(written(setting))
        assert standby.line() == "running 2"
        wait_until(lambda: len(written(setting)) > there + 1_000, 120, "the other one puts out rows")
        assert standby.drain() == "ended"
        compare(setting)
    finally:
        first.end()
        if standby is not None:
            standby.end()


def test_ctrl_c_ends_the_command_that_waits_and_nothing_is_left(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(
        "import evenflow as ef\n"
        "def dataflow():\n"
        "    flow = ef.Dataflow('waited')\n"
        "    flow.source(ef.sources.generator(rate=10)).to(ef.sinks.discard())\n"
        "    return flow\n"
    )
    location = tmp_path / "location"
    environment = os.environ | {MARK: str(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from evenflow.cli.app import main; main()"
    words = ["run", str(flow), "--sites", "2", "--checkpoint-location", str(location), "--standby", "--json"]
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None and child.stderr is not None
        assert any(line.startswith("stands by: nobody has begun") for line in iter(child.stderr.readline, "")), "it has ended before"
        os.kill(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=120)
        assert child.returncode == 130, err
        assert json.loads(out)["error"]["type"] == "Interrupted"
        assert marked(MARK, str(tmp_path)) == []
        assert not location.exists()
    finally:
        child.kill()
        for pid in marked(MARK, str(tmp_path)):
            os.kill(pid, signal.SIGKILL)
        child.communicate()
