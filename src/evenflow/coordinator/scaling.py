"""How many sites an engine has, as its runs show it: what `policy.scaling` asks for, and what newcomers are given.

    each look: what runs have shown since the last one -> Need -> Wanted -> more: sites are called for; fewer: one is drained, then the next
    a site has come and hosts nothing -> `policy.spreading` -> moves, as soon as nothing is missing or under way

A world brings statistics and the time, calls for sites and drains them. It knows no executor, and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from evenflow.coordinator.balancing import is_calm, is_wanted
from evenflow.coordinator.machine import RunMachine
from evenflow.policy.hosting import Hosting
from evenflow.policy.move import Move
from evenflow.policy.offered import loads_of
from evenflow.policy.scaling import Bounds, Lately, Past, Standing, Times, Wanted, decide, need
from evenflow.policy.spreading import spread
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow

PARTS: Final = 6
PART_US: Final = 5_000_000
"""What rows cost is learnt from so many parts of the past, of this length: half a minute."""
MOVES: Final = "something moves"
LEFT_OUT: Final = "rows are left out"
DUST: Final = 6
"""Looks that are passed over when something has moved, the one that saw it included: what was read is read again."""
OVER_LOOKS, UNDER_LOOKS = 4, 30
"""So many looks in a row must see that the most sites are not enough, or that they are, before that is said, or is over."""
NEWEST: Final = 3
"""What is offered is that of so many looks; of fewer after something has moved."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run's machine says of itself. hosting: inputs may move. busy: what comes before a site may leave, "" if nothing does; but for
    rows that are left out it comes before a site gets its part, too."""

    hosting: Hosting
    busy: str = ""

    @staticmethod
    def of(machine: RunMachine) -> Facts:
        return Facts(machine.rounds.hosting(inputs=True), busy_by(machine))

    @property
    def newcomers(self) -> tuple[int, ...]:
        """Sites that may host, and have nothing."""
        hosts = {site for replicas in self.hosting.replicas.values() for site in replicas}
        return tuple(site for site in self.hosting.capacity if site not in hosts)


def busy_by(machine: RunMachine) -> str:
    if not machine.running:
        return "a run begins"
    if machine.recovery.missing:
        return "something is missing"
    if machine.moving.begun or not (is_calm(machine) or _keeps_only(machine)):
        return MOVES
    return LEFT_OUT if any(machine.plan.settings.keeps) or machine.proposed is not None else ""


def _keeps_only(machine: RunMachine) -> bool:
    """Nothing is under way but a plan that leaves out other rows, or none: under overload there is one all the time."""
    plan = machine.proposed
    if plan is None or plan.copies or plan.settings.keeps == machine.plan.settings.keeps:
        return False
    return not (machine.membership.joining or machine.moving.unconfirmed or is_wanted(machine))


@dataclass(slots=True)
class Seen:
    """What one run has shown. newest: the last looks. parts: what came before, each of some seconds, with the open one. _before: by
    segment, of the newest part that is over and in which rows came to it, the sites' windows without anything else."""

    newest: deque[Statistics] = field(default_factory=lambda: deque(maxlen=NEWEST))
    parts: deque[Statistics] = field(default_factory=lambda: deque(maxlen=PARTS))
    _before: dict[int, tuple[SiteWindow, ...]] = field(default_factory=dict)

    def add(self, statistics: Statistics) -> None:
        if not statistics.sites or statistics.end_us <= statistics.begin_us:
            return
        self.newest.append(statistics)
        if self.parts and self.parts[-1].end_us - self.parts[-1].begin_us < PART_US:
            self.parts[-1] = _together((self.parts[-1], statistics))
        else:
            if self.parts:
                self._before |= _by_segment(self.parts[-1])
            self.parts.append(statistics)

    def lately(self, hosting: Hosting) -> Lately:
        learnt = _together(self.parts)
        shown = _by_segment(learnt)
        before = (window for segment, windows in sorted(self._before.items()) if segment not in shown for window in windows)
        return Lately(learnt, _together(self.newest), hosting, Statistics(0, 0, tuple(before)))


