"""A run that lasts for months keeps its newest events and says how many it has forgotten."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from tests.world.test_watching import Sites, small_run, soon, told

from evenflow.coordinator.events import Happened, Kind
from evenflow.world.spark.driver.happenings import KEPT, Happenings
from evenflow.world.spark.driver.watching import Watcher


def filled(count: int) -> Happenings:
    happenings = Happenings(0.0)
    for number in range(count):
        happenings.note(Happened(Kind.CHECKPOINT_COMPLETED, -1, str(number), {}), float(number))
    return happenings


def test_the_newest_are_kept_and_all_are_counted() -> None:
    happenings = filled(KEPT + 5)
    assert [event["text"] for event in happenings.all()] == [str(number) for number in range(5, KEPT + 5)]
    news, count = happenings.since(KEPT + 2)
    assert ([event["text"] for event in news], count) == ([str(KEPT + 2), str(KEPT + 3), str(KEPT + 4)], KEPT + 5)
    assert happenings.since(count) == ([], count) and happenings.since(count + 9) == ([], count)
    news, count = happenings.since(0)
    assert (len(news), count - len(news), news[0]["text"]) == (KEPT, 5, "5")


def test_what_is_new_costs_what_is_new() -> None:
    """A command looks four times a second."""
    happenings = filled(KEPT)
    began_s = time.thread_time()
    for _ in range(1_000):
        happenings.since(KEPT - 1)
    assert time.thread_time() - began_s < 0.25, "copying all of them takes some 50 us each time, and a look at the last one 1"


def test_a_run_says_how_many_there_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.world.spark.driver.happenings.KEPT", 3)
    driven, run = small_run()
    for number in range(5):
        driven.record(Kind.DISK_TROUBLE, str(number))
    assert [event["text"] for event in run.events()] == ["2", "3", "4"]
    news, count = run.events_since(4)
    assert ([event["text"] for event in news], count) == (["4"], 5)


def test_who_watches_late_is_told_what_is_kept_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenflow.world.spark.driver.happenings.KEPT", 3)
    driven, run = small_run()
    for number in range(5):
        driven.record(Kind.DISK_TROUBLE, str(number))
    watcher = Watcher(SimpleNamespace(runs=(run,)), Sites(2), "e1", "app")  # type: ignore[arg-type]
    first = told(watcher.news(0, 0)[2])[-1].runs[0].events
    assert [(event.number, event.text) for event in first] == [(2, "2"), (3, "3"), (4, "4")]
    driven.record(Kind.DISK_TROUBLE, "5")
    soon(watcher)
    (reading,) = told(watcher.news(1, 1)[2])
    assert [(event.number, event.text) for event in reading.runs[0].events] == [(5, "5")]
