"""Correlation-based operator distribution (BO 3.1): equal mean loads, and little variance at each site, as what bursts together is apart.

Loads are time series. The score of an operator for a site is by how much more it goes with what others do than with what that one does.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from evenflow.policy.linear import Sites
from evenflow.stream.arrays import Floats

TH_DIFFERENCE: Final = 0.05
"""Sites whose mean loads differ by less than this share of the mean of all are left alone."""


def correlation(one: Floats, other: Floats) -> float:
    """The correlation coefficient of two series, -1 to 1; 0 where one of them never changes, or nothing is there."""
    a, b = one - one.mean(), other - other.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 1e-12 * max(1e-300, float(abs(one).max() * abs(other).max() * one.size)) else 0.0


def everywhere(series: Floats, capacity: Floats, *, by_load: bool = False) -> Sites:
    """The first placement: all sites are empty; again and again the least busy one gets the operator with the highest score, the mean
    correlation with the other sites minus that with this one.

    series: float (operators, windows), loads. capacity: float (sites,). by_load: of operators with the same score the one with most load
    comes first; the paper says nothing of them, and they come in their order. Cost: O(operators^2 sites windows).
    """
    placed, order = np.full(series.shape[0], -1, np.int64), np.arange(series.shape[0])
    if by_load:
        order = np.lexsort((order, -series.mean(axis=1)))
    _fill(placed, series, np.zeros((capacity.size, series.shape[1])), capacity, order)
    return placed


def one_way(series: Floats, capacity: Floats, placed: Sites, th_difference: float = TH_DIFFERENCE) -> Sites:
    """A round: of each pair of sites the busier one gives away half of what it has more, by descending score, where that brings both
    closer."""
    found = placed.copy()
    for giver, taker in _pairs(series, capacity, placed, th_difference):
        sites = _of_sites(series, found, capacity)
        mine = [int(i) for i in np.flatnonzero(found == giver)]
        means = series.mean(axis=1)
        excess = float(sites[giver].mean() / capacity[giver] - sites[taker].mean() / capacity[taker])
        wanted = excess / (1 / capacity[giver] + 1 / capacity[taker])
        scored = [(-correlation(series[i], sites[giver] - series[i]) + correlation(series[i], sites[taker]), i) for i in mine]
        for _, i in sorted(scored):
            if 0 < means[i] <= wanted:
                found[i], wanted = taker, wanted - means[i]
    return found


def two_way(series: Floats, capacity: Floats, placed: Sites, th_difference: float = TH_DIFFERENCE, th_score: float | None = None) -> Sites:
    """A round: the operators of each pair of sites are placed anew on the two. th_score: selective exchange, only operators whose score for
    moving is above it may leave their site; None: all."""
    found = placed.copy()
    for giver, taker in _pairs(series, capacity, placed, th_difference):
        pair = np.array([giver, taker])
        sites = _of_sites(series, found, capacity)
        mine = [int(i) for i in np.flatnonzero(np.isin(found, pair))]
        free = mine
        if th_score is not None:
            free = [i for i in mine if _score(series[i], sites[found[i]] - series[i], sites[pair[pair != found[i]][0]]) > th_score]
        left = _of_sites(np.delete(series, free, axis=0), np.delete(found, free), capacity)[pair]
        again = found.copy()
        again[free] = -1
        local = np.full(found.size, -1, np.int64)
        _fill(local, series, left, capacity[pair], np.array(free, np.int64))
        again[free] = pair[local[free]]
        # It is for balance: an exchange that makes it worse is none.
        if _difference(series, capacity, again, giver, taker) <= _difference(series, capacity, found, giver, taker):
            found = again
    return found


def _score(own: Floats, rest: Floats, other: Floats) -> float:
    return correlation(own, rest) - correlation(own, other)


def _fill(placed: Sites, series: Floats, sites: Floats, capacity: Floats, operators: Sites) -> None:
    """Operators onto sites that have these loads already: the least busy site takes the one with the highest score."""
    left = operators.copy()
    centred = series - series.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    while left.size:
        site = int(np.argmin(sites.mean(axis=1) / capacity))
        own = sites - sites.mean(axis=1, keepdims=True)
        sizes = np.sqrt((own**2).sum(axis=1))
        both = np.outer(norms[left], sizes)
        rho = np.divide(centred[left] @ own.T, both, out=np.zeros_like(both), where=both > 1e-12)
        others = np.delete(rho, site, axis=1)
        score = (others.mean(axis=1) if others.size else 0.0) - rho[:, site]
        at = int(np.argmax(np.round(score, 9)))  # The first of equal ones, in the order in which they are given.
        chosen = int(left[at])
        placed[chosen] = site
        sites[site] += series[chosen]
        left = np.delete(left, at)


def _of_sites(series: Floats, placed: Sites, capacity: Floats) -> Floats:
    found = np.zeros((capacity.size, series.shape[1]))
    np.add.at(found, placed, series)
    return found


def _difference(series: Floats, capacity: Floats, placed: Sites, one: int, other: int) -> float:
    used = _of_sites(series, placed, capacity).mean(axis=1) / capacity
    return float(abs(used[one] - used[other]))


def _pairs(series: Floats, capacity: Floats, placed: Sites, th_difference: float) -> list[tuple[int, int]]:
    """The busiest with the idlest site and so on inwards, as long as they differ by enough."""
    used = _of_sites(series, placed, capacity).mean(axis=1) / capacity
    order = [int(i) for i in np.lexsort((np.arange(used.size), -used))]
    pairs = list(zip(order[: len(order) // 2], reversed(order), strict=False))
    return [(busy, idle) for busy, idle in pairs if used[busy] - used[idle] > th_difference * used.mean()]
