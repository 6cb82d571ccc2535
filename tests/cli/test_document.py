"""`evenflow check`, `export` and `preview`, as a person or a program calls them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import run
from tests.query.networks import session_monitor
from tests.query.test_checking import box, drawn


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(drawn()))
    return path


def told(capfd: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capfd.readouterr().out)


def test_a_file_is_checked(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(saved), "--json") == 0
    found = told(capfd)
    assert found["right"] and [each["state"] for each in found["boxes"]] == ["right"] * len(found["boxes"])
    assert run("check", str(saved)) == 0
    assert "totals: (src string, window_start timestamp" in capfd.readouterr().out


def test_what_is_wrong_is_said_and_is_the_exit_code(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document = drawn()
    box(document, "tcp")["params"]["condition"] = "lngth > 3"
    saved.write_text(json.dumps(document))
    assert run("check", str(saved), "--json") == 2
    tcp = next(each for each in told(capfd)["boxes"] if each["name"] == "tcp")
    assert (tcp["state"], tcp["parameter"], tcp["start"], tcp["end"], tcp["type"]) == ("wrong", "condition", 0, 5, "UnknownColumn")
    saved.write_text("{")
    assert run("check", str(saved), "--json") == 2
    assert told(capfd)["error"]["type"] == "QueryError"


def test_code_is_locked_unless_it_is_allowed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sessions.json"
    path.write_text(session_monitor().to_json())
    assert run("check", str(path), "--json") == 2
    assert [each["name"] for each in told(capfd)["boxes"] if each["state"] == "locked"] == ["track"]
    assert run("check", str(path), "--json", "--module", "tests.query.networks") == 0


def test_a_file_is_written_as_python(saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "drawn.py"
    assert run("export", str(saved), "--to", str(path), "--json") == 0
    assert told(capfd)["python"] == path.read_text()
    assert json.loads(runpy.run_path(str(path))["dataflow"]().to_json()) == drawn()
    assert run("export", str(path), "--json") == 0
    assert told(capfd)["python"] == path.read_text()


def test_a_file_is_tried(saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from evenflow.testing import preview
    from evenflow.testing.trying import tried

    def here(document: str, samples: Any, taps: Any, *, rows: int, shown: int, **_: Any) -> Any:
        from evenflow.query.serial import network_from_json

        return tried(network_from_json(document), samples, taps, rows=rows, shown=shown)

    monkeypatch.setattr(preview, "preview", here)
    sample = tmp_path / "rows.json"
    sample.write_text(json.dumps({"packets": [{"src": "a", "proto": 6, "length": 60, "ts": "2026-01-01"}]}))
    assert run("preview", str(saved), "--sample", str(sample), "--box", "tcp", "--json") == 0
    (tap,) = told(capfd)["taps"]
    assert (tap["box"], tap["count"], tap["rows"][0][1]) == ("tcp", 1, "a")
    assert run("preview", str(saved), "--rows", "5") == 0
    sample.write_text("[]")
    assert run("preview", str(saved), "--sample", str(sample), "--json") == 2
