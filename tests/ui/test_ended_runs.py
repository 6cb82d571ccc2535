"""The page of a run that has ended while its engine lives: it says so where it said `live`, and why. And of several runs of one engine."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from evenflow.bench.live_sim import LiveSim
from evenflow.errors import BoxFailed, in_a_line
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from tests.ui.looking import is_accessible, is_whole, opened, shows_numbers
from tests.ui.serving import Page as Served
from tests.ui.serving import serving, sessions, simulated

WHY = in_a_line(BoxFailed("sessions", 812, "Traceback (most recent call last):\nValueError: could not convert 'n/a' to a number"))


class Ending:
    """A run in the simulator, of which it is said from some moment on that it has ended. failure: why, None: as it should."""

    def __init__(self, live: LiveSim, failure: str | None) -> None:
        self.live, self.failure, self.over = live, failure, False
        self.ask, self.close = live.ask, live.close

    def run(self, take: Callable[[Scene | Reading], None]) -> None:
        known: list[Any] = [None, None]

        def told(each: Scene | Reading) -> None:
            if isinstance(each, Scene):
                known[0] = each
                return
            over, scene = self.over, known[0]
            if known[1] != (scene.number, over):
                known[1] = scene.number, over
                runs = tuple(replace(run, active=not over, failure=self.failure if over else None) for run in scene.runs)
                take(replace(scene, number=2 * scene.number + over, runs=runs))
            take(replace(each, scene=2 * scene.number + over))

        self.live.run(told)


@pytest.mark.parametrize(("failure", "width"), [(WHY, 1280), (WHY, 390), (None, 1280)])
def test_it_says_that_it_has_ended_and_why(browser: Browser, failure: str | None, width: int) -> None:
    live = Ending(simulated(sessions()), failure)
    with serving(live) as served, opened(browser, served, width=width) as watched:
        page = watched.page
        shows_numbers(page)
        expect(page.locator("#redundancy")).to_be_visible()
        live.over = True
        expect(page.locator("#state")).to_have_text("over" if failure is None else "failed", timeout=20_000)
        expect(page.locator("#redundancy")).to_be_hidden()
        expect(page.locator("#held .what")).to_have_text("the run is over" if failure is None else "the run has failed")
        if failure is not None:
            expect(page.locator("#held .why")).to_have_text(failure)
            expect(page).to_have_title("! network_sessions · Evenflow")
        is_whole(page)
        is_accessible(page)


class Empty:
    """An engine whose first run has not begun, until `begun`."""

    def __init__(self, live: LiveSim) -> None:
        self.live, self.begun = live, False
        self.ask, self.close = live.ask, live.close

    def run(self, take: Callable[[Scene | Reading], None]) -> None:
        known: list[Any] = [None, None]

        def told(each: Scene | Reading) -> None:
            if isinstance(each, Scene):
                known[0] = each
                return
            runs, scene = self.begun, known[0]
            if known[1] != (scene.number, runs):
                known[1] = scene.number, runs
                take(replace(scene, number=2 * scene.number + runs, runs=scene.runs if runs else ()))
            take(replace(each, scene=2 * scene.number + runs, runs=each.runs if runs else ()))

        self.live.run(told)


def test_an_engine_without_runs_says_so(browser: Browser) -> None:
    """Nothing was there but `live`: no name, and no word of what is missing."""
    live = Empty(simulated(sessions()))
    with serving(live) as served, opened(browser, served) as watched:
        page = watched.page
        expect(page.locator("#held .what")).to_have_text("nothing runs yet")
        expect(page.locator(".head h1")).to_have_text("simulator")
        is_accessible(page)
        live.begun = True
        shows_numbers(page)
        expect(page.locator(".head h1")).to_have_text("network_sessions")
        expect(page.locator("#held .label")).not_to_have_text("No run")


RUNS = """async ([scene, reading]) => {
  const { Dashboard } = await import(new URL("static/dashboard.js", document.baseURI).href);
  const shown = new Dashboard(async () => new Response("{}", { status: 503 }), document.createElement("p"), () => {});
  const turn = (number, runs) => {
    const of = (run, each) => ({ ...each, run, ...runs[run] }), names = Object.keys(runs);
    const states = Object.fromEntries(names.map((run) => [run, runs[run].active]));
    shown.scene({ ...scene, number, runs: names.map((run) => ({ ...scene.runs[0], run, active: states[run] })) });
    shown.reading({ ...reading, number, scene: number, at_us: number * 1e6, runs: names.map((run) => of(run, reading.runs[0])) });
    shown.remember();
  };
  return await (%s)(shown, turn);
}"""
"""A page to which a test tells readings of several runs, each with what differs."""


def several(page: Served, browser: Browser, script: str) -> Any:
    with opened(browser, page) as watched:
        shows_numbers(watched.page)
        told = [json.loads(asked(page, name)) for name in ("scene", "reading")]
        return watched.page.evaluate(RUNS % script, told)


def asked(page: Served, path: str) -> bytes:
    request = urllib.request.Request(f"{page.at}api/v1/{path}", headers={"Authorization": "Bearer look"})
    return bytes(urllib.request.urlopen(request).read())


def test_the_run_that_is_named_is_the_one_that_is_shown(browser: Browser, page: Served) -> None:
    """The list stood at the oldest run while the newest was shown, and that one could not be chosen."""
    script = """(shown, turn) => {
      const told = [];
      const say = () => told.push([shown.head.runs.value, shown.shown]);
      turn(1, { one: { active: false, elapsed_us: 5e6 }, two: { active: true, elapsed_us: 1e6 } });
      say();
      shown.head.runs.value = "one";
      shown.head.runs.dispatchEvent(new Event("change"));
      say();
      turn(2, { one: { active: false, elapsed_us: 5e6 }, two: { active: true, elapsed_us: 2e6 }, three: { active: true, elapsed_us: 0 } });
      say();
      turn(3, { two: { active: true, elapsed_us: 3e6 }, three: { active: true, elapsed_us: 1e6 } });
      say();
      return told;
    }"""
    assert several(page, browser, script) == [["two", "two"], ["one", "one"], ["one", "one"], ["three", "three"]]


def test_curves_of_a_run_go_on_while_another_one_is_looked_at(browser: Browser, page: Served) -> None:
    """They had what was there when the page was opened, and a line from there to now."""
    script = """(shown, turn) => {
      for (let n = 1; n <= 20; n++) turn(n, { one: { active: true, elapsed_us: n * 1e6 }, two: { active: true, elapsed_us: n * 1e6 } });
      const first = shown.shown;
      shown.head.runs.value = "one";
      shown.head.runs.dispatchEvent(new Event("change"));
      const seconds = [...shown.curves.data.seconds];
      for (let n = 21; n <= 30; n++) turn(n, { one: { active: true, elapsed_us: n * 1e6 }, two: { active: true, elapsed_us: n * 1e6 } });
      shown.head.runs.value = "two";
      shown.head.runs.dispatchEvent(new Event("change"));
      return [first, seconds, [...shown.curves.data.seconds]];
    }"""
    first, one, two = several(page, browser, script)
    assert first == "two"
    assert one == [float(n) for n in range(2, 21)] and two == [float(n) for n in range(2, 31)]


def test_all_is_delivered_only_where_nothing_is_missing(browser: Browser, page: Served) -> None:
    script = """(shown, turn) => [1000000, 999999, 999600, 998400, 700000].map((delivered_ppm, n) => {
      turn(n + 1, { one: { active: true, elapsed_us: n * 1e6, delivered_ppm } });
      return shown.head.delivered.textContent;
    })"""
    assert several(page, browser, script) == [f"delivered {share}" for share in ("100%", "99.9%", "99.9%", "99.8%", "70%")]


def test_a_page_that_was_hidden_has_the_curves_of_meanwhile(browser: Browser, page: Served) -> None:
    script = """(shown, turn) => {
      for (let n = 1; n <= 5; n++) turn(n, { one: { active: true, elapsed_us: n * 1e6 } });
      const seconds = Array.from({ length: 100 }, (_, i) => i + 3900), other = seconds.map(() => 1);
      shown.takePast({ one: { seconds, p50_ms: other, p99_ms: other, rows_in_per_s: other, rows_out_per_s: other } });
      turn(6, { one: { active: true, elapsed_us: 3999 * 1e6 } });
      turn(7, { one: { active: true, elapsed_us: 4000 * 1e6 } });
      return [...shown.curves.data.seconds];
    }"""
    assert several(page, browser, script) == [float(second) for second in range(3900, 4001)]


def test_a_run_that_goes_on_under_the_id_of_one_that_has_ended_has_curves_and_events_of_its_own(browser: Browser, page: Served) -> None:
    """Who stops a run with a checkpoint location and goes on there in the same engine has such a one."""
    script = """(shown, turn) => {
      const event = (at_s, text) => ({ run: "one", at_s, kind: "checkpoint_completed", site: -1, text });
      const told = [];
      const texts = () => shown.happened.list.textContent.match(/(first|second) [0-9]+(?=[.])/g).join();
      const say = () => told.push([texts(), [...shown.curves.data.seconds]]);
      for (let n = 1; n <= 5; n++) {
        shown.take([event(n - 0.5, `first ${n}.`)]);
        turn(n, { one: { active: true, elapsed_us: n * 1e6, rows_in: 1000 * n } });
      }
      say();
      shown.take([event(0, "second 0."), event(0.4, "second 1.")]);
      turn(11, { one: { active: true, elapsed_us: 1e6, rows_in: 0 } });
      turn(12, { one: { active: true, elapsed_us: 2e6, rows_in: 10 } });
      shown.take([event(2.5, "second 2.")]);
      turn(13, { one: { active: true, elapsed_us: 3e6, rows_in: 20 } });
      say();
      return told;
    }"""
    first, second = several(page, browser, script)
    assert first == [",".join(f"first {n}" for n in range(5, 0, -1)), [2.0, 3.0, 4.0, 5.0]]
    assert second == ["second 2,second 1,second 0", [2.0, 3.0]]
