"""Sites that back each other up, in virtual time: rows, captures and pastes share a processor, as in the thesis' own simulator (HW 4.6).

While a site captures it takes no rows in; what came meanwhile it takes in afterwards at full speed. It pastes beside rows, with what they
leave of it. It decides what to do next whenever it has nothing to do: by a schedule of `policy.checkpointing`. Links take no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Final

import numpy as np

from evenflow.policy.backups import Backed, Sites, reassign
from evenflow.policy.checkpointing import Capture, CheckpointUnit, Pending, RowCosts, Sample, Schedule, row_costs
from evenflow.stream.arrays import Floats
from evenflow.stream.ids import SiteId

CAPTURE: Final = RowCosts(18.6e-6, 7.3e-6)
PASTE: Final = RowCosts(30.2e-6, 7.2e-6)
"""Per window that is new, and that is updated (HW 4.6.2)."""
WINDOW_S: Final = 10
TRACE_RATE: Final = 2_000
CLIENTS: Final = 700
"""Of the built-in packet trace: with so many its captures cost twice those of a hundred uniform keys, as the thesis has it (HW 4.6.2)."""
KEYS: Final = 100
KEYS_RATE: Final = 100
PARALLEL: Final = 2
"""Aggregates of a unit."""
INTERVALS_S: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0, 12.0)
SAMPLES: Final = 12
TRACE_S: Final = 48
LEAST_S: Final = 0.25
"""From one capture of a unit to the next at least (HW 4.1.4)."""
AGAIN_S: Final = 0.02
"""After so long a site that had nothing to do looks again."""
EPOCH_S: Final = 5.0
"""A cycle of captures is taken to be over after so long at the latest."""

Changed = Callable[[float], tuple[float, float]]
"""Seconds since a capture, to how many windows are new since, and how many were there and are updated."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of unit. load: by second, CPU-seconds; the last goes on. changed: see Changed. capture, paste: cost of its windows."""

    load: tuple[float, ...]
    changed: Changed
    capture: RowCosts = CAPTURE
    paste: RowCosts = PASTE


def packets(rate: int = TRACE_RATE) -> Changed:
    """Sources of the built-in trace's packets, as many a second."""
    return _table("packets", round(rate, -2) or 100)


def uniform(rate: int = KEYS_RATE) -> Changed:
    """A hundred keys, each as frequent as the others."""
    return _table("uniform", round(rate, -1) or 10)


@cache
def _table(name: str, rate: int) -> Changed:
    rows = rate * TRACE_S
    keys = _trace()[np.arange(rows) % len(_trace())] if name == "packets" else np.random.default_rng(0).integers(0, KEYS, rows)
    times = np.arange(rows) / rate
    found = np.array([_changed(times, keys, interval) for interval in INTERVALS_S]) * PARALLEL

    def changed(interval_s: float) -> tuple[float, float]:
        return float(np.interp(interval_s, INTERVALS_S, found[:, 0])), float(np.interp(interval_s, INTERVALS_S, found[:, 1]))

    return changed


@cache
def _trace() -> np.ndarray:
    from evenflow.sources.packets import CYCLE_ROWS, draw_cycle

    found: np.ndarray = draw_cycle(0, 0, CLIENTS).src.dictionary_encode().indices.to_numpy()[:CYCLE_ROWS]
    return found


def _changed(times: Floats, keys: np.ndarray, interval_s: float) -> tuple[float, float]:
    """Means over SAMPLES times: a key that has come since the capture has a window for each second of the last ten up to its last row,
    and those up to its last row before the capture were there then (HW 4.5.1)."""
    new = updated = 0.0
    for now in np.linspace(2 * WINDOW_S + 3.05, TRACE_S - 1.05, SAMPLES):
        first = np.floor(now - WINDOW_S)
        since, after, end = np.searchsorted(times, [now - interval_s - WINDOW_S, now - interval_s, now])
        last, before = np.full((2, keys.max() + 1), -inf)
        before[keys[since:after]] = times[since:after]
        last[keys[after:end]] = times[after:end]
        came = last > -inf
        there = np.maximum(np.floor(before[came]), first)
        new += float((np.floor(last[came]) - there).sum())
        updated += float((there - first).sum())
    return new / SAMPLES, updated / SAMPLES


@dataclass(slots=True)
class _Unit:
    """captured_s: start of the last capture that its backup has. free_s: since when it can be captured; None while a capture of it is under
    way or not yet pasted. to_paste_s: left of what its backup has not pasted. whole: its next capture is one of everything. work_s: CPU
    seconds on its image, captures: how many, seen_s: sum of its recovery times when looked at; in this cycle. moves_to: the backup that it
    gets when it can be captured again."""

    kind: Kind
    total: Floats
    backup: int
    captured_s: float = 0.0
    free_s: float | None = 0.0
    to_paste_s: float = 0.0
    whole: bool = True
    work_s: float = 0.0
    captures: int = 0
    seen_s: float = 0.0
    moves_to: int | None = None

    def used_s(self, now: float) -> float:
        """CPU-seconds that its rows have taken up to now."""
        second = min(int(now), len(self.total) - 2)
        return float(self.total[second] + (now - second) * self.load(now))

    def load(self, now: float) -> float:
        return self.kind.load[min(int(now), len(self.kind.load) - 1)]


