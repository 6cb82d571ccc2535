"""Exit codes, the one error message, and the one JSON object."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import object_of, run

from evenflow.cli.output import Output, error_object, exit_code_of
from evenflow.errors import BoxFailed, ClusterError, SinkError, SourceError, UnknownColumn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "network_sessions.py"

NETWORK = """\
import pyarrow as pa
import evenflow as ef

def dataflow(*, column="x", loud: bool = False):
    if loud:
        print("said by the user's file")
    flow = ef.Dataflow("small")
    rows = flow.source(ef.sources.memory(pa.RecordBatch.from_pydict({"k": ["a"], "x": [1]})), name="rows")
    rows.where(f"{column} > 0").group_by("k").agg(total="sum(x)").to(ef.sinks.discard())
    return flow
"""


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "small_network.py"
    path.write_text(NETWORK)
    return str(path)


def test_plan_prints_boxes_and_segments(network: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", network) == 0
    out = capfd.readouterr().out
    assert "aggregate" in out and "segment 1" in out and "256 partitions" in out


def test_plan_as_json_keeps_its_keys(network: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", network, "--json") == 0
    found = object_of(capfd.readouterr().out)
    assert set(found) == {"dataflow", "boxes", "segments", "moved_whole", "units", "protected", "never_shed", "thins"}
    assert {box["kind"] for box in found["boxes"]} >= {"source", "filter", "aggregate", "sink"}
    assert set(found["boxes"][0]) == {"name", "kind", "inputs", "schema", "event_time"}
    assert set(found["segments"][0]) == {"id", "name", "kind", "partitions", "producers", "steps", "user_code"}


def test_plan_draws(network: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", network, "--svg", str(tmp_path / "network.svg")) == 0
    assert (tmp_path / "network.svg").read_text().startswith("<svg")


def test_plan_of_the_example(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", str(EXAMPLE), "--json") == 0
    assert object_of(capfd.readouterr().out)["dataflow"] == "network_sessions"


def test_what_a_users_file_prints_stays_beside_the_object(network: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", network, "--json", "--loud") == 0
    caught = capfd.readouterr()
    assert object_of(caught.out) and "said by the user's file" in caught.err


def test_what_a_child_process_prints_stays_beside_the_object(capfd: pytest.CaptureFixture[str]) -> None:
    with Output(as_json=True) as output:
        os.system("echo from a child")
        output.report({"a": 1})
    caught = capfd.readouterr()
    assert object_of(caught.out) == {"a": 1} and "from a child" in caught.err


def test_a_query_error_is_one_message_and_code_2(network: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", network, "--column", "nowhere") == 2
    caught = capfd.readouterr()
    assert "nowhere" in caught.err and "Traceback" not in caught.err and caught.out == ""


def test_a_query_error_as_json(network: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("run", network, "--column", "nowhere", "--json") == 2, "a wrong query must show before Spark is started"
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "UnknownColumn" and error["exit_code"] == 2 and "nowhere" in error["message"]


@pytest.mark.parametrize(
    "command",
    [
        ["demo", "--seconds", "soon"], ["demo", "--sites", "0"], ["demo", "--nothing"], ["bench", "speed"],
        ["demo", "--seconds", "5", "--kill-after", "6"], ["demo", "--sites", "1"], ["run", "f.py", "--replicas", "5"],
    ],
)  # fmt: skip
def test_wrong_usage_is_code_2(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*command) == 2
    caught = capfd.readouterr()
    assert "error:" in caught.err and "--help" in caught.err and caught.out == ""
    assert run(*command, "--json") == 2
    assert object_of(capfd.readouterr().out)["error"]["type"] == "UsageError"


def test_an_unknown_nexmark_query_is_an_error_before_spark_is_started(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "nexmark", "--queries", "q3, q99", "--json") == 2
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "QueryError" and "'q99'; they are q0 to q22" in error["message"]


def test_no_query_of_the_corpus_is_an_error_before_spark_is_started(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    assert run("bench", "corpus", "--only", "sausages", "--json") == 2
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "QueryError" and "'sausages'" in error["message"] and "window joins" in error["message"]


@pytest.mark.parametrize(("differs", "code"), [([], 0), ([{"query": "dates: parsed", "reason": "2 rows instead of 3"}], 1)])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_corpus_that_differs_is_code_1(
    as_json: bool, differs: list[Any], code: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    made = {
        "benchmark": "corpus",
        "quick": False,
        "queries": 1,
        "ported": 1,
        "equal": 1 - len(differs),
        "refused": [],
        "different": differs,
    }
    asked: list[str] = []

    def told(queries: Any, say: Any) -> dict[str, Any]:
        asked.extend(query.name for query in queries)
        return dict(made)

    monkeypatch.setattr("evenflow.bench.corpus.running.run", told)
    assert run("bench", "corpus", "--only", "Dates: parsed by", *(["--json"] if as_json else [])) == code
    assert asked == ["dates: parsed by default"]
    out = capfd.readouterr().out
    if as_json:
        assert object_of(out)["command"] == "evenflow bench corpus --only 'Dates: parsed by'"
    else:
        assert "ported" in out


@pytest.mark.parametrize(("only", "written"), [((), ""), (("q6",), " --only q6"), (("q6", "q18"), " --only q6 --only q18")])
def test_a_record_has_the_command_that_makes_it(
    only: tuple[str, ...], written: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    made: dict[str, Any] = {"benchmark": "tpch", "quick": False, "queries": [], "equal": 0}
    monkeypatch.setattr("evenflow.bench.tpch.running.run", lambda only, scale, say: dict(made))
    assert run("bench", "tpch", *(word for name in only for word in ("--only", name)), "--json") == 0
    assert object_of(capfd.readouterr().out)["command"] == f"evenflow bench tpch{written}"


def test_an_unreachable_master_is_code_3_within_seconds(network: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("run", network, "--master", "spark://127.0.0.1:1", "--json") == 3
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "ClusterError" and "127.0.0.1:1" in error["message"] and "local-cluster" in error["message"]


def test_a_report_that_is_no_json_is_an_error_and_still_one_object(
    network: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A bug, but whoever reads standard output gets what is promised."""
    monkeypatch.setattr("evenflow.cli.plan.described", lambda flow, cut: {"rows": float("nan")})
    assert run("plan", network, "--json") == 1
    said = capfd.readouterr()
    assert object_of(said.out)["error"]["type"] == "ValueError" and "unexpected error" in said.err


