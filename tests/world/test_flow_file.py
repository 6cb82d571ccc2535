"""Options of the command line become arguments of the user's dataflow()."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenflow.cli.output import exit_code_of
from evenflow.errors import FileFailed, QueryError
from evenflow.world.flow_file import load

FLOW = """\
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
import evenflow as ef

@dataclass
class Kept:  # A dataclass looks for its module while it is made.
    x: int

def dataflow(*, path: Path, rate: int = 5, share: float = 0.5, fast: bool = False, mode: Literal["a", "b"] = "a",
             label: str | None = None, limit: int | None = None, spark=None):
    flow = ef.Dataflow("given")
    flow.given = dict(path=path, rate=rate, share=share, fast=fast, mode=mode, label=label, limit=limit, spark=spark)
    return flow
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "given_flow.py"
    path.write_text(FLOW)
    return path


def test_options_are_converted_by_their_annotations(file: Path) -> None:
    words = ["--path", "x.parquet", "--rate=1_000", "--share", "0.25", "--fast", "--mode", "b", "--limit", "7", "--label", "--odd"]
    given = load(file, words).build().given
    assert given == {
        "path": Path("x.parquet"), "rate": 1000, "share": 0.25, "fast": True, "mode": "b", "label": "--odd", "limit": 7, "spark": None,
    }  # fmt: skip


@pytest.mark.parametrize(("words", "fast"), [(["--fast", "no"], False), (["--no-fast"], False), (["--fast=true"], True), ([], False)])
def test_a_flag_can_be_said_in_every_usual_way(file: Path, words: list[str], fast: bool) -> None:
    assert load(file, ["--path", "x", *words]).build().given["fast"] is fast


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --path"),
        (["--path", "x", "--speed", "3"], "no option --speed; its options are --path, --rate"),
        (["--path", "x", "--rate", "many"], "--rate many is not int"),
        (["--path", "x", "--mode", "c"], "--mode c is not"),
        (["--path", "x", "--rate"], "--rate needs a value"),
        (["--path", "x", "stray"], "unexpected argument 'stray'"),
        (["--path", "x", "--spark", "y"], "no option --spark"),
    ],
)
def test_a_wrong_option_says_what_is_right(file: Path, words: list[str], message: str) -> None:
    with pytest.raises(QueryError, match=message.replace("(", r"\(")):
        load(file, words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no function dataflow"),
        ("def dataflow(:\n", "line 1"),
        ("def dataflow(): return 3\n", "returned int"),
    ],
)
def test_a_file_without_a_dataflow_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong_flow.py"
    path.write_text(text)
    with pytest.raises(QueryError, match=message):
        load(path, []).build()


def test_the_session_is_given_to_those_that_take_one(tmp_path: Path) -> None:
    path = tmp_path / "spark_flow.py"
    path.write_text(FLOW.replace("spark=None", "spark").replace("path: Path, ", "path: Path = Path('x'), "))
    flow = load(path, [])
    assert flow.needs_spark and flow.build("a session").given["spark"] == "a session"


def test_classes_of_the_file_travel_by_value(tmp_path: Path) -> None:
    path = tmp_path / "travelling_flow.py"
    path.write_text(FLOW)
    flow = load(path, ["--path", "x"])
    from pyspark import cloudpickle

    assert b"looks for its module" not in cloudpickle.dumps(flow.function.__globals__["Kept"])
    pickled = cloudpickle.dumps(flow.function.__globals__["Kept"])
    assert len(pickled) > 200, "a class by reference is a few bytes: its module's name and its own"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def dataflow():\n    return {}['nothing']\n",
            r"user\.py, line 2: dataflow\(\) raised KeyError: 'nothing'; mend it there:\nTraceback",
        ),
        ("import json\n\n\ndef dataflow():\n    return json.loads('[')\n", r"line 5: dataflow\(\) raised JSONDecodeError: "),
        ("x = 1 / 0\n", r"line 1: the file, while it was imported, raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", r"line 1: the file, while it was imported, raised SystemExit: 3"),
        ("import nothing_of_this_name\n", r"line 1: .* raised ModuleNotFoundError: No module named"),
    ],
)
def test_what_the_users_file_raises_is_its_own_error_with_the_place(tmp_path: Path, code: str, says: str) -> None:
    path = tmp_path / "user.py"
    path.write_text(code)
    with pytest.raises(FileFailed, match=says) as raised:
        load(path, []).build()
    assert "flow_file.py" not in raised.value.user_traceback
    assert exit_code_of(raised.value) == 2
