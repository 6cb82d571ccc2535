"""What sites would have to do at other rates than those of now: what rounds weigh beside the present (distribution.md, rounds).

What a segment costs is linear in what the sources offer, and a partition has its share of its segment. So a scenario, a vector of
rates, says what every site would do where its partitions are. The past is how sources burst together (BO 3.1), the simplex are all mixes
of them (BO 3.2). With one source every scenario is the present, more or less of it, and then there is nothing to weigh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Final

import numpy as np

from evenflow.plan.layout import Layout
from evenflow.policy.forecast import Known, once
from evenflow.policy.hosting import Hosting
from evenflow.policy.linear import Model
from evenflow.policy.load import PartitionLoad, SiteLoad
from evenflow.policy.offered import STEPS_US, Series, corrected, counted, rates_of, reach, sources_of
from evenflow.policy.potential import NOW, POWER, Scenarios
from evenflow.statistics.statistics import Statistics
from evenflow.stream.arrays import Floats

HORIZON_US: Final = 60_000_000
"""Rows that came so long ago count 1/e: selectivity between two emissions of a window seems 0, so it is that of many."""
ENOUGH: Final = 8
"""Windows of a series from which something is learnt."""
ALIKE: Final = 1e-3
"""Segments whose parts of all scenarios differ by less than this are no reason to be anywhere else."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What is remembered of what sources offered and of what came of it, older things counting less.

    entered: by segment, rows. put: by arc, rows. busy_us: by segment, at a site of capacity 1. series: rates of sources, and what one
    copy of each segment cost, at one second and at ten.
    """

    entered: Mapping[int, float] = field(default_factory=dict)
    put: Mapping[int, float] = field(default_factory=dict)
    busy_us: Mapping[int, float] = field(default_factory=dict)
    series: tuple[Series, ...] = tuple(Series(step_us) for step_us in STEPS_US)

    def then(self, statistics: Statistics, hosting: Hosting, slowness: Mapping[int, float]) -> Offered:
        """With another window; as it was if the hosting does not say what feeds what, or nothing could be told apart."""
        layout, window_us = hosting.layout, statistics.end_us - statistics.begin_us
        if layout is None or len(sources_of(layout)) < 2 or window_us <= 0:
            return self
        kept = exp(-window_us / HORIZON_US)
        entered, put = counted(statistics)
        busy_us: dict[int, float] = defaultdict(float)
        for window in statistics.sites:
            for segment in window.segments:
                busy_us[segment.segment] += segment.busy_us / slowness.get(window.site, 1.0)
        copies: dict[int, float] = defaultdict(float)
        for (segment_id, _), rows in once(statistics, hosting).items():
            copies[segment_id] += rows
        numbers = tuple((segment.id, 0) for segment in layout.segments)
        loads = np.array([copies[s] * busy_us[s] / entered[s] / window_us if entered[s] else 0.0 for s, _ in numbers])
        rates = rates_of(statistics, layout)
        return Offered(
            _added(self.entered, entered, kept),
            _added(self.put, put, kept),
            _added(self.busy_us, busy_us, kept),
            tuple(series.add(numbers, rates, loads, window_us) for series in self.series),
        )

    def coefficients(self, layout: Layout) -> Floats:
        """float (segments, sources): CPU seconds of one copy of a segment, at a site of capacity 1, per row that a source offers."""
        found = reach(self.entered, self.put, layout)
        for segment in layout.segments:
            rows = self.entered.get(segment.id, 0.0)
            found[segment.id] *= self.busy_us.get(segment.id, 0.0) / rows / 1e6 if rows else 0.0
        lately = self.series[0]
        return corrected(found, lately.rates.astype(np.float64), lately.loads.astype(np.float64))

    def mixed(self, sites: Sequence[SiteLoad], hosting: Hosting, known: Known, slowness: Mapping[int, float]) -> Mixed | None:
        """What the sites would do in all scenarios; None if too little has been seen, or all scenarios are alike.

        sites: as forecast, from which the present is taken.
        """
        layout = hosting.layout
        if layout is None or len(self.series[0].rates) < ENOUGH or len(sites) < 2:
            return None
        coefficients = self.coefficients(layout)
        past = np.concatenate([series.rates for series in self.series]).astype(np.float64)
        used = coefficients.sum(axis=0) > 0
        if used.sum() < 2:
            return None
        model = Model(coefficients[:, used], np.ones(len(sites)))
        scenarios = Scenarios.of(model, past=past[:, used])
        segments = model.coefficients @ scenarios.rates.T
        parts = segments / segments.sum(axis=0)
        if float(np.ptp(parts, axis=1).max()) < ALIKE:
            return None
        return Mixed.of(sites, hosting, known, slowness, scenarios, segments)


class Mixed:
    """The sites in all scenarios while a round's moves are being chosen. The first scenario is the present, as utilization; the others are
    scaled so that the mean of all sites is that of the present."""

    def __init__(self, weights: Floats, loads: dict[int, Floats], units: Floats, known: Known, slowness: Mapping[int, float]) -> None:
        """weights: float (scenarios,). loads: by site, float (scenarios,). units: float (segments, scenarios - 1), a whole segment."""
        self.weights, self.loads = weights, loads
        self._units, self._shares, self._slowness = units, known.shares(), slowness

    @staticmethod
    def of(
        sites: Sequence[SiteLoad], hosting: Hosting, known: Known, slowness: Mapping[int, float], scenarios: Scenarios, segments: Floats
    ) -> Mixed:
        shares, seen_us = known.shares(), max(1.0, known.seen_us)
        does = {site.site: np.full(segments.shape[1], max(0.0, known.overhead_us.get(site.site, 0.0)) / seen_us) for site in sites}
        for (segment, partition), replicas in hosting.replicas.items():
            for at in replicas:
                if at in does:
                    does[at] += segments[segment] * (shares.get((segment, partition), 0.0) * slowness.get(at, 1.0))
        now = float(np.mean([site.utilization for site in sites]))
        scale = now / np.maximum(np.mean(list(does.values()), axis=0), 1e-12)
        loads = {site.site: np.concatenate([[site.utilization], does[site.site] * scale]) for site in sites}
        weights = np.concatenate([[NOW], scenarios.weights * (1 - NOW)])
        return Mixed(weights, loads, segments * scale, known, slowness)

    def vectors(self, pieces: Sequence[PartitionLoad], site: int, now: Sequence[float]) -> Floats:
        """float (pieces, scenarios): what they cost at the site. now: in the present."""
        slow = self._slowness.get(site, 1.0)
        shares = np.array([self._shares.get((piece.segment, piece.partition), 0.0) * slow for piece in pieces])
        rest = self._units[[piece.segment for piece in pieces]] * shares[:, None]
        found: Floats = np.concatenate([np.array(now, np.float64)[:, None], rest], axis=1)
        return found

    def gains(self, pieces: Sequence[PartitionLoad], donor: int, receiver: int, gained: Sequence[float]) -> Floats:
        """float (pieces,): by how much the busier of the two gets less to do, over all scenarios, by moving each."""
        mine, theirs = self.loads[donor], self.loads[receiver]
        less = mine - self.vectors(pieces, donor, [piece.cpu_share for piece in pieces])
        more = theirs + self.vectors(pieces, receiver, gained)
        found: Floats = (np.maximum(mine, theirs) - np.maximum(less, more)) @ self.weights
        return found

    def move(self, piece: PartitionLoad, donor: int, receiver: int, gained: float, *, back: bool = False) -> None:
        sign = -1.0 if back else 1.0
        self.loads[donor] = self.loads[donor] - sign * self.vectors([piece], donor, [piece.cpu_share])[0]
        self.loads[receiver] = self.loads[receiver] + sign * self.vectors([piece], receiver, [gained])[0]

    def worth(self, loads: Floats) -> Floats:
        """The potential of sites with these loads, float (..., scenarios)."""
        found: Floats = loads**POWER @ self.weights
        return found


def _added(before: Mapping[int, float], now: Mapping[int, float], kept: float) -> dict[int, float]:
    found = {at: count * kept for at, count in before.items()}
    for at, count in now.items():
        found[at] = found.get(at, 0.0) + count
    return found
