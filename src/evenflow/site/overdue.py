"""User code that does not return: when a person is told, and when the run ends of it (protocol V4). Decides; its world shows it the time.

A thread that hangs cannot be ended in Python, and how many seconds a row takes is no function of its address: replicas that
each skipped a row by their own clock would not skip the same ones. So a time limit ends the run, whatever the box does about
rows on which it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from evenflow.site.facts import PartFailed, UserCodeSlow
from evenflow.site.hosted import Work

SLOW_S: Final = 5.0
"""User code that has run for so long on one epoch is told of."""


@dataclass(frozen=True, slots=True)
class Running:
    """User code that is running. since_s: when it began, by the clock of `look`. where: the stack that it is at, outermost call first."""

    work: Work
    since_s: float
    where: Callable[[], str]


class Overdue:
    """timeout_s: user code that runs for longer on an epoch ends the run; None: never."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._told: UserCodeSlow | None = None
        self._since_s = 0.0
        self._failed = False

    def look(self, running: Running | None, now_s: float) -> list[UserCodeSlow | PartFailed]:
        """What to say of it now. running: None if no user code is."""
        said: list[UserCodeSlow | PartFailed] = []
        told = self._told
        if told is not None and (running is None or running.since_s != self._since_s):
            said.append(UserCodeSlow(told.box, told.epoch, now_s - self._since_s, "", over=True))
            self._told = None
        if running is None:
            return said
        seconds, epoch = now_s - running.since_s, running.work.tick.epoch
        if self._told is None and seconds >= SLOW_S:
            self._told, self._since_s = UserCodeSlow(running.work.hosted.box, epoch, seconds, running.where()), running.since_s
            said.append(self._told)
        if self._timeout_s is not None and seconds >= self._timeout_s and not self._failed:
            self._failed = True
            reason = f"has not returned for {seconds:.1f} s (user_timeout_s is {self._timeout_s:g})"
            said.append(PartFailed(running.work.hosted.box, epoch, running.where(), reason, "BoxFailed"))
        return said

    def slow(self, now_s: float) -> tuple[str, int, float] | None:
        """(box, epoch, seconds) of what was overdue at the last look."""
        return None if self._told is None else (self._told.box, self._told.epoch, now_s - self._since_s)
