"""The flow problem of a run that goes on: what its sites have shown, and which share of each arc's rows the next plan keeps.

Costs are per row that comes once, whatever is left out of it: what a segment costs each site, its replicas included, by the rows that it
had. Rates are what sources offer, so that who leaves rows out does not seem to have room. A segment to which nothing comes any more is
remembered as it was. Costs change with the rate, since rows that come together are cheaper, so a plan is right near the rate that it was
made at and the next one goes on from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Final, Literal

import numpy as np

from evenflow.errors import PolicyError
from evenflow.plan.layout import Layout
from evenflow.policy.offered import rates_of, sources_of
from evenflow.policy.shedding.fill import filled
from evenflow.policy.shedding.fit import axes_of, is_small, table
from evenflow.policy.shedding.flow import HEADROOM, HELD, Shedding, followed, reading_of, solve
from evenflow.policy.shedding.linear import Linear
from evenflow.policy.shedding.linear import of as linear_of
from evenflow.policy.shedding.network import Arc, FlowNetwork, Output, Source
from evenflow.statistics.statistics import Statistics
from evenflow.stream.arrays import Bools

Way = Literal["lp", "fit"]
Keeps = tuple[tuple[float, ...], ...]

FULL: Final = 1.0
"""Of a site's capacity: rows are left out where more than that is offered, and until what is offered fits into `HEADROOM`."""
ENOUGH_ROWS: Final = 50
"""A segment that had fewer in a window shows nothing of what they cost. Of a source that offers fewer it is as good as nothing."""
NEWER: Final = 0.5
"""How much a window counts against those before it."""
NEAR, AS_GOOD = 0.975, 0.98
"""A plan that fits into so much of all sites' capacity, and is worth so much of the best one, goes on: what rows cost is measured, and is
never twice the same."""
CHANGE: Final = 0.04
"""A share that changes by less is left as it is: a new plan is not for nothing."""
STANDING: Final = 0.02
"""Of rows that stand for others so many go on at least: of an epoch of which none did nothing would tell, and totals be too low."""
LEAST_CAPACITY: Final = 0.05
LIMIT_S: Final = 1.0
EPSILON: Final = 0.05


def way_of(shedding: str) -> Way | None:
    """By the engine's option of that name; None where no plan leaves anything out."""
    return "lp" if shedding == "lp" else "fit" if shedding == "fit" else None


@dataclass(frozen=True, slots=True)
class Decided:
    """keeps: by arc and class, the share that goes on; empty if all do. text: for a person."""

    keeps: Keeps
    text: str


