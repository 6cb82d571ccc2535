"""How many sites there are: the least that have room for what sources offer, at once if that is more, after a calm if it is fewer.

    need(n)   how busy the busiest of n sites is if all pieces are laid out anew, largest first, by what is offered
    more      the least n with need(n) <= fill, by the present and its trend over the start of an executor, and of which none is
              over 1 with what waits, spread over backlog_s; two looks in a row, and not while the load is still jumping
    fewer     the greatest n that any look of the last calm_s asked for, and the p99 of the last past_s, with need(n) <= rest

It goes by offered load and not by utilization (distribution.md, R2): who is held back is never over 100%. What is missing is asked for in
one step (Kalavri and others, 2018); what is too much goes only when that has been so for minutes, since each change moves state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace
from math import inf
from typing import Final

import numpy as np

from evenflow.errors import PolicyError
from evenflow.policy.hosting import Hosting
from evenflow.policy.offered import loads_of, rates_of, sources_of, structure
from evenflow.statistics.statistics import Statistics
from evenflow.stream.arrays import Floats

STONE: Final = 0.02
"""A piece with less than this share of a site's part, where there are most sites, is sand: it fits anywhere."""
TREND: Final = 1.5
"""A trend may not say that more than so many times as much comes: what comes at once has no trend."""
LEAST_TREND_S: Final = 8.0
JUMP: Final = 1.05
"""A load that is so many times that of the look before is still on its way to somewhere: its window began before it."""
AS_WELL: Final = 0.02
"""Who is busier by less than this share, and than half of what one site of the most brings, does as well."""

BLIND: Final = 20
"""Looks at pieces that move that are passed over."""
SOON: Final = 0.1
LEAST_SOON_S: Final = 4.0
"""Nobody leaves if still fewer would do when this share of the calm has passed again: one change is better than two."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """least, most: sites that there may be."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Times:
    """fill: share of its time that the busiest site may be busy. rest: a site goes only if the others are at most so busy without it: less,
    so that noise around `fill` brings nobody back. past_s: of which the p99 counts. calm_s: so long fewer sites must have been enough.
    start_s: what a site takes to come, over which a trend counts. backlog_s: within which what waits is to be done, with nothing to spare.
    looks: so many in a row must say that more are needed, and twice as many while each sees more than the one before. Raises PolicyError
    for what cannot be."""

    fill: float = 0.8
    rest: float = 0.7
    past_s: float = 600.0
    calm_s: float = 300.0
    start_s: float = 15.0
    backlog_s: float = 30.0
    looks: int = 2

    def __post_init__(self) -> None:
        for name in ("fill", "rest"):
            _judge(name, getattr(self, name), 1.0, "a share of a site's time above 0, at most 1")
        for name in ("past_s", "calm_s", "start_s", "backlog_s"):
            _judge(name, getattr(self, name), inf, "seconds, above 0")
        if not isinstance(self.looks, int) or isinstance(self.looks, bool) or self.looks < 1:
            raise PolicyError(f"looks is {self.looks!r:.40}; it must be a whole number, at least 1")