def _by_segment(statistics: Statistics) -> dict[int, tuple[SiteWindow, ...]]:
    """Windows with one segment each, of segments to which rows came."""
    found: dict[int, list[SiteWindow]] = {}
    for window in statistics.sites:
        for each in window.segments:
            if any(each.rows):
                found.setdefault(each.segment, []).append(replace(window, busy_us=0, segments=(each,), sources=()))
    return {segment: tuple(windows) for segment, windows in found.items()}


def _together(parts: Iterable[Statistics]) -> Statistics:
    return Statistics.of([window for each in parts for window in each.sites])


class Scaling:
    """bounds: of the number of sites. aim: how many there shall be. changes: how often that became another number. overloaded: more is
    offered than the most sites can do, so nothing is left that could be done about it here; why, for people, "" if that is not so.

    It begins with as many as there are, and looks once a second.
    """

    def __init__(self, bounds: Bounds, times: Times, sites: int) -> None:
        self.bounds, self.times, self.aim = bounds, times, sites
        self.changes = self._dust = self._looks = 0
        self.overloaded = ""
        self._past, self._seen = Past(), dict[int, Seen]()

    def look(self, told: Mapping[int, tuple[Facts, Statistics]], there: int, at_us: int, *, changing: bool, leaving: int = 0) -> Wanted:
        """What there shall be now. told: by run, those that are under way, with what has come since the last look. there: sites without
        those that leave. changing: sites are being called for, or emptied. leaving: sites that are being emptied because of an earlier
        look; if more are wanted than are there, they are to stay."""
        self._seen = {run: self._seen.get(run, Seen()) for run in told}
        if any(facts.busy == MOVES for facts, _ in told.values()):
            self._dust = DUST
        moving, self._dust = self._dust > 0, max(0, self._dust - 1)
        for run, (_, statistics) in told.items():
            if moving:
                self._seen[run].newest.clear()
            self._seen[run].add(statistics)
        runs = [self._seen[run].lately(facts.hosting) for run, (facts, _) in told.items() if self._seen[run].newest]
        if not runs:
            return Wanted(there)
        busy = next((facts.busy for facts, _ in told.values() if facts.busy), "") or _left_out(runs)
        newest = need(runs, at_us, self.bounds, self.times)
        self._past, wanted = decide(self._past, newest, Standing(there, changing, moving, busy, leaving), self.bounds, self.times)
        self._judge(wanted.most_busy)
        if wanted.sites not in (there, self.aim):
            self.changes += 1
        if wanted.sites != there:
            self.aim = wanted.sites
        return wanted

    def _judge(self, most_busy: float | None) -> None:
        """Whether the most sites are enough; what one look sees may be a wave."""
        if most_busy is None:
            return
        self._looks = self._looks + 1 if (most_busy > 1.0) != bool(self.overloaded) else 0
        if self._looks < (UNDER_LOOKS if self.overloaded else OVER_LOOKS):
            return
        self._looks, most = 0, self.bounds.most
        busy = f"the busiest of {most} sites, the most that there may be, would be {most_busy:.0%} busy by what is offered"
        self.overloaded = "" if self.overloaded else f"{busy}: rows wait, or are left out"

    def settle(self, run: int, facts: Facts) -> tuple[Move, ...]:
        """What brings sites that host nothing their part; nothing as long as something else comes first. They have been called for because
        rows are left out: that is no reason to wait."""
        newcomers = facts.newcomers
        if facts.busy not in ("", LEFT_OUT) or not newcomers:
            return ()
        seen = self._seen.get(run)
        loads = loads_of(_together(seen.newest), {}) if seen is not None and seen.newest else None
        return spread(facts.hosting, newcomers, loads)


def _left_out(runs: Iterable[Lately]) -> str:
    dropped = sum(sum(each.dropped) for lately in runs for window in lately.newest.sites for each in window.sources)
    return LEFT_OUT if dropped else ""