@dataclass(slots=True)
class FlowPlanner:
    """way: how the shares are found. costs: by segment and site, CPU seconds per row that comes to the segment. selectivity: by arc, rows
    put on it per row into its producer. aside: by site, CPU seconds per second that are no segment's."""

    layout: Layout
    way: Way = "lp"
    costs: dict[int, dict[int, float]] = field(default_factory=dict)
    selectivity: dict[int, float] = field(default_factory=dict)
    aside: dict[int, float] = field(default_factory=dict)

    def decide(self, statistics: Statistics, offered: Mapping[int, tuple[int, ...]], keeps: Keeps) -> Decided | None:
        """What the next plan keeps; None if that is what this one does, or nobody can say. offered: by arc and class, rows so far of epochs
        of which something was left out. keeps: of the plan that acts."""
        self.learn(statistics)
        offers = dict(zip(sources_of(self.layout), rates_of(statistics, self.layout).tolist(), strict=True))
        seconds = (statistics.end_us - statistics.begin_us) / 1e6
        if not any(offers.values()) or any(rate * seconds >= ENOUGH_ROWS for source, rate in offers.items() if source not in self.costs):
            return None
        rates = {str(source): rate for source, rate in offers.items()}
        try:
            wanted = self._wanted(self.network(statistics, offered), rates, keeps)
        except PolicyError:
            return None  # The numbers cannot be weighed: who is late leaves rows out by himself.
        if wanted is None or not _differs(wanted := self._some(wanted), keeps):
            return None
        return Decided(wanted, self._text(wanted))

    # ------------------------------------------------ what sites have shown

    def learn(self, statistics: Statistics) -> None:
        """From a window of all sites."""
        entered: dict[int, float] = defaultdict(float)
        put: dict[int, float] = defaultdict(float)
        by_partition: dict[tuple[int, int], list[int]] = defaultdict(list)
        busy: dict[int, dict[int, float]] = defaultdict(dict)
        aside: dict[int, float] = {}
        for window in statistics.sites:
            seconds = max(1, window.end_us - window.begin_us) / 1e6
            inside = 0
            for each in window.segments:
                entered[each.segment] += sum(each.rows)
                busy[each.segment][window.site] = each.busy_us / 1e6
                inside += each.busy_us
                for partition, rows in zip(each.partitions, each.rows, strict=True):
                    by_partition[each.segment, partition].append(rows)
                for arc, rows in each.arc_rows:
                    put[arc] += rows
            aside[window.site] = max(0.0, (window.busy_us - inside) / 1e6 / seconds)
        once: dict[int, float] = defaultdict(float)
        for (segment, _), replicas in by_partition.items():
            once[segment] += sum(replicas) / len(replicas)
        for segment, came in once.items():
            if came >= ENOUGH_ROWS:
                cost = {site: used / came for site, used in busy[segment].items()}
                self.costs[segment] = _newer(self.costs.get(segment), cost)
        for described in self.layout.arcs:
            if once[described.producer] >= ENOUGH_ROWS:
                share = put[described.id] / entered[described.producer]
                before = self.selectivity.get(described.id, share)
                self.selectivity[described.id] = before + NEWER * (share - before)
        self.aside = _newer(self.aside or None, aside)

    def network(self, statistics: Statistics, offered: Mapping[int, tuple[int, ...]]) -> FlowNetwork:
        """The flow of the run, whose names are the numbers of segments and arcs."""
        layout, sites = self.layout, {window.site for window in statistics.sites}
        capacity = {site: max(LEAST_CAPACITY, 1.0 - self.aside.get(site, 0.0)) for site in sites}
        classes = max((len(valued.worth) for valued in layout.valued.values()), default=1)
        costs = {
            segment.id: {site: cost for site, cost in self.costs.get(segment.id, {}).items() if site in sites}
            for segment in layout.segments
        }
        arcs = [
            Arc(
                str(arc.id), str(arc.producer), str(arc.consumer), self.selectivity.get(arc.id, 1.0),
                "any" if arc.id in layout.thins else "none",
            )
            for arc in layout.arcs
        ]  # fmt: skip
        for producer in layout.segments:
            arcs += [Arc(f"to {sink}", str(producer.id), sink, 1.0, "none") for sink in layout.ends(producer)]
        fed = {arc.down for arc in arcs}
        return FlowNetwork(
            {str(s.id): Source(self._shares(s.id, classes, offered), costs[s.id]) for s in layout.segments if s.kind == "ingress"},
            {str(s.id): costs[s.id] for s in layout.segments if s.kind != "ingress"},
            tuple(arcs),
            {
                name: Output(valued.weight, valued.loss, valued.worth, valued.protected)
                for name, valued in layout.valued.items()
                if name in fed
            },
            capacity,
        )

    def _shares(self, segment: int, classes: int, offered: Mapping[int, tuple[int, ...]]) -> tuple[float, ...]:
        """Of a source's rows in each class, as they came to its arcs; alike as long as nobody has counted."""
        told = np.zeros(classes)
        for arc in self.layout.segments[segment].outputs:
            if len(offered.get(arc, ())) == classes:
                told += offered[arc]
        return tuple((told / told.sum()).tolist()) if told.sum() else (1.0 / classes,) * classes

    # ------------------------------------------------ what is wanted

    def _wanted(self, network: FlowNetwork, rates: Mapping[str, float], keeps: Keeps) -> Keeps | None:
        """keeps: of the plan that acts."""
        begun, present = bool(keeps), {str(arc): keep for arc, keep in enumerate(keeps) if keep}
        if self.way == "fit" and network.classes == 1 and network.sources and not self._mixed(network):
            by_table = self._by_table(network, rates, keeps)
            if by_table is not None:
                return by_table
        if not begun:
            fits = solve(network, rates, headroom=FULL, limit_s=LIMIT_S)
            if fits is None or fits.how == "all":
                return None if fits is None else ()
        found = solve(network, rates, headroom=HEADROOM, limit_s=LIMIT_S, present=present)
        if found is not None and found.how == "plan" and begun:
            goes_on = followed(network, rates, present, headroom=NEAR)
            if not goes_on.over and goes_on.worth >= AS_GOOD * found.worth:
                return keeps
        if found is not None and found.how == "over":
            found = solve(_entering(network), rates, headroom=HEADROOM, limit_s=LIMIT_S, present=present)
        return None if found is None else self._keeps_of(found)

    def _keeps_of(self, found: Shedding) -> Keeps:
        if found.how == "all":
            return ()
        told = [found.keeps[str(arc.id)] if arc.id in self.layout.thins else (1.0,) for arc in self.layout.arcs]
        keeps = tuple(tuple(abs(share) for share in keep) if min(keep) < 1 else () for keep in told)
        return keeps if any(keeps) else ()

    def _some(self, keeps: Keeps) -> Keeps:
        """Some of all, where rows stand for others."""
        weighs = {arc for arc, thin in self.layout.thins.items() if thin.weighs}
        return tuple(tuple(max(STANDING, share) for share in keep) if arc in weighs else keep for arc, keep in enumerate(keeps))

    def _mixed(self, network: FlowNetwork) -> bool:
        """Something may not be left out where sources come in: a table says nothing of what lies behind."""
        protected = network.protected()
        return any(place in protected for place, arc in enumerate(network.arcs) if arc.up in network.sources)

    def _by_table(self, network: FlowNetwork, rates: Mapping[str, float], keeps: Keeps) -> Keeps | None:
        """Rows are left out where they come in, by the point of a table that is looked up and raised to what there is room for beside what
        is read. A source that has cost nothing so far is in nobody's way, and keeps all. None: there would be more points than a table
        has, or a site has too much by what it reads alone. keeps: of the plan that acts."""
        linear = _beside_reading(linear_of(network, headroom=HEADROOM if keeps else FULL), network, rates)
        offered = np.array([rates[name] for name in linear.inputs])
        if linear.fits(offered[None])[0]:
            return ()
        linear = _beside_reading(linear_of(network, headroom=HEADROOM), network, rates)
        if not is_small(len(linear.inputs), EPSILON) or linear.limit.min() <= 0:
            return None
        present = {arc.producer: keep[0] for arc, keep in zip(self.layout.arcs, keeps) if keep}
        held = np.array([present.get(int(name), 1.0) for name in linear.inputs])
        valued = replace(linear, worth=linear.worth * (1 + HELD * held)) if keeps else linear
        point = filled(valued, table(valued, axes_of(valued.most(), EPSILON)).lookup(offered), offered)[0]
        near = _beside_reading(linear_of(network, headroom=NEAR), network, rates)
        if keeps and near.fits((offered * held)[None])[0] and (offered * held) @ linear.worth >= AS_GOOD * (point @ linear.worth):
            return keeps
        share = {int(name): float(kept / came) if came > 0 else 1.0 for name, kept, came in zip(linear.inputs, point, offered, strict=True)}
        return tuple((share[arc.producer],) if share.get(arc.producer, 1.0) < 1 - 1e-9 else () for arc in self.layout.arcs)

    def _text(self, wanted: Keeps) -> str:
        if not wanted:
            return "sites can do what is offered: nothing is left out by the plan any more"
        layout, told = self.layout, []
        for arc, keep in zip(layout.arcs, wanted, strict=True):
            if keep:
                shares = ", ".join(f"{share:.0%}" for share in keep)
                told.append(f"{shares} from {layout.segments[arc.producer].name} to {layout.segments[arc.consumer].name}")
        return f"more is offered than sites can do: the plan keeps {'; '.join(told)}"


