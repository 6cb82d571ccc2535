"""A driver whose clock is behind the times in its journal says so, and by how much, for as long as that is so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.statistics.numbers import progress
from tests.world.test_taking import began, log, looked

from evenflow.availability.entries import Completed, Piece
from evenflow.availability.standing import Standing
from evenflow.coordinator.clocks import TOLD_US, behind_us, told_behind
from evenflow.monitor.summary import plain_line
from evenflow.plan.placement import first_membership, first_plan
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.driver.taking import begin

HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000


@dataclass
class Turned:
    """A clock that a test turns."""

    us: int = NOW_US

    def now_us(self) -> int:
        return self.us


def next_driver(at: Path, clock: Turned) -> RunLoop:
    found = looked(at)
    taken = begin(found)
    nothing = dict.fromkeys(("send", "call_soon", "call_later"), lambda *told: None)
    calls: Any = SimpleNamespace(clock=clock, present=list, host_of=str, **nothing)
    plan = first_plan(found.layout, 2)
    return RunLoop(1, "run-1", found.layout, plan, first_membership(found.layout, plan, (0, 1)), b"", calls, taken=taken)


@pytest.mark.parametrize("ahead_us", [HOUR_US, TOLD_US // 2, -HOUR_US])
def test_a_driver_that_goes_on_says_how_far_its_clock_is_behind(tmp_path: Path, ahead_us: int) -> None:
    log(began(tmp_path), 1, NOW_US + ahead_us)
    clock = Turned()
    driven = next_driver(tmp_path, clock)
    said = [event for event in driven.events() if event["kind"] == "clock_behind"]
    journal = driven.progress(()).journal
    assert journal is not None
    if ahead_us < TOLD_US:
        assert not said and journal.clock_behind_s == max(0, ahead_us) / 1e6
        return
    [event] = said
    assert event["behind_s"] == 3600.0
    assert "clock is 60 minutes behind" in event["text"] and "caught up, in 2 hours" in event["text"] and "timers" in event["text"]
    assert "clock 3600 s behind" in plain_line(progress(journal=journal))
    clock.us += HOUR_US + 1
    caught_up = driven.progress(()).journal
    assert caught_up is not None and caught_up.clock_behind_s == 0 and "behind" not in plain_line(progress(journal=caught_up))


def test_where_the_last_epochs_are_in_a_checkpoint_their_time_is_there_too() -> None:
    facts = {"logs": {"0": [7, False, [], 500, []], "1": [9, True, [], 700, []]}}
    standing = Standing(checkpoints=[Completed(1, 3, (Piece(0, 0, (0, 1), facts, ()), Piece(1, 0, (0,), {}, ())))])
    assert standing.stamp == 700 and Standing().stamp == 0


def test_spans_are_said_as_people_say_them() -> None:
    assert told_behind(0, NOW_US) is None and behind_us(0, NOW_US) == 0
    texts = []
    for span_us in (2_000_000, 600_000_000, 30 * HOUR_US, 240 * HOUR_US):
        said = told_behind(NOW_US + span_us, NOW_US)
        assert said is not None
        texts.append(said.text.split(" behind")[0].split("clock is ")[1])
    assert texts == ["2 s", "10 minutes", "30 hours", "10 days"]
