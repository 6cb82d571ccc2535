"""The commands on real executors: the demo with its kill, a failing box, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from evenflow.world.spark.cluster.processes import marked

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MARK = "EVENFLOW_TEST"
FAILING = """\
import evenflow as ef

class Broken(ef.Processor):
    output = "src string"

    def process(self, key, rows, state):
        raise ZeroDivisionError("said by the user's code")

def dataflow():
    flow = ef.Dataflow("failing")
    packets = flow.source(ef.sources.packets(rate=1000), name="packets")
    packets.key_by("src").process(Broken()).name("broken").to(ef.sinks.discard())
    return flow
"""

ENDLESS = """\
import evenflow as ef

def dataflow():
    flow = ef.Dataflow("endless")
    flow.source(ef.sources.packets(rate=1000), name="packets").to(ef.sinks.discard())
    return flow
"""


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


def start(mark: str, *arguments: str, executors: int = 2) -> subprocess.Popen[str]:
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "evenflow", *arguments, "--master", f"local-cluster[{executors},2,1024]", "--sites", "2", "--json"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], mark: str, code: int) -> tuple[dict[str, Any], str]:
    out, err = process.communicate(timeout=280)
    assert process.returncode == code, err
    assert marked(MARK, mark) == [], "a process of the session is left"
    assert len(out.splitlines()) == 1, f"standard output must be one object and nothing else: {out!r}"
    return json.loads(out), err


def test_the_demo_kills_an_executor_and_reports_what_came_of_it(mark: str, tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    process = start(mark, "demo", "--seconds", "10", "--kill-after", "4", "--rate", "4000", "--picture", str(picture), executors=3)
    found, err = finish(process, mark, 0)
    assert found["rows_in"] > 5_000 and found["rows_out"] > 0 and not found["interrupted"]
    assert 0 < found["p50_ms"] <= found["p99_ms"] and found["seconds"] >= 4
    assert len({site["executor"] for site in found["per_site"]}) == found["sites"]
    assert (found["replicas"], found["redundancy"]) == (2, 2)
    kill = found["kill"]
    assert kill["gap_ms"] > 0 and kill["take_over_ms"] > 0 and kill["redundancy_s"] > 0
    assert {"site_lost", "take_over", "copy_live", "redundancy"} <= {event["kind"] for event in kill["events"]}
    assert kill["site"] not in {site["site"] for site in found["per_site"]}, "an index is never used twice"
    assert found["compared"]["rows"] > 0 and (found["compared"]["lost"], found["compared"]["repeated"], found["compared"]["wrong"]) == (
        0,
        0,
        0,
    )
    for wanted in (
        "kill -9 of process",
        "take_over: ",
        "redundancy: every partition",
        f"Killed executor {kill['executor']}",
        "Rows lost 0",
    ):
        assert wanted in err, f"{wanted} is missing in\n{err}"
    assert "network_sessions" in picture.read_text() and "what&#160;happened" in picture.read_text()


@pytest.mark.conformance
def test_everything_is_killed_and_the_next_driver_goes_on(mark: str) -> None:
    process = start(mark, "demo", "--lose-all", "--seconds", "6", "--rate", "1000")
    found, err = finish(process, mark, 0)
    assert found["lost"] == "all" and found["restart_s"] > 0 and found["journal_entries"] > 2
    compared = found["compared"]
    assert compared["rows"] > 1_000 and (compared["lost"], compared["repeated"], compared["wrong"]) == (0, 0, 0)
    assert "kill -9 of all executors, of Spark's JVM and of the driver" in err


@pytest.mark.conformance
def test_a_killed_jvm_is_code_3_in_a_sentence_and_nothing_is_left(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "endless_flow.py"
    path.write_text(ENDLESS)
    process = start(mark, "run", str(path))
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(r" in [1-9]", line):
            break
    [jvm] = [pid for pid in marked(MARK, mark) if child_of(process.pid, pid) and Path(f"/proc/{pid}/comm").read_text() == "java\n"]
    os.kill(jvm, signal.SIGKILL)
    found, err = finish(process, mark, 3)
    assert found["error"]["type"] == "PartitionsLost", found
    assert "unexpected error" not in err and "py4j" not in err
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith("evenflow-session-") or path.suffix == ".json"] == []


def child_of(parent: int, pid: int) -> bool:
    return f"PPid:\t{parent}\n" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.conformance
def test_a_box_that_raises_is_code_1_with_its_name_and_the_users_traceback(mark: str, tmp_path: Path) -> None:
    path = tmp_path / "failing_flow.py"
    path.write_text(FAILING)
    found, err = finish(start(mark, "run", str(path)), mark, 1)
    error = found["error"]
    assert error["type"] == "BoxFailed" and error["box"] == "broken" and error["epoch"] >= 1
    assert "said by the user's code" in error["user_traceback"] and "in process" in error["user_traceback"]
    assert "said by the user's code" in err and "running.py" not in err, "the traceback of Evenflow itself helps nobody"


@pytest.mark.conformance
def test_ctrl_c_while_it_runs_is_code_130_with_a_report(mark: str) -> None:
    process = start(mark, "demo", "--seconds", "60", "--rate", "4000", "--spares", "0", "--no-kill")
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(r" in [1-9]", line):
            break
    process.send_signal(signal.SIGINT)
    found, _ = finish(process, mark, 130)
    assert found["interrupted"] and found["rows_in"] > 0 and found["kill"] is None and found["compared"] is None
