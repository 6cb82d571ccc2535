"""What the sites of a run report for a round of moves: from when on it is collected, and when it is enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol, assert_never

from evenflow.coordinator.collection import Begin, CalledOff, Collection, LookAgain, Whole
from evenflow.coordinator.events import Collected
from evenflow.coordinator.machine import RunMachine
from evenflow.statistics.statistics import Statistics
from evenflow.world.spark.driver.run_numbers import RunNumbers
from evenflow.world.spark.net.reactor import Clock

WARM_S: Final = 1.0
"""Rounds begin so long after the first rows. Until then sites do everything for the first time, and the one with most of that would look
overloaded: it gave all that it had away, which took ten seconds to mend."""


class Later(Protocol):
    """What this asks of the coordinator."""

    clock: Clock

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None: ...


def collect(machine: RunMachine, numbers: RunNumbers, calls: Later, for_us: int, done: Callable[[Collected], None]) -> None:
    """What the sites report from now on; what their reports cover of the time before is small. done: hears it, if it is still wanted."""
    collection = Collection(machine, for_us, int(WARM_S * 1e6))
    seen: int | None = None

    def look() -> None:
        nonlocal seen
        now_us, worked_s = calls.clock.now_us(), numbers.worked_s
        worked_us = None if worked_s is None else now_us - int((time.monotonic() - worked_s) * 1e6)
        statistics = Statistics.of(()) if seen is None else numbers.since(seen)
        match collection.look(now_us, worked_us, {window.site for window in statistics.sites}):
            case Begin(after_us):
                seen = numbers.count()
                calls.call_later(after_us / 1e6, look)
            case LookAgain(after_us):
                calls.call_later(after_us / 1e6, look)
            case Whole(begun_us):
                done(Collected(statistics, begun_us, now_us))
            case CalledOff():
                pass
            case step:
                assert_never(step)

    look()
