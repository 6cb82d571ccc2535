"""What a notebook shows of a run, as a browser renders it; and the page in a notebook's frame."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from evenflow.monitor.history import History
from evenflow.monitor.viewed import progress_of
from evenflow.world.spark.driver.notebook import NOTEBOOKS, Frame, run_html
from tests.monitor.simulated import counts, readings_of, stream
from tests.ui.looking import SCRIPT, is_accessible
from tests.ui.proxy import proxied
from tests.ui.serving import serving, sessions, simulated

CELL = '<!doctype html><html lang="en"><title>notebook</title><body style="background:{}; color:{}; width:760px"><main><h1>A notebook</h1>'


def test_a_run_is_shown_with_its_picture_and_its_page_in_a_frame(browser: Browser) -> None:
    history, told = History(), stream(8.0, kill_s=4.0)
    for each in told:
        history.add(each)
    progress = progress_of(history, readings_of(told)[0].runs[0].run)
    assert progress is not None
    with serving(simulated(sessions()), ancestors=NOTEBOOKS) as page, proxied(page.at) as proxy:
        context = browser.new_context(locale="en-US", viewport={"width": 800, "height": 900})
        cell = context.new_page()
        said: list[str] = []
        cell.on("console", lambda message: said.append(message.text))
        cell.goto(f"{proxy.replace('127.0.0.1', 'localhost')}/bare")  # A page of another origin, as a notebook is.
        for ground, ink in (("#fff", "#111"), ("#111", "#eee")):
            cell.set_content(CELL.format(ground, ink) + run_html(progress.to_json(), None, counts().to_svg(), page.url("look")))
            expect(cell.locator("b").first).to_contain_text("run-1")
            assert cell.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
            assert cell.locator("tr").count() == len(progress.sites) + 1
            assert cell.evaluate(f"{SCRIPT}.cut()") == []
            is_accessible(cell)
        assert said == []
        cell.set_content(CELL.format("#fff", "#111") + Frame(page.url("look"), 500)._repr_html_())
        inner = cell.frame_locator("iframe")
        expect(inner.locator("#state")).to_have_text("live", timeout=15_000)
        expect(inner.locator("[data-operation=drain]")).to_have_count(0)
        context.close()
