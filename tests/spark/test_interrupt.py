"""Ctrl-C at any time: the program ends soon, and no process of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evenflow.world.spark.cluster.processes import marked

MARK = "EVENFLOW_INTERRUPT_TEST"
HERE = Path(__file__).resolve()
LONG = pytest.mark.conformance


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("moment", [*(pytest.param(moment, marks=LONG) for moment in ("placing", "starting", "stopping")), "running"])
def test_nothing_is_left_after_an_interrupt(moment: str, tmp_path: Path) -> None:
    environment = os.environ | {MARK: str(tmp_path), "PYTHONPATH": str(HERE.parents[2] / "src")}
    with open(tmp_path / "err", "w+b") as err:
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE.with_name("interrupted.py")), moment, "2"],
            stdout=subprocess.PIPE, stderr=err, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline().decode().strip() == f"at {moment}", Path(err.name).read_text()
            child.send_signal(signal.SIGINT)
            assert child.wait(90) in (1, -signal.SIGINT, 130)
            assert "KeyboardInterrupt" in Path(err.name).read_text()
            assert marked(MARK, str(tmp_path)) == []
        finally:
            child.kill()
            for pid in marked(MARK, str(tmp_path)):
                os.kill(pid, signal.SIGKILL)
            if child.stdout is not None:
                child.stdout.close()
