"""What is drawn in a browser is started in an engine, then changed, compared with what runs, and goes on as that with its state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import evenflow as ef
from evenflow.cli.editing import FileShelf
from tests.ui.editing import editing
from tests.ui.looking import opened

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
SOON = 20_000
KEYS = 4


def test_what_is_drawn_is_started_and_goes_on_as_another_version(
    engine: ef.Engine, named: Callable[[str], str], browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    path, name, sink = tmp_path / "drawn.json", named("drawn"), ef.sinks.memory(named("counted"))
    flow = ef.Dataflow(name)
    rows = flow.source(ef.sources.generator(rate=2_000, keys=KEYS), name="events").where("key >= 0", name="some")
    rows.group_by("key").agg(n="count(*)").name("counts").to(sink, name="out")
    path.write_text(flow.to_json(), encoding="utf-8")
    control, before = str(engine.open_control()), len(engine.runs)

    def counted() -> dict[int, int]:
        """The newest count of each key."""
        newest: dict[int, int] = {}
        for row in sink.rows().to_pylist():
            newest[row["key"]] = max(newest.get(row["key"], 0), row["n"])
        return newest

    def until(holds: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(600):
            if holds():
                return
            pause.wait(0.05)
        pytest.fail(f"counts stay at {counted()}")

    with editing(path, FileShelf, engine=control) as edited, opened(browser, edited) as watched:  # type: ignore[arg-type]
        page = watched.page
        drawer, state = page.locator(".drawer"), page.locator("#state")
        expect(state).to_have_text("valid", timeout=SOON)
        page.get_by_role("tab", name="Deploy").click()
        page.get_by_role("button", name="Start it beside").click()
        expect(drawer).to_contain_text("has started", timeout=SOON)
        (run,) = engine.runs[before:]
        try:
            until(lambda: len(counted()) == KEYS)

            page.locator(".react-flow__node[data-id='some']").focus()
            page.keyboard.press("Enter")
            page.get_by_label("Condition").focus()
            page.keyboard.press("ControlOrMeta+a")
            page.keyboard.type("key >= 2")
            expect(page.locator("#save")).to_have_attribute("data-dirty", "")
            expect(state).to_have_text("valid", timeout=SOON)
            page.get_by_role("tab", name="Deploy").click()
            page.get_by_role("button", name="Compare with what runs").click()
            changes = drawer.locator(".changes li")
            expect(changes.filter(has_text="some")).to_contain_text("other code", timeout=SOON)
            page.locator("input[name=again]").fill(name)
            page.get_by_role("button", name="Replace version").click()
            expect(drawer).to_contain_text("Version 1 runs from epoch", timeout=SOON)

            old = counted()
            until(lambda: counted()[3] > 2 * old[3])
            then = counted()
            until(lambda: counted()[2] > then[2] + 200)
            assert [counted()[key] for key in (0, 1)] == [then[key] for key in (0, 1)], "rows that are left out now count no more"
            numbers = [row["n"] for row in sink.rows().to_pylist() if row["key"] == 3]
            assert numbers == sorted(numbers), "the count went on from what it was"
            assert [each.id for each in engine.runs[before:]] == [run.id]
        finally:
            run.stop()
