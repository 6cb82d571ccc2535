"""User code runs beside the loop, and the loop knows when it has come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.site.tally import NowNs
from evenflow.world.spark.executor.user_thread import Ending, UserThread
from evenflow.world.spark.net.reactor import Reactor


class Held:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.hosted = SimpleNamespace(user_code=True)

    def run(self, now_ns: NowNs) -> str:
        self.begun.set()
        self.may_end.wait(20)
        return "done"


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def test_a_thread_whose_code_has_come_back_is_over(reactor: Reactor) -> None:
    outcomes: list[Any] = []
    thread, work = UserThread("user", reactor, outcomes.append), Held()
    thread.submit(work)  # type: ignore[arg-type]
    work.may_end.set()
    reactor.poll(20)
    assert outcomes == ["done"]
    thread.stop()
    assert thread.over(20)


def test_a_thread_whose_code_does_not_come_back_is_not_over(reactor: Reactor) -> None:
    thread, work = UserThread("user", reactor, lambda outcome: None), Held()
    thread.submit(work)  # type: ignore[arg-type]
    assert work.begun.wait(20)
    thread.stop()
    assert not thread.over(0.0)
    work.may_end.set()
    assert thread.over(20)


def test_where_user_code_is_can_be_asked_while_it_runs(reactor: Reactor) -> None:
    thread, work = UserThread("user", reactor, lambda outcome: None), Held()
    assert thread.running() is None
    began_s = time.monotonic()
    thread.submit(work)  # type: ignore[arg-type]
    assert work.begun.wait(20)
    running = thread.running()
    assert running is not None and running.work is work and began_s <= running.since_s <= time.monotonic()  # type: ignore[comparison-overlap]
    assert "may_end.wait(20)" in running.where()
    work.may_end.set()
    thread.stop()
    assert thread.over(20) and thread.running() is None


def test_user_code_beside_the_loop_is_work_of_the_site(reactor: Reactor) -> None:
    done: list[Any] = []
    thread, work = UserThread("user", reactor, done.append), Held()
    before_us, began_s = reactor.working.total_us(), time.monotonic()
    thread.submit(work)  # type: ignore[arg-type]
    assert work.begun.wait(20)
    reactor.poll(0.05)  # The loop has nothing to do.
    worked_us, waited_us = reactor.working.total_us() - before_us, (time.monotonic() - began_s) * 1e6
    work.may_end.set()
    assert waited_us >= 50_000
    assert worked_us > 0.9 * waited_us
    thread.stop()
    assert thread.over(20)


def test_a_part_has_ended_when_what_its_code_was_doing_is_done(reactor: Reactor) -> None:
    """A commit of a table that is under way when a run is stopped: nobody is told that the run has ended before it is there."""
    ending, ended = Ending(reactor), list[str]()
    ending.add(None, lambda: ended.append("a part without user code"))
    assert ended == ["a part without user code"]
    thread, work = UserThread("user", reactor, lambda outcome: None), Held()
    thread.submit(work)  # type: ignore[arg-type]
    assert work.begun.wait(20)
    thread.stop()
    ending.add(thread, lambda: ended.append("committed"))
    reactor.poll(0.05)
    assert ended == ["a part without user code"] and ending.stuck(0.0)
    work.may_end.set()
    assert thread.over(20)
    while "committed" not in ended:
        reactor.poll(1.0)
    assert not ending.stuck(0.0)
