"""What the driver knows of a site that lives: its line, its address, what it has reported; and of one that says hello."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from evenflow.coordinator.fleet import Member
from evenflow.monitor.reading import LogLine
from evenflow.statistics.progress import SiteProcess
from evenflow.world.spark.net import control
from evenflow.world.spark.net.channel import Line
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.handshake import Hello as Greeting

WARNINGS_KEPT: Final = 50


@dataclass(slots=True)
class Warnings:
    """The newest warnings of all sites, those that have died included. count: how many there have been, told or not.

    Filled in the coordinator's thread, read in others.
    """

    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=WARNINGS_KEPT))
    count: int = 0
    _unsaid: dict[int, int] = field(default_factory=dict)

    def take(self, site: int, report: control.Report) -> None:
        for warned in report.warned:
            self.lines.append(LogLine(self.count, warned.at_us, site, warned.level, warned.logger, warned.text))
            self.count += 1
        self.count += max(0, report.unsaid - self._unsaid.get(site, 0))
        self._unsaid[site] = report.unsaid


class Profiles:
    """Profiles that sites have been asked for, by number. In the coordinator's thread."""

    def __init__(self) -> None:
        self._wanted: dict[int, Future[control.Profiled]] = {}
        self._asked = 0

    def expect(self) -> tuple[int, Future[control.Profiled]]:
        """(a number, what comes with it)."""
        self._asked += 1
        found = self._wanted[self._asked] = Future()
        return self._asked, found

    def forget(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._wanted.pop(number, None)

    def take(self, profiled: control.Profiled) -> None:
        waiting = self._wanted.pop(profiled.number, None)
        if waiting is not None:
            waiting.set_result(profiled)


@dataclass(frozen=True, slots=True)
class Hailing:
    """Who has just said hello as a site. address: where it listens. taken: messages that it has of the driver, if it was here before."""

    sock: Connection
    hello: Greeting
    address: tuple[str, int]
    taken: int


@dataclass(slots=True)
class KnownSite:
    """A site that has said hello and is not dead. member: what the fleet knows of it. reported_s: when its
    newest report came, by the driver's monotonic clock."""

    index: int
    line: Line
    hello: Greeting
    address: tuple[str, int]
    member: Member
    report: control.Report | None = None
    reported_s: float = 0.0
    confirmed: int = 0

    @property
    def linked(self) -> bool:
        """It has reached all its peers."""
        return self.member.linked

    @property
    def incarnation(self) -> str:
        return self.member.newcomer.incarnation

    @property
    def executor(self) -> str:
        return str(self.hello["executor"])

    def described(self, *, leaving: bool) -> SiteProcess:
        """What is told of it. leaving: it is emptied, or told to go."""
        report = self.report
        return SiteProcess(
            site=self.index,
            executor=self.executor,
            host=self.hello["host"],
            pid=self.hello["pid"],
            rss_bytes=report.rss_bytes if report else 0,
            pss_bytes=report.pss_bytes if report else 0,
            refused=report.refused if report else 0,
            leaving=leaving,
        )
