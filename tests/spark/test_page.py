"""The page of a running engine: it tells what runs, takes requests, dies alone, and comes again."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import evenflow as ef
from evenflow.world.spark.driver.ui_process import UiProcess
from tests.worlds.dataflows import counted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
ROWS = 60_000


def told(page: UiProcess, path: str, body: bytes | None = None) -> Any:
    url, token = page.url().split("#token=")
    request = urllib.request.Request(url + path, body, {"Authorization": f"Bearer {token}"}, method="GET" if body is None else "POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read()) if path.startswith("api/") else answer.read().decode()


def grows(what: Callable[[], float], by: float = 1.0, within: int = 600) -> None:
    """Until it is greater than now."""
    pause, before = threading.Event(), what()
    for _ in range(within):
        if what() >= before + by:
            return
        pause.wait(0.05)
    pytest.fail(f"it stays at {before}")


def test_a_page_that_dies_comes_again_and_no_row_waits_for_it(
    engine: ef.Engine, named: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    sink, gate = ef.sinks.memory(named("seen")), tmp_path / "gate"
    run = engine.start(counted(gate, sink, ROWS, rate=4_000))
    try:
        page = engine.open_ui(0)
        assert engine.open_ui() is page

        def rows_in() -> float:
            try:
                reading = told(page, "api/v1/reading")
            except urllib.error.HTTPError:
                return 0.0  # None has come yet.
            return float(next((each["rows_in"] for each in reading["runs"] if each["run"] == run.id), 0))

        grows(rows_in)
        families = {family.name: family for family in text_string_to_metric_families(told(page, "metrics"))}
        assert families["evenflow_rows_in"].samples[0].value > 0
        assert told(page, "readyz") == "ready\n"
        assert {site["site"] for site in told(page, "api/v1/sites", b"{}")["sites"]} == set(engine.sites_now)

        os.kill(page.pid, signal.SIGKILL)
        grows(lambda: sink.rows().num_rows, 100)
        again = engine.open_ui(0)
        assert again is not page and again.pid != page.pid
        assert told(again, "healthz") == "ok\n"
    finally:
        gate.touch()
        run.stop()
