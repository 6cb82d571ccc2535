"""Where all would lie if it were placed anew: the placements by name, each asked with what was recorded of a run.

Rounds propose moves from where things are; a placement knows nothing of that. Those of the papers put every partition anywhere; Evenflow's
own is the one for a start. What is asked are first replicas: the others follow as they do in `plan.placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.errors import PolicyError
from evenflow.plan.layout import Layout
from evenflow.policy.baselines import connected, largest, scattered
from evenflow.policy.correlation import everywhere
from evenflow.policy.hosting import Hosting
from evenflow.policy.linear import Model, Sites, crossing, feasible_size
from evenflow.policy.load import measure
from evenflow.policy.offered import Piece, loads_of, rates_of, structure
from evenflow.policy.own import slowness
from evenflow.policy.proposal import Memory
from evenflow.policy.resilient import resilient
from evenflow.policy.start import links, start
from evenflow.statistics.statistics import Statistics
from evenflow.stream.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What placements are asked with. sites: float (sites,) is at the same place in model.capacity. pieces: those of the model, ascending.

    rates: float (sources,), those of all windows together. series: float (pieces, windows), loads. whole: the windows as one. planned: what
    feeds what, where it is known; without it all sources count as one, which offers 1 row/s.
    """

    sites: tuple[int, ...]
    pieces: tuple[Piece, ...]
    model: Model
    rates: Floats
    series: Floats
    whole: Statistics
    planned: Layout | None = None

    @staticmethod
    def of(windows: Sequence[Statistics], planned: Layout | None = None) -> Recorded:
        """windows: of one run, one after the other. Raises PolicyError where they cannot be of that layout, or tell nothing."""
        whole = Statistics.of(window for each in windows for window in each.sites)
        speeds = dict(slowness(measure(whole, Hosting.of(whole)), Memory()))
        capacity = {window.site: 1 / speeds.get(window.site, 1.0) for window in whole.sites}
        loads = loads_of(whole, capacity)
        if not any(loads.values()):
            raise PolicyError("the statistics have no segment that had rows and took time, so nothing can be placed by them")
        pieces, found, rates = tuple(loads), np.array([[load] for load in loads.values()]), np.ones(1)
        series = np.array([[of.get(piece, 0.0) for of in (loads_of(each, capacity) for each in windows)] for piece in loads])
        near: tuple[tuple[int, int], ...] = ()
        if planned is not None:
            _check(whole, planned)
            pieces, found = structure(whole, planned, capacity)
            rates = rates_of(whole, planned)
            series = found @ np.array([rates_of(each, planned) for each in windows]).T
            near = links(planned, list(pieces))
        sites = tuple(capacity)
        return Recorded(sites, pieces, Model(found, np.array(list(capacity.values())), near), rates, series, whole, planned)


def _check(whole: Statistics, planned: Layout) -> None:
    """The windows are of this layout, and say what sources offered and what came of it."""
    named = {segment.id: segment for segment in planned.segments}
    for window in whole.sites:
        for told in window.segments:
            segment = named.get(told.segment)
            if segment is None or segment.name != told.name or max(told.partitions, default=-1) >= segment.partitions:
                has = "none" if segment is None else f"{segment.name!r} with {segment.partitions} partitions"
                raise PolicyError(
                    f"the statistics are not of this dataflow: their segment {told.segment} is {told.name!r} with partitions up to "
                    f"{max(told.partitions, default=0)}, and the dataflow's is {has}"
                )
    arcs = any(told.arc_rows for window in whole.sites for told in window.segments)
    if not rates_of(whole, planned).any() or (planned.arcs and not arcs):
        raise PolicyError("the statistics do not say what sources offered and what segments put on their arcs; record them anew")


Placing = Callable[[Recorded], Sites]


def _resilient(recorded: Recorded) -> Sites:
    return resilient(recorded.model)


def _correlation(recorded: Recorded) -> Sites:
    return everywhere(recorded.series, recorded.model.capacity, by_load=True)


def _largest(recorded: Recorded) -> Sites:
    return largest(recorded.model, recorded.rates)


def _connected(recorded: Recorded) -> Sites:
    return connected(recorded.model, recorded.rates)


def _random(recorded: Recorded) -> Sites:
    return scattered(recorded.model, np.random.default_rng(0))


def _start(recorded: Recorded) -> Sites:
    assert recorded.planned is not None, "`place` has asked"
    columns, named = len(recorded.sites), {segment.id: segment for segment in recorded.planned.segments}
    at = start(recorded.planned, columns, recorded.whole)
    return np.array([at(named[segment], partition, columns) for segment, partition in recorded.pieces], np.int64)


@dataclass(frozen=True, slots=True)
class Placement:
    """A placement, what it is in a phrase, and its source. needs_layout: it cannot be asked without what feeds what."""

    placing: Placing
    title: str
    source: str
    needs_layout: bool = False


PLACEMENTS: Final[Mapping[str, Placement]] = {
    "start": Placement(_start, "what has one partition, or is hot, by the potential; the rest in blocks", "decision 110", True),
    "resilient": Placement(_resilient, "as many mixes of rates as can be", "BO 3.2", True),
    "correlation": Placement(_correlation, "equal mean loads, and what bursts together apart", "BO 3.1"),
    "largest": Placement(_largest, "largest load first, each to the least busy site", "BO 3.1"),
    "connected": Placement(_connected, "what is linked together, as long as a site has less than the mean", "BO 3.2", True),
    "random": Placement(_random, "as many partitions at each site, by chance", "BO 3.2"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """What a placement says. replicas: the site of each piece's first replica. utilization: by site, what it would have to do at the rates
    recorded, by its speed. feasible: the size of the set of rates that can be done, by that of the ideal, 0 to 1 (`linear.feasible_size`).
    apart: links between pieces at different sites, of those where few feed, or are fed; None: not known. elsewhere: pieces of which the
    statistics show no replica there."""

    replicas: Mapping[Piece, int]
    utilization: Mapping[int, float]
    feasible: float
    apart: int | None
    elsewhere: int


def place(name: str, windows: Sequence[Statistics], planned: Layout | None = None) -> Placed:
    """The placement `name` for windows of one run. planned: the layout that ran. Raises PolicyError."""
    if name not in PLACEMENTS:
        raise PolicyError(f"there is no placement {name!r}; there are {', '.join(PLACEMENTS)}")
    if PLACEMENTS[name].needs_layout and planned is None:
        raise PolicyError(f"{name} asks what feeds what, which statistics do not say; name the dataflow's file with --dataflow")
    recorded = Recorded.of(windows, planned)
    found = PLACEMENTS[name].placing(recorded)
    at = {piece: recorded.sites[int(site)] for piece, site in zip(recorded.pieces, found, strict=True)}
    busy = recorded.model.loads(found, recorded.rates[None])[0]
    there = Hosting.of(recorded.whole).replicas
    return Placed(
        at,
        {site: float(share) for site, share in zip(recorded.sites, busy, strict=True)},
        feasible_size(recorded.model, found),
        None if planned is None else crossing(recorded.model, found),
        sum(site not in there.get(piece, ()) for piece, site in at.items()),
    )
