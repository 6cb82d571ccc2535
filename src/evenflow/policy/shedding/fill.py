"""What a table gives is raised to what there is still room for: a grid is coarse, and what was offered is known exactly."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np

from evenflow.policy.shedding.linear import Linear
from evenflow.stream.arrays import Floats


def filled(linear: Linear, low: Any, offered: Any) -> Floats:
    """Points, shape (n, d), between those of a table and what is offered that are worth most of some that fit and leave no room.

    Each input is raised as far as it goes, one after the other, in every order; the best of these is taken. So it is from nothing at all,
    since the best plan has often all of one input, and a table has not where that is rare. What fits before fits after. Cost: 2 d! passes
    over the points, for d up to 4.
    """
    low, offered = np.atleast_2d(low), np.atleast_2d(offered)
    best: Floats = low
    worth = low @ linear.worth
    for begun, order in product((low, np.zeros_like(low)), permutations(range(low.shape[1]))):
        tried = begun.copy()
        for axis in order:
            tried[:, axis] = np.minimum(offered[:, axis], tried[:, axis] + _room(linear, tried, axis))
        brings = tried @ linear.worth
        better = brings > worth
        best, worth = np.where(better[:, None], tried, best), np.where(better, brings, worth)
    return best


def _room(linear: Linear, points: Floats, axis: int) -> Floats:
    """How far each point may go along an axis."""
    costs = linear.load[:, axis] > 0
    if not costs.any():
        return np.full(len(points), np.inf)
    left = linear.limit[costs] - points @ linear.load[costs].T
    found: Floats = np.maximum(0.0, (left / linear.load[costs, axis]).min(axis=1))
    return found


__all__ = ["filled"]
