"""Signals that end a program, at any time: it ends soon, says why, and no process and no file of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.world.spark.cluster.placement import free_slots
from evenflow.world.spark.cluster.processes import marked

MARK = "EVENFLOW_INTERRUPT_TEST"
HERE = Path(__file__).resolve()
SOON_S = 90
MOMENTS = ("launching", "placing", "starting", "running", "stopping")
"""Of tests/spark/interrupted.py."""
DELAYS_S = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.6, 1.2)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.conformance
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("moment", "number"), [("placing", signal.SIGINT), ("running", signal.SIGHUP)])
def test_nothing_is_left_after_an_interrupt(moment: str, number: signal.Signals, tmp_path: Path) -> None:
    end_at(moment, 0.1 if moment == "placing" else 0.0, number, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.timeout(240)
@pytest.mark.parametrize("delay_s", DELAYS_S)
@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_whenever_it_comes(moment: str, delay_s: float, tmp_path: Path) -> None:
    """Every signal has its turn at every moment."""
    end_at(moment, delay_s, SIGNALS[(MOMENTS.index(moment) + DELAYS_S.index(delay_s)) % len(SIGNALS)], tmp_path)


def end_at(moment: str, delay_s: float, number: signal.Signals, tmp_path: Path) -> None:
    files = tmp_path / "temporary"
    files.mkdir()
    environment = os.environ | {MARK: str(tmp_path), "PYTHONPATH": str(HERE.parents[2] / "src"), "TMPDIR": str(files)}
    environment.pop("XDG_RUNTIME_DIR", None)
    with open(tmp_path / "err", "w+b") as err:
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE.with_name("interrupted.py")), moment, "2"],
            stdout=subprocess.PIPE, stderr=err, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline().decode().strip() == f"at {moment}", Path(err.name).read_text()
            threading.Event().wait(delay_s)
            child.send_signal(number)
            assert child.wait(SOON_S) in (1, -signal.SIGINT, 130)
            assert "KeyboardInterrupt" in Path(err.name).read_text().splitlines()[-1]
            assert marked(MARK, str(tmp_path)) == []
            assert [path.name for path in files.rglob("*") if path.name.startswith("evenflow-session-") or path.suffix == ".json"] == []
        finally:
            child.kill()
            for pid in marked(MARK, str(tmp_path)):
                os.kill(pid, signal.SIGKILL)
            if child.stdout is not None:
                child.stdout.close()


def enter(engine: ef.Engine, delay_s: float) -> None:
    """Ctrl-C comes so long after its begin."""
    pressed = threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    with engine:
        pressed.join()
        threading.Event().wait(60)


@pytest.mark.spark
@pytest.mark.conformance
@pytest.mark.timeout(240)
def test_sites_that_are_being_placed_go_when_somebody_presses_ctrl_c(spark: Any) -> None:
    """At several moments of it, in one program; the next engine finds every slot free."""
    slots = free_slots(spark.sparkContext, 0)
    tracker, passing = spark.sparkContext.statusTracker(), threading.Event()
    before = set(tracker.getActiveJobsIds())  # Of an engine that other tests share.
    for delay_s in (0.01, 0.1, 0.3, 0.6):
        with pytest.raises(KeyboardInterrupt):
            enter(ef.Engine(spark, sites=2), delay_s)
        left = set(tracker.getActiveJobsIds()) - before
        for _ in range(100):  # Spark says a little later that a cancelled job is over.
            if not left:
                break
            passing.wait(0.1)
            left = set(tracker.getActiveJobsIds()) - before
        assert not left
    with ef.Engine(spark, sites=2):
        assert free_slots(spark.sparkContext, 2) == slots - 2
