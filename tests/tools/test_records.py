"""Records: every file in bench/results is of one, and every command that makes one exists."""

from __future__ import annotations

import importlib.util
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


RECORDS = tool("records").records()


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
