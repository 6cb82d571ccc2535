"""What notebooks show: of a run, of an engine, and of a stream its dataflow's picture."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import evenflow as ef
from evenflow.world.owned import Owner
from evenflow.world.spark.driver.control_client import page_of
from evenflow.world.spark.driver.notebook import NOTEBOOKS, EngineDisplay, Frame, RunDisplay, run_html

SITE = {"site": 0, "role": "live", "executor": "1", "host": "<a host>", "partitions": 1234, "state_bytes": 1 << 20}
PROGRESS = {
    "run": "flow-1", "active": True, "dataflow": "<script>", "epoch": 12, "rows_in": 10_000, "rows_in_per_s": 99.6, "rows_out": 5,
    "rows_out_per_s": 0.0, "p99_ms": None, "redundancy": 2, "replicas": 2, "sites": [SITE],
}  # fmt: skip


class ARun(RunDisplay):
    _network, _coordinator = None, SimpleNamespace(engine="none of these")

    def progress(self) -> dict[str, Any]:
        return PROGRESS

    def exception(self) -> None:
        return None


class AnEngine(EngineDisplay):
    sites, spares, replicas, sites_now = 2, 1, 2, (0, 1)
    runs = (SimpleNamespace(id="flow-1", is_active=False),)


def test_a_run_is_a_table_and_what_comes_from_outside_is_escaped() -> None:
    shown = ARun()._repr_html_()
    assert "flow-1</b>: active" in shown and "10,000 (100/s)" in shown and "1,234" in shown and "none yet" in shown
    assert "&lt;script&gt;" in shown and "&lt;a host&gt;" in shown and "<script>" not in shown


def test_a_failed_run_says_why() -> None:
    shown = run_html({**PROGRESS, "active": False, "p99_ms": 12.0}, ValueError("a < b"))
    assert "</b>: failed" in shown and "<pre>a &lt; b</pre>" in shown


def test_an_engine_is_shown_without_being_started() -> None:
    shown = AnEngine()._repr_html_()
    assert "2 sites, 1 spares, 2 replicas; 2 of them are there" in shown and "<td>over</td>" in shown


def test_a_stream_is_its_dataflow_s_picture() -> None:
    flow = ef.Dataflow("drawn")
    stream = flow.source(ef.sources.generator(rows=1), name="rows").where("key > 1")
    assert stream._repr_svg_() == flow.to_svg() and "rows" in stream._repr_svg_()


def test_runs_and_engines_have_these() -> None:
    from evenflow.world.spark.driver.run import Run

    assert issubclass(Run, RunDisplay) and issubclass(ef.Engine, EngineDisplay)


def test_a_run_has_its_picture_and_its_page_and_a_frame_is_one() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>x</script></svg>'
    shown = run_html(PROGRESS, None, svg, 'http://127.0.0.1:1/#token="><script>')
    assert "<script" not in shown and shown.count("<img ") == 1 and "data:image/svg+xml;base64," in shown
    assert 'href="http://127.0.0.1:1/#token=&quot;&gt;&lt;script&gt;"' in shown
    framed = Frame('http://127.0.0.1:1/#token="x', 300)._repr_html_()
    assert '<iframe src="http://127.0.0.1:1/#token=&quot;x"' in framed and 'height="300"' in framed
    assert "'" not in NOTEBOOKS and ";" not in NOTEBOOKS


def test_the_page_that_is_open_is_found_with_the_token_of_who_may_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "control"
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(directory))
    assert page_of("e1") is None
    owner = Owner(directory / "e1.4141.ui", json.dumps({"view": "http://here/#token=v", "operate": "http://here/#token=o"}))
    (directory / "e1.9.ui").write_text('{"view": "http://dead/"}')
    assert page_of("e1") == "http://here/#token=v" and page_of("e2") is None
    owner.release()
    assert page_of("e1") is None
