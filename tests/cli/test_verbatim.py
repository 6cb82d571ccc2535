"""Names and values are shown as they are: nothing in them is markup, and nothing of them steers the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from tests.cli.commands import run
from tests.cli.test_view import PROGRESS
from tests.query.test_checking import drawn

from evenflow.cli.output import Output
from evenflow.monitor.live import Results, View
from evenflow.monitor.picture import picture
from evenflow.monitor.summary import summary_table
from evenflow.statistics.progress import BoxProgress
from evenflow.stream.visible import visible

NAMES = ["x[/y]", "[error] disk", "[/var/log] full", ":key:", "[bold]b[/bold]"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain [b] ä 雪 🙂", "plain [b] ä 雪 🙂"), ("two\nlines\tand", "two\nlines\tand"), ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J\x7f\x00", r"\x9b2J\x7f\x00"), ("\rback", r"\x0dback"), ("\ud800", r"\ud800"),
    ],
)  # fmt: skip
def test_what_steers_a_terminal_is_seen(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_a_view_has_names_as_they_are(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    sites = tuple(replace(site, executor=name, host=name) for site, name in zip(PROGRESS.sites, NAMES, strict=False))
    boxes = tuple(BoxProgress(name, name, 1.0, 1.0, 1.0, 0.1) for name in NAMES)
    results = Results()
    results.take([{"[i]": "[/var/log] full", "b\x1b[2J": ":key:"}])
    with_boxes, with_rows = View("[/d]", "local[2]"), View("[/d]", "local[*]", results)
    output = Output(as_json=False)
    for view in (with_boxes, with_rows):
        view.update(replace(PROGRESS, sites=sites, boxes=boxes, dataflow="[/d]"))
        output.out.print(view)
        assert "x[/y]" in picture(view, "[/t]")
    output.out.print(summary_table(replace(PROGRESS, dataflow="[/d]")))
    text = capfd.readouterr().out
    for name in (*NAMES, "[i]", r"b\x1b[2J", "[/d]: done"):
        assert name in text
    assert "\x1b" not in text


def test_lines_of_a_table_end_where_they_did(capfd: pytest.CaptureFixture[str]) -> None:
    table = Table("left", "right")
    table.add_row("\x1b[31mred", "there")
    table.add_row("a longer one", "there")
    Output(as_json=False).out.print(table)
    lines = capfd.readouterr().out.splitlines()
    assert len({len(line) for line in lines if line.strip()}) == 1 and r"\x1b[31m" in "".join(lines)


def test_rows_of_a_preview_are_shown_as_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenflow.testing import preview
    from evenflow.testing.trying import tried

    def here(document: str, samples: Any, taps: Any, *, rows: int, shown: int, **_: Any) -> Any:
        from evenflow.query.serial import network_from_json

        return tried(network_from_json(document), samples, taps, rows=rows, shown=shown)

    monkeypatch.setattr(preview, "preview", here)
    monkeypatch.setenv("COLUMNS", "160")
    saved, sample = tmp_path / "drawn.json", tmp_path / "rows.json"
    saved.write_text(json.dumps(drawn()))
    rows = [{"src": name, "proto": 6, "length": 60, "ts": "2026-01-01"} for name in (*NAMES, "clear\x1b[2J")]
    sample.write_text(json.dumps({"packets": rows}))
    assert run("preview", str(saved), "--sample", str(sample), "--box", "tcp") == 0
    text = capfd.readouterr().out
    for name in (*NAMES, r"clear\x1b[2J"):
        assert name in text
    assert "\x1b" not in text


def test_a_plan_has_names_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flow, script = tmp_path / "steering.py", tmp_path / "steering.sql"
    flow.write_text(STEERING)
    script.write_text(
        "CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '100');\nSELECT price AS `p\x1b[2J`, 'a\x9b2J' AS `b` FROM bid"
    )
    for given in (("plan", str(flow)), ("sql", str(script), "--plan")):
        assert run(*given) == 0
        text = capfd.readouterr().out
        assert r"\x1b[2J" in text and not {"\x1b", "\x9b", "\ud800"} & {*text}
        assert run(*given, "--json") == 0
        assert r"\u001b[2J" in capfd.readouterr().out


STEERING = """import evenflow as ef
from evenflow.testing import source


def dataflow():
    flow = ef.Dataflow("clear\\x1b[2J")
    rows = flow.source(source("k string, x bigint"), name="[s]\\x1b[2J").where("k <> 'a'", name="w\\x9b2J \\ud800")
    rows.select(**{"y\\x1b[2J": "x"}).to(ef.sinks.memory("out"), name="out")
    return flow
"""
