"""The best that can be left out, as a linear program (BO 4): HiGHS solves it.

    max sum_o U_o    such that    0 <= y_ac <= selectivity_a * (y_c into what a leaves),    X_j(y) + reading at j <= headroom * C_j

y_ac: rows per second of class c kept on arc a; X_j: what they cost site j. U_o is piecewise linear in the share of its worth that output
o gets; what is not concave counts by its hull. The solver works on shares of what would flow if nothing were left out, so that its
numbers are between 0 and 1 whatever the rates are. Where what may not be left out is too much alone, a site is over its capacity by as
little as can be, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from evenflow.errors import PolicyError
from evenflow.policy.shedding.highs import UNBOUNDED, Program
from evenflow.policy.shedding.network import FlowNetwork, Output

HEADROOM: Final = 0.95
"""Of a site's capacity: what a plan may use."""
OVER_PRICE: Final = 1e3
"""What a site that is over its capacity by all of it costs, in units of all that the outputs are worth: so that one program is enough but
where some site is over."""
MORE: Final = 1e-4
"""Of an output's weight: what its last row is worth where the loss function says nothing."""
HELD: Final = 0.05
"""Of an output's weight: what it is worth that it goes on getting what it gets by the plan that acts. Where two are about as good, what
rows have seemed to cost lately would take from one and give to the other, round for round."""
EARLY: Final = 1e-6
"""Of all outputs' weight: what it is worth to leave rows out before they have cost anything."""
TINY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Shedding:
    """What is kept. keeps: by arc, of the rows that come there in each class the share that goes on, kappa. kept: by arc, rows per second
    of each class.

    delivered: by output, the share of its worth. utility: by output, between its curve's ends, without the weight. worth: of all. loads:
    CPU seconds per second by site. over: those of them beyond what may be used. how: "all" if nothing need be left out, "plan", or
    "over".
    """

    keeps: Mapping[str, tuple[float, ...]]
    kept: Mapping[str, tuple[float, ...]]
    delivered: Mapping[str, float]
    utility: Mapping[str, float]
    worth: float
    loads: Mapping[int, float]
    over: Mapping[int, float]
    how: Literal["all", "plan", "over"]


def solve(
    network: FlowNetwork,
    rates: Mapping[str, float],
    *,
    headroom: float = HEADROOM,
    limit_s: float | None = None,
    present: Mapping[str, tuple[float, ...]] | None = None,
) -> Shedding | None:
    """The plan for these rates (rows per second offered by each source); None if it was not found within `limit_s`. present: what the plan
    that acts keeps of arcs, all of those that are not there: of about equal plans the one that is most like it is found.

    Whoever gets None goes on with what was there: the reflex at ingress needs no plan. Cost: some ms at a hundred arcs. Raises
    PolicyError for rates and costs that cannot be, or are too far apart.
    """
    with np.errstate(all="ignore"):
        return _solved(network, rates, headroom, limit_s, present or {})


def _solved(
    network: FlowNetwork, rates: Mapping[str, float], headroom: float, limit_s: float | None, present: Mapping[str, tuple[float, ...]]
) -> Shedding | None:
    whole = np.array(network.flowing(rates), np.float64).reshape(len(network.arcs), network.classes)
    reading = reading_of(network, rates)
    everything = _answer(network, whole, np.ones_like(whole), reading, headroom)
    if not np.isfinite([*whole.ravel(), *everything.loads.values(), everything.worth]).all():
        raise PolicyError("shedding: costs, rates or weights are so large that loads cannot be told; check their units")
    if not everything.over:
        return everything
    program = _program(network, whole, reading, headroom)
    if present:
        _hold(network, whole, program, present)
    found = program.solved(limit_s)
    if found is None:
        return None
    answer = _of_shares(network, whole, found, reading, headroom)
    if not answer.over:
        return answer
    # Much worth for little work may outweigh any price: so first by how little sites can be over at all, and then the best with that.
    over = range(len(program.gain) - len(network.sites), len(program.gain))
    least = replace(program, gain=[-1.0 if column in over else 0.0 for column in range(len(program.gain))]).solved(limit_s)
    if least is None:
        return answer
    program.at_most([(column, 1.0) for column in over], max(0.0, float(least[over.start :].sum())) + TINY)
    best = program.solved(limit_s)
    return answer if best is None else _of_shares(network, whole, best, reading, headroom)


