"""A union's site dies under four ways of being reliable at distant sites (HW fig. 5.6), by arithmetic over a trace of the same kind.

Two unions at two sites feed a join at a third. Replication lets each replica go on by itself and takes what comes first. With
synchronization a primary holds an epoch until its backup has its determinants (HW 3.5; at an ingress of Evenflow, rule I1). Deterministic
replicas sort their input and wait for punctuations [22]. The last two feed the join by one leg and change it when a death is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.experiments.harness.arrivals import carried
from evenflow.experiments.harness.distant_sites import Trace
from evenflow.stream.arrays import Floats

WIDTH_S: Final = 0.5
SECONDS: Final = 120
DIES_S: Final = 60.0
NOTICED_S: Final = 0.25
"""Three keep-alives 100 ms apart without an answer, on average (HW 3.1)."""
PUNCTUATED_S: Final = 0.1
"""Between two punctuations, which come at times of each source's own."""

WAYS: Final = {
    "none": "no replication",
    "race": "replication (Evenflow: race)",
    "synchronized": "synchronization",
    "deterministic": "deterministic",
}


@dataclass(frozen=True, slots=True)
class Three:
    """The sites that are nearest to each other, as WISC, Purdue and OSU are. one: dies. join: has the join. sources: at others."""

    one: int
    other: int
    join: int
    sources: tuple[int, ...]

    @staticmethod
    def of(trace: Trace) -> Three:
        """Those of a region in which the longest way is the shortest."""
        near = [site for site in range(trace.sites) if trace.region[site] == 0]
        triples = [(a, b, c) for a in near for b in near for c in near if a < b < c]
        one, other, join = min(triples, key=lambda of: max(trace.base_ms[a, b] for a in of for b in of))
        return Three(one, other, join, tuple(site for site in near if site not in (one, other, join)))


@dataclass(slots=True)
class _Hops:
    trace: Trace
    due: Floats
    at: Three
    random: np.random.Generator

    def hop(self, sent: Floats, a: int, b: int) -> Floats:
        return carried(sent, self.trace.delays_s(a, b), WIDTH_S)

    def union(self, site: int, *, punctuated: bool = False) -> Floats:
        """When a union there has an epoch of all its sources."""
        found = self.due
        for source in self.at.sources:
            waits = self.random.uniform(0.0, PUNCTUATED_S) if punctuated else 0.0
            found = np.maximum(found, self.hop(self.due + waits, source, site))
        return found

    def alive(self, sent: Floats) -> Floats:
        """What a site sends that dies: nothing afterwards."""
        return np.where(sent < DIES_S, sent, np.inf)

    def acknowledged(self, sent: Floats) -> Floats:
        """When the one site's backup, the other, has answered; nothing comes from it that the dead site had to hear or to say."""
        there = self.alive(self.hop(self.alive(sent), self.at.one, self.at.other))
        return self.alive(self.hop(there, self.at.other, self.at.one))


def latencies_s(trace: Trace) -> dict[str, Floats]:
    """By way, float (epochs,): when the join has an epoch, behind when it was due; infinite: never."""
    due: Floats = np.arange(round(SECONDS / WIDTH_S), dtype=np.float64) * WIDTH_S
    at = Three.of(trace)
    hops = _Hops(trace, due, at, np.random.default_rng((trace.seed, 6)))
    first, second = hops.union(at.one), hops.union(at.other)
    dying = hops.hop(hops.alive(first), at.one, at.join)
    lasting = hops.hop(second, at.other, at.join)
    noticed = DIES_S + NOTICED_S
    # Both unions read the same sites here, so one array is a union's at that site, whichever of the two it is.
    race = np.fmin(dying, lasting)
    held = hops.hop(hops.acknowledged(first), at.one, at.join)
    taken_over = hops.hop(np.maximum(second, noticed), at.other, at.join)
    partner = hops.hop(hops.alive(hops.hop(second, at.other, at.one)), at.one, at.other)
    released = np.where(np.isfinite(partner), partner, np.maximum(second, noticed))
    synchronized = np.maximum(np.fmin(held, taken_over), hops.hop(released, at.other, at.join))
    sorted_first, sorted_second = hops.union(at.one, punctuated=True), hops.union(at.other, punctuated=True)
    by_first = hops.hop(hops.alive(sorted_first), at.one, at.join)
    by_other = hops.hop(np.maximum(sorted_second, noticed), at.other, at.join)
    deterministic = np.maximum(np.fmin(by_first, by_other), hops.hop(sorted_second, at.other, at.join))
    found = {"none": np.maximum(dying, lasting), "race": race, "synchronized": synchronized, "deterministic": deterministic}
    return {way: arrives - due for way, arrives in found.items()}


def figures(late_s: Mapping[str, Floats]) -> dict[str, float]:
    """Means before the death and of all the time, ms; what never came; how late the latest epoch of a change of feeders was."""
    due = np.arange(len(late_s["none"])) * WIDTH_S
    before = due < DIES_S - 1
    found: dict[str, float] = {}
    for way, late in late_s.items():
        found[f"missing_{way}"] = int((~np.isfinite(late)).sum())
        found[f"latency_{way}_before_ms"] = 1000 * float(late[before].mean())
        if way != "none":
            found[f"latency_{way}_ms"] = 1000 * float(late.mean())
            found[f"latency_{way}_max_ms"] = 1000 * float(late.max())
    found["race_by_synchronized"] = found["latency_race_ms"] / found["latency_synchronized_ms"]
    found["race_by_deterministic"] = found["latency_race_ms"] / found["latency_deterministic_ms"]
    return found


def curve(late_s: Floats) -> Sequence[float]:
    """Milliseconds; a line ends where nothing comes."""
    return [1000 * float(late) if np.isfinite(late) else float("nan") for late in late_s]