@dataclass(slots=True)
class _Site:
    units: list[_Unit]
    backlog_s: float = 0.0
    capture: tuple[list[int], float, float] | None = None
    """Which units, since when, until when."""
    pasting: tuple[int, int] | None = None
    got: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)
    """By primary: its units whose captures wait here, and since when."""
    samples: list[Sample] = field(default_factory=list)
    look_s: float = 0.0
    most_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """at_s: when it was looked. recovery_s: then, mean over the sites that may die (HW 4.8.1). delay_s: the most that a row waited behind a
    capture. captures: by unit of the first site. costs: of windows, as the first site knows them from what its captures took. moved: units
    that got another backup. by_backup: of the first site, recovery by the end."""

    at_s: Floats
    recovery_s: Floats
    delay_s: float
    captures: tuple[int, ...]
    costs: RowCosts
    moved: int

    def mean_s(self, since_s: float) -> float:
        return float(self.recovery_s[self.at_s >= since_s].mean())


class Cluster:
    """sites: kinds of the units of each. backups: of each unit of each site, the site that backs it up. noise: by how much what a capture
    takes differs from what it is expected to, relative; drawn from `random`."""

    def __init__(
        self,
        sites: Sequence[Sequence[Kind]],
        backups: Sequence[Sequence[int]],
        schedule: Schedule,
        *,
        random: np.random.Generator,
        noise: float = 0.02,
        balanced: bool = False,
    ) -> None:
        self.now, self._schedule, self._random, self._noise, self._balanced = 0.0, schedule, random, noise, balanced
        self._sites = [
            _Site([_Unit(kind, _total(kind), backup) for kind, backup in zip(kinds, to, strict=True)])
            for kinds, to in zip(sites, backups, strict=True)
        ]
        self._captures = [0] * len(sites[0])
        self._epoch_s, self._looks, self._moved = 0.0, 0, 0

    def run(self, until_s: float, every_s: float = 0.1) -> Seen:
        """What is seen up to `until_s`, at these intervals."""
        at, recovery, look = [], [], every_s
        while self.now < until_s:
            for index, site in enumerate(self._sites):
                if site.capture is None and site.backlog_s <= 1e-12 and site.pasting is None and self.now >= site.look_s - 1e-12:
                    self._decide(index, site)
            to = min(look, float(int(self.now + 1e-9) + 1), *(self._next(site) for site in self._sites))
            self._advance(max(to - self.now, 1e-9))
            if self.now >= look - 1e-9:
                at.append(self.now)
                recovery.append(self._recovery_s())
                look += every_s
                if self._balanced:
                    self._end_cycle()
        most = max(site.most_s for site in self._sites)
        return Seen(np.array(at), np.array(recovery), most, tuple(self._captures), row_costs(self._sites[0].samples), self._moved)

    def _load(self, site: _Site) -> float:
        return sum(unit.load(self.now + 1e-9) for unit in site.units)

    def _next(self, site: _Site) -> float:
        """When something ends at this site, if its load stays as it is."""
        idle = 1 - self._load(site)
        if site.capture is not None:
            return site.capture[2]
        if site.backlog_s > 1e-12:
            return self.now + site.backlog_s / idle if idle > 0 else inf
        if site.pasting is not None:
            return self.now + self._pasted(site).to_paste_s / idle if idle > 0 else inf
        return max(site.look_s, self.now + 1e-6)

    def _pasted(self, site: _Site) -> _Unit:
        assert site.pasting is not None
        primary, unit = site.pasting
        return self._sites[primary].units[unit]

    def _advance(self, step_s: float) -> None:
        for index, site in enumerate(self._sites):
            load = self._load(site)
            if site.capture is not None:
                site.backlog_s += load * step_s
                site.most_s = max(site.most_s, self.now + step_s - site.capture[1])
                if self.now + step_s >= site.capture[2] - 1e-9:
                    self._captured(index, site, self.now + step_s)
            elif site.backlog_s > 1e-12 or load >= 1:
                site.backlog_s = max(0.0, site.backlog_s - (1 - load) * step_s)
            elif site.pasting is not None:
                unit = self._pasted(site)
                unit.to_paste_s -= (1 - load) * step_s
                if unit.to_paste_s <= 1e-9:
                    unit.to_paste_s, unit.free_s, site.pasting = 0.0, self.now + step_s, None
                    self._move(unit)
        self.now += step_s

    def _captured(self, index: int, site: _Site, now: float) -> None:
        assert site.capture is not None
        which, begun, _ = site.capture
        site.capture = None
        for number in which:
            unit = site.units[number]
            new, updated = self._changes(unit, begun)
            unit.to_paste_s = unit.kind.paste.of(new, updated)
            unit.work_s += unit.to_paste_s
            unit.captured_s, unit.whole = begun, False
            unit.captures += 1
            self._captures[number] += index == 0
            self._sites[unit.backup].got.setdefault(index, deque()).append((number, now))
            self._sites[unit.backup].look_s = now

    def _changes(self, unit: _Unit, now: float) -> tuple[int, int]:
        if unit.whole:
            return round(unit.kind.changed(float(WINDOW_S))[0]), 0
        new, updated = unit.kind.changed(now - unit.captured_s)
        return round(new), round(updated)

    def _units(self, index: int) -> list[CheckpointUnit]:
        found = []
        for number, unit in enumerate(self._sites[index].units):
            new, updated = self._changes(unit, self.now)
            load, behind = unit.load(self.now), unit.used_s(self.now) - unit.used_s(unit.captured_s)
            capture, paste = unit.kind.capture.of(new, updated), unit.kind.paste.of(new, updated)
            since = unit.free_s if self.now - unit.captured_s >= LEAST_S else None
            found.append(CheckpointUnit(number, SiteId(unit.backup), load, behind, unit.to_paste_s, capture, paste, since))
        return found

    def _decide(self, index: int, site: _Site) -> None:
        pending = []
        for primary, queue in sorted(site.got.items()):
            if queue:
                number, since = queue[0]
                here = [unit for unit in self._sites[primary].units if unit.backup == index]
                recovery = sum(unit.to_paste_s + unit.used_s(self.now) - unit.used_s(unit.captured_s) for unit in here)
                load = sum(unit.load(self.now) for unit in here)
                pending.append(Pending(SiteId(primary), number, self._sites[primary].units[number].to_paste_s, since, recovery, load))
        task = self._schedule(self._units(index), pending, self._load(site))
        if task is None:
            site.look_s = self.now + AGAIN_S
        elif isinstance(task, Capture):
            takes = 0.0
            for number in task.units:
                unit = site.units[number]
                new, updated = self._changes(unit, self.now)
                cost = unit.kind.capture.of(new, updated) * (1 + self._noise * self._random.standard_normal())
                site.samples.append(Sample(new, updated, cost))
                unit.free_s = None
                unit.work_s += cost
                takes += cost
            site.capture = (list(task.units), self.now, self.now + takes)
        else:
            number, _ = site.got[task.primary].popleft()
            site.pasting = (task.primary, number)

    def _move(self, unit: _Unit) -> None:
        if unit.moves_to is not None and unit.free_s is not None:
            unit.backup, unit.whole, unit.moves_to = unit.moves_to, True, None

    def _recovery_s(self) -> float:
        total = 0.0
        for site in self._sites:
            by_backup: dict[int, float] = {}
            for unit in site.units:
                recovery = unit.to_paste_s + unit.used_s(self.now) - unit.used_s(unit.captured_s)
                by_backup[unit.backup] = by_backup.get(unit.backup, 0.0) + recovery
                unit.seen_s += recovery
            total += max(by_backup.values(), default=0.0)
        self._looks += 1
        return total / len(self._sites)

    def _end_cycle(self) -> None:
        """Reassign backups when every unit has been captured once in the cycle. One whose capture is under way keeps its own."""
        units = [unit for site in self._sites for unit in site.units]
        if self.now < self._epoch_s + EPOCH_S and not all(unit.captures for unit in units):
            return
        known: list[Backed] = []
        at: dict[int, _Unit] = {}
        for primary, site in enumerate(self._sites):
            for unit in site.units:
                number = len(known)
                at[number] = unit
                known.append(Backed(number, SiteId(primary), SiteId(unit.backup), unit.seen_s / self._looks, max(unit.work_s, 1e-6)))
        for moved in reassign(known, Sites({SiteId(site): f"host{site}" for site in range(len(self._sites))})):
            at[moved.unit].moves_to = moved.backup
            self._move(at[moved.unit])
            self._moved += 1
        for unit in units:
            unit.captures, unit.work_s, unit.seen_s = 0, 0.0, 0.0
        self._epoch_s, self._looks = self.now, 0


def _total(kind: Kind) -> Floats:
    """CPU-seconds up to each second, and one second more."""
    return np.concatenate([[0.0], np.cumsum([*kind.load, kind.load[-1]])])


def spread(sites: int, units: int) -> list[list[int]]:
    """Backups dealt out evenly: each unit of a site at the next other site."""
    return [[(site + 1 + unit % (sites - 1)) % sites for unit in range(units)] for site in range(sites)]


def drawn(sites: int, units: int, random: np.random.Generator) -> list[list[int]]:
    """Each unit's backup is any other site."""
    return [[int((site + 1 + random.integers(sites - 1)) % sites) for _ in range(units)] for site in range(sites)]
