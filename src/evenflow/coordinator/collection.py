"""A collection of statistics that a run's machine has asked for (`Collect`): when it begins, and when it is whole.

It begins when the run has worked for as long as a machine of this world needs to work as it will. It ends when its time is over and
every site that hosts something has reported: without one of them a policy would take it for idle. A site that never reports again is
declared dead, and is then waited for no more.

A world looks when it is told to, and says what has been reported since the beginning. This file knows no clock.
"""

from __future__ import annotations

from collections.abc import Collection as Container
from dataclasses import dataclass
from typing import Final

from evenflow.coordinator.machine import RunMachine

LATE_REPORT_US: Final = 50_000
"""Until somebody looks again for what is not there yet."""


@dataclass(frozen=True, slots=True)
class Begin:
    """What is reported from now on counts. Look again after that time."""

    after_us: int


@dataclass(frozen=True, slots=True)
class LookAgain:
    """It is not whole. Look again after that time."""

    after_us: int


@dataclass(frozen=True, slots=True)
class Whole:
    """Give the machine what has been reported: it is of the time from begun_us on."""

    begun_us: int


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The run is over: nobody wants to know any more."""


Step = Begin | LookAgain | Whole | CalledOff


class Collection:
    """for_us: how long. warm_us: how long the run must have worked before it begins."""

    def __init__(self, machine: RunMachine, for_us: int, warm_us: int = 0) -> None:
        self._machine, self._for_us, self._warm_us = machine, for_us, warm_us
        self._begun_us: int | None = None

    @property
    def has_begun(self) -> bool:
        """What is reported counts."""
        return self._begun_us is not None

    def look(self, now_us: int, worked_us: int | None, reported: Container[int]) -> Step:
        """worked_us: when the run had its first rows, None if it has had none. reported: sites, since the collection has begun."""
        if self._begun_us is None:
            if worked_us is not None and now_us - worked_us >= self._warm_us:
                self._begun_us = now_us
                return Begin(self._for_us)
        elif now_us < self._begun_us + self._for_us:
            return LookAgain(self._begun_us + self._for_us - now_us)
        elif all(site in reported for site in self._machine.view.active()):
            return Whole(self._begun_us)
        return CalledOff() if self._machine.over else LookAgain(LATE_REPORT_US)
