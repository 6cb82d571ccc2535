"""The query of HW figure 5.2 at thirty distant sites, its replicas, and a month of it (HW 5.5.1).

What each site says of its load and of its paths is merged at two unions and joined; filters and applications are behind the joins. Each
operator has up to four replicas, which never coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.experiments.harness.arrivals import WIDTH_S, Flow, Hedge, surveyed, weighed
from evenflow.experiments.harness.distant_sites import DAY, Trace
from evenflow.experiments.harness.hops import Hops
from evenflow.policy.wide_area.deploy import deploy
from evenflow.policy.wide_area.discard import Input, discards
from evenflow.policy.wide_area.legs import Arrow, Deployment, Leg, Replica, cost, legs_of
from evenflow.stream.arrays import Floats

SEED: Final = 2007
JOINS: Final = 5
APPLICATIONS: Final = 10
K_MAX: Final = 4
ALPHA: Final = 0.8
D_MIN_MS: Final = 30.0
LOADS: Final = {"union": 0.05, "join": 0.1, "filter": 0.02}
"""Of a site, for each replica."""
PER_S: Final = 1 / WIDTH_S
"""Rows of a source."""
HELD: Final = 60
"""Epochs for which a leg that was asked again stays: ten minutes."""
HOUR: Final = 360
"""Epochs."""
EARLY: Final = 0.999
MARGIN: Final = 1.1
"""A leg is asked again when an input is a tenth later than nearly all epochs of the test run."""
SECOND_MS: Final = 1000.0
ROOM: Final = 1.05
"""By how much p99.9 may grow where legs are left out."""


@dataclass(frozen=True, slots=True)
class Query:
    """rate: of each arrow, rows/s. pinned: sites of sources and applications."""

    ops: tuple[str, ...]
    rate: Mapping[Arrow, float]
    load: Mapping[str, float]
    pinned: Mapping[str, int]

    @property
    def applications(self) -> tuple[str, ...]:
        return tuple(name for name in self.pinned if name.startswith("app"))


def query(sites: int, random: np.random.Generator) -> Query:
    """Of HW figure 5.2, with five joins and ten applications at sites by chance. A row of each source makes one row of every join."""
    kinds = ("loads", "paths")
    ops = [*(f"union {kind}" for kind in kinds), *(f"join {j}" for j in range(JOINS)), *(f"filter {a}" for a in range(APPLICATIONS))]
    pinned = {f"{kind} of {site}": site for kind in kinds for site in range(sites)}
    rate: dict[Arrow, float] = {(f"{kind} of {site}", f"union {kind}"): PER_S for kind in kinds for site in range(sites)}
    for join in range(JOINS):
        rate |= {(f"union {kind}", f"join {join}"): sites * PER_S for kind in kinds}
    at = random.permutation(sites)
    for number in range(APPLICATIONS):
        rate[f"join {number % JOINS}", f"filter {number}"] = sites * PER_S
        rate[f"filter {number}", f"app {number}"] = sites * PER_S
        pinned[f"app {number}"] = int(at[number])
    return Query(tuple(ops), rate, {op: LOADS[op.split()[0]] for op in ops}, pinned)


def min_cost(asked: Query, latency_ms: Floats, k: int) -> Deployment:
    sites = (1.0,) * len(latency_ms)
    return deploy(asked.ops, sites, latency_ms, asked.rate, asked.load, k, ALPHA, D_MIN_MS, pinned=asked.pinned)


def randomly(asked: Query, latency_ms: Floats, k: int, random: np.random.Generator) -> Deployment:
    """First replicas as where the cost is least; the others anywhere."""
    first = min_cost(asked, latency_ms, 1)
    found = dict(first)
    for op in asked.ops:
        others = [int(site) for site in random.permutation(len(latency_ms)) if site != first[op][0]]
        found[op] = (first[op][0], *others[: k - 1])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """late_s: float (applications, epochs). spent: ms x rows/s, the mean over the month, with the legs that were asked again."""

    legs: tuple[Leg, ...]
    late_s: Floats
    spent: float

    def quantile_ms(self, share: float) -> float:
        return float(np.quantile(self.late_s, share)) * 1000

    @property
    def longest_ms(self) -> float:
        return float(self.late_s.max()) * 1000

    @property
    def mean_ms(self) -> float:
        return float(self.late_s.mean()) * 1000

    @property
    def deviation_ms(self) -> float:
        """At an application, the mean over all of them."""
        return float(self.late_s.std(axis=1).mean()) * 1000

    @property
    def hourly_deviation_ms(self) -> float:
        """Within an hour at an application, the median over all hours: paths that are cut for minutes do not show in it."""
        applications, epochs = self.late_s.shape
        hours = self.late_s[:, : epochs - epochs % HOUR].reshape(applications, -1, HOUR)
        return float(np.median(hours.std(axis=2))) * 1000


@dataclass(slots=True)
class Month:
    """What all runs share: the network, the query, mean latencies of a first day, when which site has heard all sources."""

    trace: Trace
    asked: Query
    latency_ms: Floats
    gathered: Mapping[int, Floats]
    due: Floats

    @staticmethod
    def of(seed: int, steps: int) -> Month:
        trace = Trace.drawn(seed, steps)
        asked = query(trace.sites, np.random.default_rng((seed, 1)))
        due: Floats = np.arange(steps, dtype=np.float64) * WIDTH_S
        return Month(trace, asked, *surveyed(trace, due, DAY), due)

    def legs(self, deployed: Deployment) -> tuple[Leg, ...]:
        return legs_of(deployed, self.asked.rate, self.latency_ms)

    def rows_per_s(self, legs: Sequence[Leg]) -> float:
        return sum(self.asked.rate[leg.arrow] for leg in legs)

    def run(self, legs: Sequence[Leg], spare: Sequence[Leg] = (), hedge: Hedge | None = None) -> Ran:
        flow = Flow(self.trace, self.due, legs, spare, hedge, sources=self.gathered)
        late = np.stack([flow.ready(Replica(name, self.asked.pinned[name])) - self.due for name in self.asked.applications])
        return Ran(tuple(legs), late, cost(legs) + sum(leg.cost * share for leg, share in flow.share.items()))

    def test_run(self, legs: Sequence[Leg]) -> Flow:
        """A day in which everything is measured."""
        flow = Flow(self.trace, self.due[:DAY], legs, watched=True)
        for name in self.asked.applications:
            flow.ready(Replica(name, self.asked.pinned[name]))
        return flow

    def discarded(self, full: Ran, k_min: int) -> tuple[Ran, Ran]:
        """The cheapest runs that are as good as the full one: with legs left out for good, and with such that come back.

        As good is a p99.9 within ROOM of its, and nothing later than a second that was not, which is the thesis' guarantee. By halves over
        the order in which groups go; over the month that is then shown, as in the thesis.
        """
        test = self.test_run(full.legs)
        weights = weighed(test)
        groups = list(discards(weights, k_min))
        hedge = Hedge(usual_s(test, EARLY), HELD)
        most_ms, longest_ms = full.quantile_ms(0.999) * ROOM, max(full.longest_ms * ROOM, SECOND_MS)

        def run(count: int, by: Hedge | None) -> Ran:
            gone = {leg for group in groups[:count] for leg in group}
            return self.run([leg for leg in weights if leg not in gone], [leg for leg in weights if leg in gone] if by else (), by)

        def cheapest(by: Hedge | None) -> Ran:
            good, bad, best = 0, len(groups) + 1, full
            while bad - good > 1:
                middle = (good + bad) // 2
                ran = run(middle, by)
                if ran.quantile_ms(0.999) <= most_ms and ran.longest_ms <= longest_ms:
                    good, best = middle, ran if ran.spent < best.spent else best
                else:
                    bad = middle
            return best

        return cheapest(None), cheapest(hedge)


def usual_s(test: Flow, share: float) -> dict[Input, float]:
    """By input, the delay behind which so few epochs of the test run were by the first of all legs, and a tenth more."""
    found = {}
    for replica, names in test.inputs.items():
        for name, legs in names.items():
            first = np.min([test.by_leg[leg] for leg in legs], axis=0) - test.due
            found[name, replica] = MARGIN * float(np.quantile(first, share))
    return found


def worst_difference_s(month: Month, legs: Sequence[Leg], begin: int, epochs: int) -> float:
    """Between the arithmetic and events hop by hop, over some epochs: the greatest at any replica, seconds."""
    part = Trace(month.trace.seed, month.trace.steps, month.trace.base_ms, month.trace.region, month.trace.trouble)
    flow = Flow(part, month.due[begin : begin + epochs], legs, watched=True)
    by_event = Hops(part, legs, WIDTH_S, month.due[begin]).run(epochs)
    return max(float(np.abs(flow.ready(replica) - np.array(done)).max()) for replica, done in by_event.items())
