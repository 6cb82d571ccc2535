"""Evenflow's own first placement: one potential over scenarios (distribution.md).

    Phi = sum over q of w_q sum over j of C_j ( X_j(r_q) / (C_j rho_q) )^p          p = 8,  rho_q = sum_j X_j(r_q) / sum_j C_j

A scenario q is a vector of rates. The present alone is load balancing (FL 5.3); the past is correlation, since what bursts together is
pushed apart (BO 3.1); the simplex of all mixes is ROD (BO 3.2). An epoch is over when its slowest site is, so it is the greatest of the
sites that counts, and a high power is smooth where a maximum is not. C_j before the power makes equal utilization the least (decision 108).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from evenflow.policy.linear import Model, Sites, by_effect, fewest_links, neighbours, simplex
from evenflow.stream.arrays import Floats

POWER: Final = 8
DIRECTIONS: Final = 64
NOW, PAST, MIXES = 0.5, 0.3, 0.2
"""Weights of the three sets, where all are there."""
TIES: Final = 0.01
"""Sites whose potentials differ by less than this share are alike: then it is the streams between sites that count."""
LEAST_GAIN: Final = 1e-9
"""Of the potential: less is rounding."""
TRIES: Final = 40
"""Times that a placement is disturbed, and improved again."""


@dataclass(frozen=True, slots=True)
class Scenarios:
    """rates: float (scenarios, sources), rows/s, >= 0. weights: float (scenarios,), >= 0."""

    rates: Floats
    weights: Floats

    @staticmethod
    def of(model: Model, now: Floats | None = None, past: Floats | None = None, mixes: int = DIRECTIONS) -> Scenarios:
        """now: float (sources,). past: float (windows, sources). mixes: so many directions of all. What is missing, or costs nothing, is
        left out, and the rest has its weight."""
        scale = np.where(model.total > 0, 1 / np.where(model.total > 0, model.total, 1.0), 0.0)
        given: list[tuple[Floats, float]] = [] if now is None else [(now[None, :], NOW)]
        given += [] if past is None or not past.size else [(past, PAST)]
        given += [(simplex(model.sources, mixes) * scale, MIXES)] if mixes else []
        rates = np.concatenate([rows for rows, _ in given])
        weights = np.concatenate([np.full(len(rows), weight / len(rows)) for rows, weight in given])
        busy = rates @ model.total > 0
        return Scenarios(rates[busy], weights[busy] / weights[busy].sum() if busy.any() else weights[busy])


class Search:
    """A placement that is being improved. loads: float (sites, scenarios), X_j / (C_j rho_q). pieces: float (pieces, scenarios), the same
    at a site of capacity 1. fixed: bool (pieces,), those that stay where they have been put."""

    def __init__(self, model: Model, scenarios: Scenarios) -> None:
        self.model, self.weights = model, scenarios.weights
        rho = scenarios.rates @ model.total / model.capacity.sum()
        self.pieces: Floats = (model.coefficients @ scenarios.rates.T) / rho
        self.capacity = model.capacity
        self.placed: Sites = np.full(model.pieces, -1, np.int64)
        self.fixed = np.zeros(model.pieces, np.bool_)
        self.loads = np.zeros((model.capacity.size, rho.size))

    def worth(self, loads: Floats, capacity: Floats) -> Floats:
        """The potential of sites with these loads, float (..., scenarios), and these capacities, float (...)."""
        square = loads * loads
        fourth = square * square
        found: Floats = (fourth * fourth) @ self.weights * capacity
        return found

    @property
    def phi(self) -> float:
        return float(self.worth(self.loads, self.capacity).sum())

    def put(self, piece: int, site: int) -> None:
        before = int(self.placed[piece])
        if before >= 0:
            self.loads[before] -= self.pieces[piece] / self.capacity[before]
        self.loads[site] += self.pieces[piece] / self.capacity[site]
        self.placed[piece] = site

    def fill(self) -> None:
        """Each piece to the site that raises the potential least, those with most effect first; alike ones by streams between sites."""
        near = neighbours(self.model)
        for piece in (each for each in by_effect(self.model) if self.placed[each] < 0):
            more = self.loads + self.pieces[piece] / self.capacity[:, None]
            rise = self.worth(more, self.capacity) - self.worth(self.loads, self.capacity)
            alike = [int(site) for site in np.flatnonzero(rise <= rise.min() * (1 + TIES))]
            self.put(piece, fewest_links(alike, [int(self.placed[other]) for other in near[piece]]))

    def descend(self) -> None:
        """Moves of single pieces, and then exchanges with the worst site, while any lowers the potential."""
        while self._moves() or self._exchanges():
            pass

    def _moves(self) -> bool:
        better = False
        for piece in np.flatnonzero(~self.fixed).tolist():
            before = int(self.placed[piece])
            own = self.pieces[piece] / self.capacity[:, None]
            now = self.worth(self.loads, self.capacity)
            change = self.worth(self.loads + own, self.capacity) - now
            freed = now[before] - float(self.worth(self.loads[before] - own[before], self.capacity[before]))
            change[before] = freed
            site = int(np.argmin(change))
            if change[site] < freed - LEAST_GAIN * float(now.sum()):
                self.put(piece, site)
                better = True
        return better

    def _exchanges(self) -> bool:
        better = False
        while self._exchange():
            better = True
        return better

    def _exchange(self) -> bool:
        """The best exchange of a piece at the worst site with one elsewhere."""
        now = self.worth(self.loads, self.capacity)
        worst = int(np.argmax(now / self.capacity))
        best, found = -LEAST_GAIN * float(now.sum()), None
        others = np.flatnonzero((self.placed != worst) & ~self.fixed)
        for piece in np.flatnonzero((self.placed == worst) & ~self.fixed):
            given = self.pieces[others] - self.pieces[piece]
            sites = self.placed[others]
            here = self.worth(self.loads[worst] + given / self.capacity[worst], self.capacity[worst]) - now[worst]
            less = self.loads[sites] - given / self.capacity[sites][:, None]
            there = self.worth(less, self.capacity[sites]) - now[sites]
            change = here + there
            at = int(np.argmin(change)) if change.size else -1
            if at >= 0 and change[at] < best:
                best, found = float(change[at]), (int(piece), int(others[at]))
        if found is None:
            return False
        one, other = found
        target = int(self.placed[other])
        self.put(other, worst)
        self.put(one, target)
        return True

    def again(self, placed: Sites) -> None:
        for piece in np.flatnonzero(placed != self.placed):
            self.put(int(piece), int(placed[piece]))


def potential(model: Model, scenarios: Scenarios, random: np.random.Generator, tries: int = TRIES) -> Sites:
    """Where pieces lie at the start. Greedy, improved by moves and exchanges; then disturbed and improved `tries` times, and the best is
    kept. Same input and same state of the generator, same placement.

    Cost: some O(pieces sites scenarios) for each pass; 320 pieces on ten sites take about a second for 40 tries.
    """
    search = Search(model, scenarios)
    if not scenarios.weights.size:
        return np.arange(model.pieces, dtype=np.int64) % model.capacity.size
    search.fill()
    search.descend()
    best, least = search.placed.copy(), search.phi
    for _ in range(tries):
        for _ in range(max(2, model.pieces // 20)):
            search.put(int(random.integers(model.pieces)), int(random.integers(model.capacity.size)))
        search.descend()
        if search.phi < least * (1 - LEAST_GAIN):
            best, least = search.placed.copy(), search.phi
        else:
            search.again(best)
    return best