def followed(network: FlowNetwork, rates: Mapping[str, float], keeps: Mapping[str, tuple[float, ...]], *, headroom: float) -> Shedding:
    """What comes of so much being kept of these rates; all is of arcs that are not there. Raises PolicyError for rates that cannot be."""
    with np.errstate(all="ignore"):
        whole = np.array(network.flowing(rates), np.float64).reshape(len(network.arcs), network.classes)
        return _answer(network, whole, _shares(network, whole, keeps), reading_of(network, rates), headroom)


def _of_shares(network: FlowNetwork, whole: Any, found: Any, reading: Mapping[int, float], headroom: float) -> Shedding:
    return _answer(network, whole, np.clip(found[: whole.size], 0.0, 1.0).reshape(whole.shape), reading, headroom)


def reading_of(network: FlowNetwork, rates: Mapping[str, float]) -> dict[int, float]:
    """By site, CPU seconds per second that the reading of these rates takes, whatever is left out of them."""
    found = dict.fromkeys(network.sites, 0.0)
    for name, source in network.sources.items():
        for site, cost in source.read_s.items():
            found[site] += cost * rates.get(name, 0.0)
    return found


def _answer(network: FlowNetwork, whole: Any, shares: Any, reading: Mapping[int, float], headroom: float) -> Shedding:
    """What follows from shares, shape (arcs, classes), of what would flow."""
    kept = whole * shares
    keeps = {}
    for place, arc in enumerate(network.arcs):
        coming = _coming(network, place, whole, shares)
        share = np.where(coming > TINY, np.minimum(1.0, shares[place] / np.maximum(coming, TINY)), 1.0)
        keeps[arc.name] = tuple(map(float, np.where(share > 1 - 1e-7, 1.0, share)))
    loads = dict(reading)
    for name, cost in network.boxes.items():
        rows = float(kept[list(network.into(name))].sum())
        for site, each in cost.items():
            loads[site] += each * rows
    limits = {site: headroom * capacity for site, capacity in network.capacity.items()}
    over = {site: load - limits[site] for site, load in loads.items() if load > limits[site] * (1 + 1e-6)}
    delivered, utility, worth = {}, {}, 0.0
    for name, output in network.outputs.items():
        possible = _worth_of(network, name, output, whole)
        delivered[name] = 1.0 if possible <= 0 else min(1.0, _worth_of(network, name, output, kept) / possible)
        utility[name] = output.loss(delivered[name])
        worth += _scale(output, possible) * utility[name]
    how: Literal["all", "plan", "over"] = "over" if over else "all" if all(min(each) == 1 for each in keeps.values()) else "plan"
    rows_kept = {arc.name: tuple(map(float, kept[place])) for place, arc in enumerate(network.arcs)}
    return Shedding(keeps, rows_kept, delivered, utility, worth, loads, over, how)


def _coming(network: FlowNetwork, place: int, whole: Any, shares: Any) -> Any:
    """Of what would flow on an arc, the share of each class that has come to it."""
    above = list(network.into(network.arcs[place].up))
    if not above:
        return np.ones(whole.shape[1])
    total = whole[above].sum(axis=0)
    return np.where(total > 0, (whole[above] * shares[above]).sum(axis=0) / np.where(total > 0, total, 1.0), 1.0)


def _worth_of(network: FlowNetwork, name: str, output: Output, rows: Any) -> float:
    return float((rows[list(network.into(name))].sum(axis=0) * np.array(output.worth)).sum())


def _scale(output: Output, possible: float) -> float:
    return output.weight * (possible if output.per_row else 1.0)


# ------------------------------------------------ the program


