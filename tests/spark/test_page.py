"""The page of a running engine: it tells what runs, takes requests, dies alone, and comes again."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from prometheus_client.parser import text_string_to_metric_families

import evenflow as ef
from evenflow.errors import OperationRefused
from evenflow.monitor.reading import Reading
from evenflow.world.spark.driver.ui_process import UiProcess
from evenflow.world.spark.driver.watching import watcher_of
from tests.restarting import wait_until
from tests.ui.looking import note_red, opened, red_at_s, shows_numbers
from tests.worlds.dataflows import counted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
ROWS = 60_000


def told(page: UiProcess, path: str, body: bytes | None = None) -> Any:
    url, token = page.url().split("#token=")
    request = urllib.request.Request(url + path, body, {"Authorization": f"Bearer {token}"}, method="GET" if body is None else "POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read()) if path.startswith("api/") else answer.read().decode()


def is_ready(page: UiProcess) -> bool:
    try:
        return bool(told(page, "readyz") == "ready\n")
    except urllib.error.HTTPError:
        return False


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
        taken = {sample.labels["dataflow"]: sample.value for sample in families["evenflow_rows_in"].samples}
        assert taken["counted"] > 0, "others may have been in this engine before"
        wait_until(lambda: is_ready(page), 10, "the page says that all is well")  # On a busy machine a reading may be late for a moment.
        assert {site["site"] for site in told(page, "api/v1/sites", b"{}")["sites"]} == set(engine.sites_now)

        os.kill(page.pid, signal.SIGKILL)
        grows(lambda: sink.rows().num_rows, 100)
        again = engine.open_ui(0)
        assert again is not page and again.pid != page.pid
        assert told(again, "healthz") == "ok\n"
    finally:
        gate.touch()
        run.stop()


@pytest.mark.conformance
def test_a_killed_executor_is_red_within_a_second(
    spark: Any, named: Callable[[str], str], browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tests/ui/test_stories.py has it in the simulator; from `kill -9` on."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    sink, gate = ef.sinks.memory(named("seen")), tmp_path / "gate"
    with ef.Engine(spark, sites=3, replicas=2) as engine:
        engine.start(counted(gate, sink, ROWS, rate=4_000))
        grows(lambda: sink.rows().num_rows, 100)
        with opened(browser, None, url=engine.open_ui(0).url()) as watched:
            shows_numbers(watched.page)
            note_red(watched.page)
            victim = next(site for site in json.loads(_command(engine, "sites", "--json").stdout)["sites"] if site["site"] == 1)
            began_s = time.time()
            os.kill(victim["pid"], signal.SIGKILL)
            expect(watched.page.locator(".siterow[data-key='1']")).to_have_attribute("data-role", "dead", timeout=20_000)
            took_s = red_at_s(watched.page, 1) - began_s
    assert took_s <= 1.0


class Picky(ef.Processor):
    """Counts the rows of each key but one, of which it warns."""

    output = "n bigint"

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)

    def process(self, key: tuple[Any, ...], rows: Any, state: Any) -> Any:
        if key[0] == 1:
            logging.getLogger("mine").warning("key %d again", key[0])
            raise ValueError(f"no key like {key[0]}")
        state.n += rows.num_rows
        return [(state.n,)]


def test_who_looks_is_told_what_sites_warn_of_and_which_rows_failed(spark: Any) -> None:
    with ef.Engine(spark, sites=2, keep_failed_rows=True) as engine:
        flow = ef.Dataflow("picky")
        rows = flow.source(ef.sources.generator(rate=2_000, keys=4))
        rows.key_by("key").process(Picky()).name("picky").on_error("skip").to(ef.sinks.discard(), name="out")
        run = engine.start(flow)
        watcher, pause = watcher_of(engine), threading.Event()
        for _ in range(400):
            reading = Reading.from_json(json.loads(watcher.news(0, 0)[2][-1]))
            mine = reading.run(run.id)
            if reading.logs and mine is not None and mine.failed:
                break
            pause.wait(0.1)
        run.stop()
    assert mine is not None and {(line.level, line.logger, line.text) for line in reading.logs} == {("WARNING", "mine", "key 1 again")}
    assert reading.logs_count >= len(reading.logs) and {line.site for line in reading.logs} <= {0, 1}
    assert {each.box for each in mine.failed} == {"picky"} and len(mine.failed) <= 20
    assert all("key=1" in each.row and "ValueError: no key like 1" in each.error for each in mine.failed)
    assert all(waiting is not None for waiting in mine.streams.waiting_bytes)


@pytest.mark.conformance
def test_a_site_is_sampled_while_rows_flow(
    engine: ef.Engine, named: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    sink, gate = ef.sinks.memory(named("seen")), tmp_path / "gate"
    run = engine.start(counted(gate, sink, ROWS, rate=4_000))
    try:
        grows(lambda: sink.rows().num_rows, 100)
        site, before = engine.sites_now[0], sink.rows().num_rows
        found = engine.profile(site, 2.0)
        assert found.site == site and found.samples > 40
        assert found.own_us < 0.03 * found.seconds * 1e6, "a look costs less than three hundredths of a core"
        assert sink.rows().num_rows > before, "it goes on meanwhile"
        assert any("PartRunner" in name for stack in found.stacks for name in stack.frames)
        boxes = set[str]()
        for each in engine.sites_now:
            told = json.loads(_command(engine, "profile", str(each), "--seconds", "1", "--json").stdout)
            boxes |= {box["box"] for box in told["boxes"]}
        assert boxes and boxes <= {box.name for box in counted(gate, sink, ROWS).network}
        lines = _command(
            engine, "profile", str(site), "--seconds", "1", "--folded", "--svg", str(tmp_path / "site.svg")
        ).stdout.splitlines()
        assert all(line.rsplit(" ", 1)[1].isdigit() and line.startswith(("thread ", "(other")) for line in lines) and lines
        assert (tmp_path / "site.svg").read_text().startswith("<svg")
        with pytest.raises(OperationRefused, match="no site 99"):
            engine.profile(99)

        second = threading.Thread(target=engine.profile, args=(site, 1.5))
        second.start()
        refused = ""
        while second.is_alive() and not refused:
            try:
                engine.profile(site, 0.1)
            except OperationRefused as error:
                refused = str(error)
        second.join()
        assert "for somebody else" in refused
        told = json.loads(_command(engine, "stop", "--run", run.id, "--json").stdout)
        assert told["run"] == run.id and told["error"] is None and not run.is_active
    finally:
        gate.touch()
        run.stop()


def _command(engine: ef.Engine, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evenflow", *words, "--engine", str(engine.open_control())],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
