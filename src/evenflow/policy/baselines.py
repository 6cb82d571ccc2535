"""What placements are compared with (BO 3.1, 3.2): operators in an order that means nothing, by their load, or by who feeds whom.

All but `scattered`, which balances only their number, balance the mean load at one point of rates, and look at nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from evenflow.policy.linear import Model, Sites, neighbours
from evenflow.stream.arrays import Floats


def scattered(model: Model, random: np.random.Generator) -> Sites:
    """As many at each site as at any other, and chance decides which. random: of the caller's seed."""
    placed = np.zeros(model.pieces, np.int64)
    placed[random.permutation(model.pieces)] = np.arange(model.pieces) % model.capacity.size
    return placed


def randomly(model: Model, rates: Floats, random: np.random.Generator) -> Sites:
    """In any order, each to the least busy site. rates: float (sources,). random: of the caller's seed."""
    return _to_the_least_busy(model, model.coefficients @ rates, random.permutation(model.pieces).tolist())


def largest(model: Model, rates: Floats) -> Sites:
    """Largest load first, each to the least busy site."""
    load = model.coefficients @ rates
    return _to_the_least_busy(model, load, (int(i) for i in np.lexsort((np.arange(load.size), -load))))


def connected(model: Model, rates: Floats) -> Sites:
    """The largest that is left goes to the least busy site, and with it what it is linked with, as long as that site has less than the mean
    to do."""
    load = model.coefficients @ rates
    busy, mean = np.zeros(model.capacity.size), float(load.sum() / model.capacity.sum())
    placed, near = np.full(model.pieces, -1, np.int64), neighbours(model)
    for piece in (int(i) for i in np.lexsort((np.arange(load.size), -load))):
        if placed[piece] >= 0:
            continue
        site, reached = int(np.argmin(busy)), [piece]
        while reached:
            each = reached.pop(0)
            fits = each == piece or busy[site] + load[each] / model.capacity[site] <= mean
            if placed[each] < 0 and fits:
                placed[each] = site
                busy[site] += load[each] / model.capacity[site]
                reached += sorted(near[each], key=lambda other: (-load[other], other))
    return placed


def _to_the_least_busy(model: Model, load: Floats, order: Iterable[int]) -> Sites:
    busy, placed = np.zeros(model.capacity.size), np.zeros(model.pieces, np.int64)
    for piece in order:
        site = int(np.argmin(busy))
        placed[piece] = site
        busy[site] += load[piece] / model.capacity[site]
    return placed
