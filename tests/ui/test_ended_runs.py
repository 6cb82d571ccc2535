"""The page of a run that has ended while its engine lives: it says so where it said `live`, and why."""

from __future__ import annotations

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