def _entering(network: FlowNetwork) -> FlowNetwork:
    """The same flow if as much of each source enters as is best, which is the reflex's doing: where sites have too much by what rows cost
    where they come in, nothing is gained by what is left out behind that. Shares of arcs are then of what has entered."""
    inside = {name: f"in {name}" for name in network.sources}
    sources = {name: Source(source.shares) for name, source in network.sources.items()}
    boxes = {**network.boxes, **{inside[name]: source.read_s for name, source in network.sources.items()}}
    enter = [Arc(f"enter {name}", name, inside[name]) for name in network.sources]
    arcs = (*enter, *(replace(arc, up=inside.get(arc.up, arc.up)) for arc in network.arcs))
    return FlowNetwork(sources, boxes, arcs, network.outputs, network.capacity)


def _beside_reading(linear: Linear, network: FlowNetwork, rates: Mapping[str, float]) -> Linear:
    """The same of inputs that cost anything, with what sites have left beside the reading of all that is offered, which nothing saves."""
    cost: Bools = np.any(linear.load > 0, axis=0)
    reading = reading_of(network, rates)
    limit = linear.limit - np.array([reading[site] for site in network.sites])
    return Linear(tuple(compress(linear.inputs, cost.tolist())), linear.load[:, cost], limit, linear.worth[cost])


def _newer(before: dict[int, float] | None, now: dict[int, float]) -> dict[int, float]:
    """The sites of now; what is known of one from before counts, too."""
    return now if before is None else {at: of + (1 - NEWER) * (before.get(at, of) - of) for at, of in now.items()}


def _differs(wanted: Keeps, keeps: Keeps) -> bool:
    if bool(wanted) != bool(keeps):
        return True
    for one, other in zip(wanted, keeps, strict=True):
        if one == other:
            continue
        if len(one) > 1 and len(other) > 1 and len(one) != len(other):
            return True
        if np.abs(np.array(one or (1.0,)) - np.array(other or (1.0,))).max() > CHANGE:
            return True
    return False


__all__ = ["Decided", "FlowPlanner", "Keeps", "Way", "way_of"]
