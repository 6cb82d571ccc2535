"""The thread that pastes images: it gives way while nobody waits, and not while something that is lost waits for an image."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evenflow.site.events import Event
from evenflow.site.images import CapturePasted, Hasten, PasteCapture
from evenflow.world.spark.executor import pasting
from evenflow.world.spark.executor.pasting import Pasting
from evenflow.world.spark.net.reactor import Reactor

REST_S = 60.0
"""Longer than anybody here waits for."""


class Long:
    """A paste that rests each time, and says whether it was waked up. resting: it has begun to."""

    def __init__(self) -> None:
        self.resting, self.waked = threading.Event(), list[bool]()

    def paste(self, order: PasteCapture, rest: Callable[[], bool]) -> CapturePasted:
        self.resting.set()
        self.waked.append(rest())
        return CapturePasted(order.unit, 3)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Long:
    """Pastes take long, and rest for a minute."""
    long = Long()
    monkeypatch.setattr(pasting, "paste", long.paste)
    monkeypatch.setattr(pasting, "Rests", lambda wait: lambda: wait(REST_S))
    return long


def thread_of(answers: list[Event]) -> tuple[Pasting, Reactor]:
    reactor = Reactor()
    return Pasting("test", reactor, answers.append), reactor


def capture(unit: int) -> PasteCapture:
    image: Any = None
    return PasteCapture(unit, image, b"")


@pytest.mark.timeout(30)
def test_a_paste_that_rests_goes_on_at_once_when_an_image_is_waited_for_and_so_do_those_behind_it(long: Long) -> None:
    answers: list[Event] = []
    thread, reactor = thread_of(answers)
    thread.ask(capture(1))
    assert long.resting.wait(10.0)
    thread.ask(Hasten(True))
    thread.ask(capture(2))
    while len(answers) < 2:
        reactor.poll(5.0)
    assert answers == [CapturePasted(1, 3), CapturePasted(2, 3)] and long.waked == [True, True]
    thread.close()
    assert thread.join(10.0)
    reactor.close()


@pytest.mark.timeout(30)
def test_it_rests_again_behind_what_was_asked_for_before(long: Long) -> None:
    """Goal: an end that comes late does not end what was asked for again since. Method: asked for twice, ended twice, both in the queue."""
    answers: list[Event] = []
    thread, reactor = thread_of(answers)
    for order in (Hasten(True), capture(1), Hasten(False), Hasten(True), capture(2), Hasten(False)):
        thread.ask(order)
    while len(answers) < 2:
        reactor.poll(5.0)
    assert long.waked == [True, True]
    long.resting.clear()
    thread.ask(capture(3))
    assert long.resting.wait(10.0)
    assert long.waked == [True, True], "it rests"
    thread.close()
    assert thread.join(10.0), "and ends at once when the run does"
    assert long.waked == [True, True, True]
    reactor.close()