def _program(network: FlowNetwork, whole: Any, reading: Mapping[int, float], headroom: float) -> Program:
    """Columns: shares by arc and class, utilities of outputs, and by how much sites are over capacity."""
    columns, outputs, sites = whole.size, list(network.outputs.items()), network.sites
    possible = {name: _worth_of(network, name, output, whole) for name, output in outputs}
    all_worth = sum(_scale(output, possible[name]) for name, output in outputs) or 1.0
    program = Program(
        [0.0] * columns + [_scale(output, possible[name]) / all_worth for name, output in outputs] + [-OVER_PRICE] * len(sites),
        [0.0] * columns + [-UNBOUNDED] * len(outputs) + [0.0] * len(sites),
        [1.0] * columns + [UNBOUNDED] * (len(outputs) + len(sites)),
    )
    _conserve(network, whole, program)
    for place, site in enumerate(sites):
        _fit_into(network, whole, program, site, columns + len(outputs) + place, headroom, reading[site])
    for place, (name, output) in enumerate(outputs):
        _value(network, whole, program, name, output, columns + place, possible[name])
    return program


def _conserve(network: FlowNetwork, whole: Any, program: Program) -> None:
    """No arc has more than comes to it, and one on which nothing may be left out has all of that."""
    protected = network.protected()
    classes = whole.shape[1]
    for place, arc in enumerate(network.arcs):
        above = network.into(arc.up)
        for of in range(classes):
            column = place * classes + of
            if whole[place, of] <= 0:
                program.lower[column] = 1.0
                continue
            total = sum(whole[each, of] for each in above)
            row = [(column, 1.0), *((each * classes + of, -whole[each, of] / total) for each in above)]
            if not above:
                program.lower[column] = 1.0 if place in protected else 0.0
            elif place in protected:
                program.equal(row, 0.0)
            else:
                program.at_most(row, 0.0)


def _fit_into(network: FlowNetwork, whole: Any, program: Program, site: int, over: int, headroom: float, reading: float) -> None:
    """What is kept fits into the site's capacity, or it is over by what `over` says."""
    classes, capacity = whole.shape[1], network.capacity[site]
    loads = {
        place * classes + of: cost[site] * whole[place, of] / capacity
        for name, cost in network.boxes.items() if cost.get(site)
        for place in network.into(name)
        for of in range(classes)
    }  # fmt: skip
    program.at_most([*loads.items(), (over, -1.0)], headroom - reading / capacity)
    total = sum(loads.values()) * len(network.capacity) or 1.0
    for column, load in loads.items():
        program.gain[column] -= EARLY * load / total


def _value(network: FlowNetwork, whole: Any, program: Program, name: str, output: Output, utility: int, possible: float) -> None:
    """The output's utility is below every piece of the hull of its loss function over all shares: where that has no points it is level."""
    classes = whole.shape[1]
    if possible <= 0:
        program.lower[utility] = program.upper[utility] = 0.0
        return
    shares = {
        place * classes + of: float(whole[place, of]) * output.worth[of] / possible for place in network.into(name) for of in range(classes)
    }
    hull = output.loss.over(0.0, 1.0).hull()
    for (x, y), slope in zip(hull.points, hull.slopes()):
        program.at_most([(utility, 1.0), *((column, -slope * share) for column, share in shares.items())], y - slope * x)
    for column, share in shares.items():
        program.gain[column] += MORE * program.gain[utility] * share


def _shares(network: FlowNetwork, whole: Any, keeps: Mapping[str, tuple[float, ...]]) -> Any:
    """Of what would flow on each arc, the share of each class that does, where so much is kept; all of arcs that are not there."""
    found = np.ones_like(whole)
    for place in sorted(range(len(network.arcs)), key=lambda place: network.order.index(network.arcs[place].up)):
        found[place] = _coming(network, place, whole, found) * np.array(keeps.get(network.arcs[place].name) or 1.0)
    return found


def _hold(network: FlowNetwork, whole: Any, program: Program, present: Mapping[str, tuple[float, ...]]) -> None:
    """What each output gets of each class by the plan that acts is worth a little more."""
    kept = _shares(network, whole, present)
    classes, outputs = whole.shape[1], list(network.outputs.items())
    for at, (name, output) in enumerate(outputs, whole.size):
        possible = _worth_of(network, name, output, whole)
        for place in network.into(name):
            for of in range(classes if possible > 0 else 0):
                share = float(whole[place, of]) * output.worth[of] / possible
                program.gain[place * classes + of] += HELD * program.gain[at] * share * float(kept[place, of])


__all__ = ["HEADROOM", "HELD", "Shedding", "followed", "reading_of", "solve"]
