"""Runs of one id that follow each other in one engine, as who stops a run with a checkpoint location and goes on there has them, and runs
that are over and still shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from evenflow.monitor.history import History
from evenflow.monitor.reading import Event, Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.unheard import Unheard
from evenflow.monitor.viewed import progress_of
from evenflow.monitor.web.feed import CURVE_POINTS, Feed, Position
from evenflow.monitor.web.teller import CURVES, Teller
from tests.monitor.simulated import readings_of, scenes_of, stream

SECOND_US = 1_000_000


def event(number: int, at_s: float, text: str) -> Event:
    return Event(number, int(at_s * SECOND_US), "checkpoint_completed", -1, text, {})


class Engine:
    """One run, made of a simulated one; what it says is written by hand."""

    def __init__(self) -> None:
        told = stream(3.0)
        self.scene, self.now = scenes_of(told)[-1], readings_of(told)[-1]
        self.number = 0

    def scenes(self, *, active: bool = True) -> Scene:
        return replace(self.scene, runs=(replace(self.scene.runs[0], active=active),))

    def reading(self, at_s: float, elapsed_s: float, *events: Event, rows: int = 0) -> Reading:
        self.number += 1
        run = replace(self.now.runs[0], elapsed_us=int(elapsed_s * SECOND_US), rows_in=rows, latency=(), epoch=rows, events=events)
        return replace(self.now, number=self.number, at_us=int(at_s * SECOND_US), runs=(run,))

    def restarted(self) -> Iterator[Reading]:
        """A run of five seconds, and the one that goes on in its place."""
        for second in range(1, 6):
            yield self.reading(second, second, event(second - 1, second - 0.5, f"first {second}"), rows=1000 * second)
        for second in range(1, 4):
            yield self.reading(10 + second, second, event(second - 1, second - 0.5, f"second {second}"), rows=second)


TOLD = [f"first {number}" for number in range(1, 6)] + [f"second {number}" for number in range(1, 4)]


def test_events_and_curves_of_a_run_that_goes_on_under_the_same_id_are_told() -> None:
    engine, feed = Engine(), Feed("n", CURVES)
    teller = Teller(feed)
    teller.take(engine.scenes())
    for reading in engine.restarted():
        teller.take(reading)
        teller.take(reading)  # Who asks anew is told it anew.
    blocks = dict(block.split("\n")[:2] for block in feed.newer(Position())[1].decode().split("\n\n")[:-1])
    told = {name.removeprefix("event: "): json.loads(data.removeprefix("data: ")) for name, data in blocks.items()}
    assert [each["text"] for each in told["happened"]] == TOLD
    assert told["past"]["run-1"]["seconds"] == [2.0, 3.0], "curves are of the run that is there"
    assert told["past"]["run-1"]["rows_in_per_s"] == [1.0, 1.0]


def test_who_looks_seldom_is_told_each_event_once() -> None:
    """Method: every reading has the events of the last minute, as who comes back after a while gets them."""
    engine, unheard, history = Engine(), Unheard(), History()
    history.add(engine.scenes())
    found = list[str]()
    for reading in engine.restarted():
        history.add(reading)
        news = history.since(0, 0)
        assert news is not None
        for _ in range(2):
            found += [each.text for each in unheard.of(news.reading.runs[0])[0]]
    assert found == TOLD


def test_rates_are_of_one_run_and_not_of_two_of_one_id() -> None:
    engine, history = Engine(), History()
    history.add(engine.scenes())
    history.add(engine.reading(1, 1, rows=10))
    history.add(engine.reading(2, 2, rows=20))
    history.add(engine.reading(5, 0.5, rows=500))
    assert history.rates("run-1") is None
    history.add(engine.reading(6, 1.5, rows=600))
    rates = history.rates("run-1")
    assert rates is not None and (rates.seconds, rates.rows_in_per_s) == (1.0, 100.0)


def test_a_generation_that_counts_anew_has_rates_of_its_own_at_once() -> None:
    """For ten seconds the view had, in place of a rate, what the new generation had taken in by the age of the whole run."""
    engine, history = Engine(), History()
    history.add(engine.scenes())
    for second in range(1_000, 1_006):
        history.add(engine.reading(second, second, rows=100 * second))
    history.add(engine.reading(1_006, 1_006, rows=50))
    history.add(engine.reading(1_007, 1_007, rows=250))
    progress = progress_of(history, "run-1")
    assert progress is not None and progress.rows_in_per_s == 200.0


def test_the_curves_of_a_run_that_is_over_stay() -> None:
    """They were pushed out by its end, told again and again: ten minutes behind a failure nobody saw what had led to it."""
    engine, feed = Engine(), Feed("n", CURVES)
    teller = Teller(feed)
    teller.take(engine.scenes())
    for second in range(1, 11):
        teller.take(engine.reading(second, second, rows=100 * second))
    teller.take(replace(engine.scenes(active=False), number=engine.scene.number + 1))
    for second in range(11, 30 + CURVE_POINTS):
        teller.take(replace(engine.reading(second, 10.2, rows=1000), scene=engine.scene.number + 1))
    data = feed.newer(Position())[1].decode().split("event: past\ndata: ")[1].split("\n")[0]
    assert json.loads(data)["run-1"]["seconds"] == [*map(float, range(2, 11)), 10.2]
