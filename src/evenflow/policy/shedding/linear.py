"""Loads and worth as linear functions of what is let in: what advance plans are made of, which leave rows out where they come in only.

    X_j(r) = sum_k load[j, k] r_k <= limit[j]        worth(r) = sum_k worth[k] r_k

`of` reads both from a flow whose rows are of one class; the paper's queries are of that sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenflow.errors import PolicyError
from evenflow.policy.shedding.highs import Program
from evenflow.policy.shedding.network import FlowNetwork
from evenflow.stream.arrays import Bools, Floats


@dataclass(frozen=True, slots=True)
class Linear:
    """inputs: names of the d sources. load: shape (sites, d), CPU seconds per row; limit: shape (sites,), what a site may use of a second.
    worth: shape (d,), what a row of each source brings."""

    inputs: tuple[str, ...]
    load: Floats
    limit: Floats
    worth: Floats

    def fits(self, points: Floats) -> Bools:
        """Whether every site can do what these rates, shape (n, d), ask of it."""
        found: Bools = np.all(points @ self.load.T <= self.limit * (1 + 1e-12), axis=-1)
        return found

    def most(self) -> Floats:
        """The largest rate of each input alone that fits, m_i; of one that costs nothing, infinite."""
        costs = self.load > 0
        found: Floats = np.where(costs, self.limit[:, None] / np.where(costs, self.load, 1.0), np.inf).min(axis=0)
        return found

    def best(self, point: Floats) -> Floats:
        """The point below this one that fits and is worth most, by HiGHS; itself if it fits."""
        if self.fits(point[None])[0]:
            return point
        program = Program(self.worth.tolist(), [0.0] * len(point), point.tolist())
        for cost, limit in zip(self.load.tolist(), self.limit.tolist()):
            program.at_most(list(enumerate(cost)), limit)
        found = program.solved()
        if found is None:
            raise PolicyError(f"shedding: no plan for the rates {point.tolist()}; rates and costs must be finite numbers of at least 0")
        lower: Floats = np.minimum(np.maximum(found, 0.0), point)
        return lower


def of(network: FlowNetwork, *, headroom: float = 1.0) -> Linear:
    """The linear functions of a flow. Raises PolicyError for one whose rows differ in worth, or whose outputs are not worth their rows."""
    if network.classes != 1:
        raise PolicyError("shedding: plans in advance are for rows of one class; use the flow problem for values")
    inputs = tuple(network.sources)
    load = np.zeros((len(network.sites), len(inputs)))
    worth = np.zeros(len(inputs))
    for k, name in enumerate(inputs):
        flowing = [rates[0] for rates in network.flowing({name: 1.0})]
        for box, cost in network.boxes.items():
            rows = sum(flowing[place] for place in network.into(box))
            for site, each in cost.items():
                load[network.sites.index(site), k] += each * rows
        for output, described in network.outputs.items():
            worth[k] += described.weight * described.worth[0] * sum(flowing[place] for place in network.into(output))
    limit = headroom * np.array([network.capacity[site] for site in network.sites])
    return Linear(inputs, load, limit, worth)


__all__ = ["Linear", "of"]