def _judge(name: str, value: object, most: float, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most or value == inf:
        raise PolicyError(f"{name} is {value!r:.40}; it must be {what}")


@dataclass(frozen=True, slots=True)
class Lately:
    """What a run has shown. learnt: of half a minute, which says what rows cost: an epoch may take seconds, and counts when it begins.
    newest: of the last seconds, which says what is offered. hosting: its layout is known. before: of segments to which nothing has come in
    that half minute, the last that they have shown: all that would have come may be left out."""

    learnt: Statistics
    newest: Statistics
    hosting: Hosting
    before: Statistics = field(default_factory=lambda: Statistics(0, 0, ()))


@dataclass(frozen=True, slots=True)
class Need:
    """One look. load: CPU seconds per second that all pieces need. fullest: need(n), for the least number of sites, the next one, and so
    on. hurried: the same with what waits. overhead: the part of each of these that is the same at every site, however many there are."""

    at_us: int
    load: float
    fullest: tuple[float, ...]
    hurried: tuple[float, ...]
    overhead: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is. sites: that are there or are coming, without those that leave. changing: sites are coming or leaving. moving: pieces
    are. busy: why nobody may leave now, "" if nothing is missing, moving or left out. leaving: sites that are being emptied because of what
    was decided here, and may stay after all."""

    sites: int
    changing: bool = False
    moving: bool = False
    busy: str = ""
    leaving: int = 0


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered from look to look. needs: oldest first. asked: by each of the last calm_s, when, and the fewest sites that would
    have done. more: looks in a row that asked for more. blind: looks in a row at pieces that moved."""

    needs: tuple[Need, ...] = ()
    asked: tuple[tuple[int, int], ...] = ()
    more: int = 0
    blind: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """sites: how many there shall be; as many as there are, if nothing changes. text: why, for people. most_busy: how busy the busiest of
    the most sites that there may be would be by what is offered; None: this look says nothing of that."""

    sites: int
    text: str = ""
    most_busy: float | None = None


def pieces_of(lately: Lately, backlog_s: float) -> Floats:
    """float (2, replicas): CPU seconds per second of each replica of each partition at the offered rates, and with what waits."""
    layout, newest = lately.hosting.layout, lately.newest
    assert layout is not None, "without what feeds what, nobody can say what a source costs"
    known = replace(lately.learnt, sites=(*lately.learnt.sites, *lately.before.sites))
    pieces, coefficients = structure(known, layout, {})
    waits = dict.fromkeys(sources_of(layout), 0.0)
    seconds = max(1, newest.end_us - newest.begin_us) / 1e6
    for window in newest.sites:
        for each in window.sources:  # What has been read and is in no epoch waits, too: as many rows as came in that time.
            rows = max(each.behind or 0, each.offered / seconds * each.waited_us / 1e6)
            waits[each.segment] += rows / backlog_s
    offered = rates_of(newest, layout)
    loads = coefficients @ np.array([offered, offered + np.array(list(waits.values()))]).T
    replicas = np.array([len(lately.hosting.replicas.get(piece, (0,))) for piece in pieces], np.int64)
    if not loads.any():  # Who brings rows does not say how many: what they have cost is all that is known.
        told = loads_of(lately.learnt, {})
        loads = np.array([[told.get(piece, 0.0)] * 2 for piece in pieces]).reshape(-1, 2)
    found: Floats = np.repeat(loads, replicas, axis=0).T
    return found


def overhead_of(all_runs: Iterable[Statistics]) -> float:
    """Mean share of a site's time that is in no segment of any run. How busy a site is, each run's window says of the whole site: what one
    run does is not in the segments of another."""
    busy: dict[int, float] = defaultdict(float)
    inside: dict[int, float] = defaultdict(float)
    for statistics in all_runs:
        for window in statistics.sites:
            if window.end_us > window.begin_us and window.segments:
                length_us = window.end_us - window.begin_us
                busy[window.site] = max(busy[window.site], window.busy_us / length_us)
                inside[window.site] += sum(segment.busy_us for segment in window.segments) / length_us
    return max(0.0, float(np.mean([busy[site] - inside[site] for site in busy]))) if busy else 0.0


def fullest(pieces: Floats, sites: int, stone: float) -> float:
    """How busy the busiest of so many sites is: pieces of at least `stone` one by one, largest first, to the least busy one; then sand."""
    stones, sand = np.sort(pieces[pieces >= stone])[::-1], float(pieces[pieces < stone].sum())
    busy = [0.0] * sites
    heapify(busy)
    for each in stones:
        heapreplace(busy, busy[0] + float(each))
    return max(max(busy), (float(stones.sum()) + sand) / sites)


def need(runs: Sequence[Lately], at_us: int, bounds: Bounds, times: Times) -> Need:
    """What all runs of an engine need together. Cost: O(pieces + stones sites)."""
    pieces = np.concatenate([np.zeros((2, 0)), *(pieces_of(lately, times.backlog_s) for lately in runs)], axis=1)
    overhead, load = overhead_of(lately.learnt for lately in runs), float(pieces[0].sum())

    def busy(of: Floats) -> tuple[float, ...]:
        total = float(of.sum())
        counts = range(bounds.least, bounds.most + 1)
        return tuple(fullest(of, count, total / bounds.most * STONE) + overhead if total else 0.0 for count in counts)

    return Need(at_us, load, busy(pieces[0]), busy(pieces[1]), overhead if load else 0.0)


def decide(past: Past, now: Need, standing: Standing, bounds: Bounds, times: Times) -> tuple[Past, Wanted]:
    """How many sites there shall be, after another look. Nothing is asked for while the last change is not over.

    While pieces move, what was read and is read again at another site counts twice: such looks count only if there are no others.
    """
    if standing.leaving:
        return _while_one_leaves(past, now, standing, bounds, times)
    if standing.moving and past.blind < BLIND:
        return replace(past, blind=past.blind + 1), Wanted(standing.sites)
    past = past if standing.moving else replace(past, blind=0)
    needs = (*(each for each in past.needs if each.at_us > now.at_us - times.past_s * 1e6), now)
    ahead = growth(needs, times.start_s)
    present = tuple(now.overhead + (each - now.overhead) * ahead for each in now.fullest)
    least = max(enough(present, bounds, times.fill), enough(now.hurried, bounds, 1.0))
    usual = tuple(np.quantile([each.fullest for each in needs], 0.99, axis=0, method="higher"))
    quiet = max(least, enough(present, bounds, times.rest), enough(usual, bounds, times.rest))
    since_us = now.at_us - times.calm_s * 1e6
    before = [each for each in past.asked if each[0] <= since_us]
    asked = (*before[-1:], *(each for each in past.asked if each[0] > since_us), (now.at_us, quiet))
    more = past.more + 1 if least > standing.sites else 0
    jumping = len(needs) > 1 and now.load > JUMP * needs[-2].load
    enough_looks = times.looks * (2 if jumping else 1)
    kept = replace(past, needs=needs, asked=asked, more=more)
    most_busy = now.fullest[-1]
    if standing.changing:
        return replace(kept, more=0), Wanted(standing.sites, most_busy=most_busy)
    if standing.sites < bounds.least or more >= enough_looks:
        count = max(least, bounds.least)
        text = f"{standing.sites} sites would be {at(present, standing.sites, bounds):.0%} busy by what is offered, {count}: "
        return replace(kept, more=0), Wanted(count, f"{text}{at(present, count, bounds):.0%}", most_busy)
    fewer = max((count for _, count in asked), default=standing.sites)
    soon = max((count for when, count in asked if when > since_us + max(SOON * times.calm_s, LEAST_SOON_S) * 1e6), default=fewer)
    if before and soon == fewer < standing.sites and not standing.busy:
        text = f"for {times.calm_s:g} s {fewer} sites would have done: {at(usual, fewer, bounds):.0%} busy with what was offered"
        return kept, Wanted(fewer, text, most_busy)
    return kept, Wanted(standing.sites, most_busy=most_busy)


def _while_one_leaves(past: Past, now: Need, standing: Standing, bounds: Bounds, times: Times) -> tuple[Past, Wanted]:
    """Whether more are needed now than will be left: then who is being emptied stays. Pieces move all the while, so twice as many looks in
    a row must say it, and what they have seen is not remembered."""
    least = max(enough(now.fullest, bounds, times.fill), enough(now.hurried, bounds, 1.0))
    more = past.more + 1 if least > standing.sites else 0
    if more < 2 * times.looks:
        return replace(past, more=more), Wanted(standing.sites)
    few, many = (at(now.fullest, sites, bounds) for sites in (standing.sites, least))
    text = f"nobody leaves: {standing.sites} sites would be {few:.0%} busy by what is offered, {least}: {many:.0%}"
    return replace(past, more=0), Wanted(least, text)


def enough(busy: Sequence[float], bounds: Bounds, most: float) -> int:
    """The least number of sites of which the busiest is at most so busy; if none, the least that does as well as the most that there may
    be: sites do nothing about one piece that is too much for any of them."""
    limit = max(most, busy[-1] * (1 + min(AS_WELL, 0.5 / bounds.most)))
    return next(bounds.least + i for i, each in enumerate(busy) if each <= limit)


def at(busy: Sequence[float], sites: int, bounds: Bounds) -> float:
    """need(sites); beyond the bounds in proportion."""
    inside = min(max(sites, bounds.least), bounds.most)
    return float(busy[inside - bounds.least]) * inside / max(1, sites)


def growth(needs: Sequence[Need], start_s: float) -> float:
    """How many times as much is to be expected when a site that is called now has come, from 1 to `TREND`.

    Both halves of the last seconds must rise, and the less steep one counts: what rises at once, and stays, does not rise further.
    """
    span_us = max(LEAST_TREND_S, 2 * start_s) * 1e6
    lately = [each for each in needs if each.at_us > needs[-1].at_us - span_us]
    half = len(lately) // 2
    if half < 4 or lately[-1].load <= 0:
        return 1.0
    slopes = [_slope(part) for part in (lately[:half], lately[half:])]
    return min(TREND, max(1.0, 1 + max(0.0, min(slopes)) * start_s / lately[-1].load))


def _slope(needs: Sequence[Need]) -> float:
    """Of the load, per second, by least squares."""
    count, seconds, loads = len(needs), [(each.at_us - needs[0].at_us) / 1e6 for each in needs], [each.load for each in needs]
    middle, mean = sum(seconds) / count, sum(loads) / count
    return sum((s - middle) * (each - mean) for s, each in zip(seconds, loads)) / sum((s - middle) ** 2 for s in seconds)
