"""Records: every file in bench/results is of one, and every command that makes one exists."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.drawn import one_in
from typer.testing import CliRunner

from evenflow.cli.app import app

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RECORDER = tool("records")
RECORDS = RECORDER.records()


def test_every_recorded_file_is_made_by_one_command() -> None:
    made = [file for record in RECORDS for file in record.files]
    there = {str(path.relative_to(ROOT / "bench" / "results")) for path in (ROOT / "bench" / "results").rglob("*") if path.is_file()}
    assert len(made) == len(set(made))
    assert there - set(made) - {"records.json"} == set()


def test_every_bench_has_a_record() -> None:
    from evenflow.cli.bench import bench

    commands = {command.name or command.callback.__name__ for command in bench.registered_commands if command.callback is not None}
    recorded = {record.command[3] for record in RECORDS if record.command[1:3] == ("evenflow", "bench")}
    assert recorded == commands


@pytest.mark.parametrize("record", one_in(4, RECORDS), ids=lambda record: record.name)
def test_the_command_of_a_record_exists(record: object) -> None:
    command: tuple[str, ...] = record.command  # type: ignore[attr-defined]
    if command[0] != "-m":
        assert (ROOT / command[0]).is_file()
        return
    answer = CliRunner().invoke(app, [*command[2:4], "--help"] if command[2] == "bench" else [command[2], "--help"])
    assert answer.exit_code == 0
    for option in (each for each in command if each.startswith("--")):
        assert option in answer.output


def test_numbers_are_found_wherever_they_are() -> None:
    found = tool("against").numbers({"a": 1, "b": {"c": [2.5, {"d": 3}]}, "quick": True, "machine": {"cores": 2}, "name": "x"})
    assert found == [("a", 1.0), ("b.c[0]", 2.5), ("b.c[1].d", 3.0)]


def test_what_measures_processor_time_is_not_made_beside_others() -> None:
    virtual = {record.name for record in RECORDS if record.virtual}
    assert "shedding-sim" not in virtual and "memory-sim" in virtual


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """In a repository of its own, at its first commit, with a record `r.json` and its entry."""
    for name, path in (("ROOT", ""), ("RESULTS", "bench/results"), ("LEDGER", "bench/results/records.json")):
        monkeypatch.setattr(RECORDER, name, tmp_path / path)
    (tmp_path / "src").mkdir()
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("1\n")
    (tmp_path / "bench" / "results" / "r.json").write_text("before")
    commit(tmp_path, "init", "-q", ".")
    commit(tmp_path, "add", "src")
    commit(tmp_path, *COMMIT)
    return RECORDER


COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-a", "-m", "text", "--no-gpg-sign")


def commit(root: Path, *command: str) -> None:
    subprocess.run(["git", *command], cwd=root, check=True)


def record_of(code: str, *, virtual: bool = True) -> object:
    return RECORDER.Record(
        "r", ("-c", f"import pathlib, subprocess\npathlib.Path('bench/results/r.json').write_text('now')\n{code}"), ("r.json",), virtual
    )


@pytest.mark.parametrize(
    ("code", "entered"),
    [
        ("", True),
        ("raise SystemExit(1)", False),
        ("pathlib.Path('src/a.py').write_text('2')", False),
        (f"pathlib.Path('src/a.py').write_text('2')\nsubprocess.run(['git', *{COMMIT!r}], check=True)", False),
    ],
    ids=["made", "failed", "edited", "committed"],
)
def test_a_record_is_entered_if_its_commit_was_there_all_the_time(recorder: ModuleType, code: str, entered: bool) -> None:
    """Goal: what was measured while the sources changed is of no commit; what there was before stays."""
    at = recorder.commit()
    assert recorder.make(record_of(code), at, 0.25) is entered
    assert (recorder.RESULTS / "r.json").read_text() == ("now" if entered else "before")
    told = json.loads(recorder.LEDGER.read_text()) if recorder.LEDGER.exists() else {}
    assert told == ({"r": {"commit": at, "seconds": 0, "load_before": 0.25}} if entered else {})


def test_a_record_of_another_commit_is_not_even_begun(recorder: ModuleType) -> None:
    assert not recorder.make(record_of(""), "0000000", 0.0)
    assert (recorder.RESULTS / "r.json").read_text() == "before"


@pytest.mark.parametrize(("most", "busy", "entered"), [(0.4, False, True), (0.6, False, False), (0.6, True, True)])
def test_what_others_did_meanwhile_decides(
    recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, most: float, busy: bool, entered: bool
) -> None:
    monkeypatch.setattr(recorder, "most_in_a_minute", lambda looks: most)
    assert recorder.make(record_of("", virtual=False), recorder.commit(), 0.0, busy=busy) is entered
    if entered:
        assert json.loads(recorder.LEDGER.read_text())["r"]["others_cores_max"] == most


def process(pid: int, parent: int, cpu_s: float, *, marked: bool = False, begun: int = 0) -> object:
    return RECORDER.Process(pid, begun, parent, cpu_s, marked)


def test_what_is_below_a_record_is_no_others() -> None:
    """10 makes records, 11 is one, 12 and 13 below it, 14 has lost its parent; 20 and 21 are others, 21 new under an old number."""
    before = [process(10, 1, 5.0), process(20, 1, 100.0), process(21, 20, 50.0), process(14, 1, 1.0, marked=True)]
    after = [
        process(10, 1, 6.0), process(11, 10, 9.0, marked=True), process(12, 11, 9.0), process(13, 12, 9.0),
        process(14, 1, 9.0, marked=True), process(20, 1, 102.0), process(21, 20, 3.0, begun=7),
    ]  # fmt: skip
    assert RECORDER.used_by_others(before, after, 10) == pytest.approx(2.0 + 3.0)


def test_the_busiest_minute_counts() -> None:
    quiet = [(float(at), 0.0) for at in range(0, 1800, 10)]
    busy = [(at, 10.0 if 300 < at <= 340 else cpu) for at, cpu in quiet]
    assert RECORDER.most_in_a_minute(quiet) == 0.0
    assert RECORDER.most_in_a_minute(busy) == pytest.approx(40 / 60), "40 seconds of one core"
    assert RECORDER.most_in_a_minute([(0.0, 0.0), (10.0, 5.0), (12.0, 1.0)]) == pytest.approx(0.5), "all of the time, which is less"
    assert RECORDER.most_in_a_minute([(0.0, 0.0)]) == 0.0


def test_this_process_is_there_and_marked_children_are_known() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={RECORDER.MARK: "x"})
    try:
        found = {each.pid: each for each in RECORDER.processes("x")}
        assert found[child.pid].marked
        assert not {each.pid: each for each in RECORDER.processes("y")}[child.pid].marked
    finally:
        child.communicate(b"\n")
