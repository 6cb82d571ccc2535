"""How long a site has worked: its loop and its users' threads, together once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from evenflow.statistics.histogram import Histogram, latency_of
from evenflow.world.spark.net import reactor as module
from evenflow.world.spark.net import vitals
from evenflow.world.spark.net.reactor import Clock, Reactor
from evenflow.world.spark.net.vitals import Working


class FakeTime:
    def __init__(self) -> None:
        self.us = 0

    def monotonic_ns(self) -> int:
        return self.us * 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(vitals, "time", made)
    return made


def test_time_in_which_two_work_counts_once(clock: FakeTime) -> None:
    working = Working()  # The loop works.
    clock.us = 10
    working.begin()  # So does a thread,
    clock.us = 30
    working.end()  # which goes on while the loop waits.
    clock.us = 60
    assert working.total_us() == 60
    working.end()
    clock.us = 100
    assert working.total_us() == 60
    working.begin()
    clock.us = 105
    assert working.total_us() == 65


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def test_a_loop_that_waits_does_not_work(reactor: Reactor) -> None:
    before_s, before_us = time.monotonic(), reactor.working.total_us()
    reactor.poll(0.05)
    waited_s, worked_us = time.monotonic() - before_s, reactor.working.total_us() - before_us
    assert waited_s >= 0.05
    assert worked_us < 0.5 * waited_s * 1e6


def test_what_a_loop_is_called_for_is_work(reactor: Reactor) -> None:
    def busily() -> None:
        until_s = time.monotonic() + 0.05
        while time.monotonic() < until_s:
            pass

    reactor.call_later(0.0, busily)
    before_us = reactor.working.total_us()
    reactor.poll(0.0)
    assert reactor.working.total_us() - before_us >= 50_000


def test_the_latency_of_several_histograms_is_of_all_of_them() -> None:
    fast, slow = Histogram(), Histogram()
    fast.add(1_000, times=90)
    slow.add(50_000, times=10)
    latency = latency_of([fast.counts, slow.counts])
    assert latency.count == 100
    assert latency.p50_us == pytest.approx(1_000, rel=0.1)
    assert latency.p99_us == pytest.approx(50_000, rel=0.1)
    assert latency_of([]).count == 0


def test_a_wall_clock_that_jumps_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(time_ns=lambda: 10**18, monotonic_ns=lambda: 5_000)
    monkeypatch.setattr(module, "time", said)
    clock = Clock()
    assert clock.now_us() == 10**15
    said.time_ns, said.monotonic_ns = (lambda: 1), (lambda: 9_000)  # It is 1970 again, and 4 us later.
    assert clock.now_us() == 10**15 + 4