def test_an_unwritable_picture_is_an_error(network: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("plan", network, "--svg", str(tmp_path / "missing" / "x.svg")) != 0
    assert "cannot write" in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["demo"],
        ["run"],
        ["plan"],
        ["bench"],
        ["bench", "throughput"],
        ["bench", "latency"],
        ["bench", "cost"],
        ["bench", "nexmark"],
        ["bench", "corpus"],
    ],
    ids=" ".join,
)
def test_every_command_explains_itself(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*command, "--help") == 0
    out = capfd.readouterr().out
    assert "Usage" in out and (command == ["bench"] or "Example" in out)


def test_an_interrupt_is_code_130_and_an_object(network: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, arguments: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evenflow.world.flow_file.load", interrupted)
    assert run("plan", network, "--json") == 130
    caught = capfd.readouterr()
    assert object_of(caught.out)["error"]["type"] == "Interrupted" and "interrupted" in caught.err


def test_help_needs_no_engine() -> None:
    """Whoever asks for help, or writes a wrong option, does not wait for what only a run needs."""
    heavy = ("numba", "numpy", "pyarrow", "pyspark", "sqlglot")
    program = f"import sys, evenflow.cli.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capfd.readouterr().out.startswith("evenflow 0.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownColumn("x"), 2), (ClusterError("x"), 3), (SourceError("x"), 1), (SinkError("x"), 1), (BoxFailed("b", 3, "trace"), 1),
        (KeyboardInterrupt(), 130), (RuntimeError("x"), 1),
    ],
)  # fmt: skip
def test_the_exit_code_of_an_error(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code == error_object(error)["exit_code"]


def test_a_failed_box_says_where_and_shows_the_users_traceback() -> None:
    described = error_object(BoxFailed("sessions", 17, "ZeroDivisionError: division by zero"))
    assert (described["box"], described["epoch"]) == ("sessions", 17) and "ZeroDivisionError" in described["user_traceback"]


def test_an_object_that_standard_output_does_not_take_is_no_good_end(network: str) -> None:
    """A script that reads it found nothing, or a part, beside exit code 0 or a traceback."""
    with open("/dev/full", "w") as full:
        program = f"from evenflow.cli.app import main; main(['plan', {network!r}, '--json'])"
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: standard output does not take the object: No space left on device" in done.stderr
