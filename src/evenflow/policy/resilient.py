"""ROD: a placement that takes as many mixes of rates as can be, without anything being moved (BO 3.2)."""

from __future__ import annotations

import numpy as np

from evenflow.policy.linear import Model, Sites, by_effect, fewest_links, neighbours

EDGE = 1e-9
"""What sums of fractions may be beyond 1 by rounding."""


def resilient(model: Model) -> Sites:
    """The operators with most effect first. Class I are the sites whose hyperplane stays beyond the ideal one on every axis (w_jk <= 1 for
    all k): if there are any, the one with fewest new streams between sites. Otherwise the site whose hyperplane stays farthest from the
    origin, 1 / |w_j|.

    Pure; ties go to the first site. Cost: O(pieces sites sources).
    """
    placed = np.full(model.pieces, -1, np.int64)
    share = (model.capacity / model.capacity.sum())[:, None]
    shares, near = model.shares(), neighbours(model)
    weights = np.zeros((model.capacity.size, model.sources))
    for piece in by_effect(model):
        after = weights + shares[piece] / share
        beyond = [int(site) for site in np.flatnonzero((after <= 1 + EDGE).all(axis=1))]
        if beyond:
            site = fewest_links(beyond, [int(placed[other]) for other in near[piece]])
        else:
            site = int(np.argmin(np.linalg.norm(after, axis=1)))
        placed[piece], weights[site] = site, after[site]
    return placed
