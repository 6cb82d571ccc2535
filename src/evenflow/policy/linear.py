"""The linear model of load that every placement asks: what a site does is a sum over sources of their rows (BO 3.2).

    X_j(r) = a_j + sum over pieces i at site j of l_i . r          feasible: X_j(r) <= C_j for all j

A piece is one replica of one partition; the papers' operator is a segment with one partition. Rates are rows per second that sources offer,
whether anybody can take them or not. Nothing here knows where the coefficients come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.stream.arrays import Floats

Sites = npt.NDArray[np.int64]
"""int64 (pieces,): the site of each piece."""

POINTS: Final = 2**11
"""Of the quasi-random sequence by which a volume is measured: its error is below a hundredth."""


@dataclass(frozen=True, slots=True)
class Model:
    """coefficients: float (pieces, sources), >= 0: CPU seconds per row of each source. capacity: float (sites,), > 0: CPU seconds per
    second, 1 for a site that is as fast as the median one. links: (producer, consumer) among the pieces, each once."""

    coefficients: Floats
    capacity: Floats
    links: tuple[tuple[int, int], ...] = ()

    @property
    def pieces(self) -> int:
        return int(self.coefficients.shape[0])

    @property
    def sources(self) -> int:
        return int(self.coefficients.shape[1])

    @property
    def total(self) -> Floats:
        """float (sources,): what a row of each source costs at all pieces together."""
        found: Floats = self.coefficients.sum(axis=0)
        return found

    def of_sites(self, placed: Sites) -> Floats:
        """float (sites, sources): what a row of each source costs at each site."""
        found = np.zeros((self.capacity.size, self.sources))
        np.add.at(found, placed, self.coefficients)
        return found

    def weights(self, placed: Sites) -> Floats:
        """float (sites, sources): w_jk, a site's share of a source's load by its share of all capacity. All 1 is the ideal."""
        total = np.where(self.total > 0, self.total, 1.0)
        found: Floats = self.of_sites(placed) / total / (self.capacity / self.capacity.sum())[:, None]
        return found

    def shares(self) -> Floats:
        """float (pieces, sources): each piece's share of the load of a source."""
        return self.coefficients / np.where(self.total > 0, self.total, 1.0)

    def loads(self, placed: Sites, rates: Floats) -> Floats:
        """float (scenarios, sites): how busy sites are, by their capacity. rates: float (scenarios, sources)."""
        found: Floats = rates @ self.of_sites(placed).T / self.capacity
        return found


@cache
def cube(dimensions: int, points: int) -> Floats:
    """float (points, dimensions), in [0, 1): an even, always equal sequence, by powers of the root of x^(d + 1) = x + 1.

    It is as even as Sobol's for what is asked here, works for any number of points, and needs no library (decision 108).
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = (1 / root) ** np.arange(1, dimensions + 1)
    found: Floats = (0.5 + np.arange(1, points + 1)[:, None] * steps) % 1
    found.flags.writeable = False
    return found


@cache
def simplex(dimensions: int, points: int) -> Floats:
    """float (points, dimensions), >= 0, rows add up to 1: mixes of sources, evenly over all that there are."""
    long: Floats = -np.log1p(-cube(dimensions, points))
    found: Floats = long / long.sum(axis=1, keepdims=True)
    found.flags.writeable = False
    return found


def feasible_size(model: Model, placed: Sites, points: int = POINTS) -> float:
    """Volume of the rates at which no site has too much to do, by that of the ideal, at which all sites share every source by their
    capacity: from 0 to 1.

    Along a direction u of normalised rates the first site is full at 1 / max_j w_j.u, and the ideal is at 1, so the ratio is the mean of
    (max_j w_j.u)^-d over the simplex. Cost: O(points sites sources).
    """
    used = model.total > 0
    if not used.any():
        return 1.0
    weights = model.weights(placed)[:, used]
    fullest = (simplex(int(used.sum()), points) @ weights.T).max(axis=1)
    return float(np.mean(fullest ** -float(used.sum())))


def by_effect(model: Model) -> list[int]:
    """The pieces by the norm of their shares of what sources cost, greatest first (BO 3.2)."""
    norms = np.linalg.norm(model.shares(), axis=1)
    return [int(i) for i in np.lexsort((np.arange(norms.size), -norms))]


def crossing(model: Model, placed: Sites) -> int:
    """Links between pieces at different sites."""
    return sum(placed[one] != placed[other] for one, other in model.links)


def neighbours(model: Model) -> list[list[int]]:
    """Of each piece those that it has a link with."""
    found: list[list[int]] = [[] for _ in range(model.pieces)]
    for one, other in model.links:
        found[one].append(other)
        found[other].append(one)
    return found


def fewest_links(sites: Sequence[int], near: Sequence[int]) -> int:
    """Of these sites the one with most of the sites `near`, so that fewest streams go from site to site; the first of equal ones."""
    return min(sites, key=lambda site: (-sum(each == site for each in near), site))
