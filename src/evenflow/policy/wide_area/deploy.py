"""P1: where the replicas of operators lie, so that the network has least to do (HW 5.4.1, algorithm 7).

The first replicas can be given, such as those of a run that is there. Without them they are placed as the others and then moved while that
lowers the cost. The thesis asks spring relaxation for them; with tens of sites what springs approach can be counted out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from evenflow.errors import PolicyError
from evenflow.policy.wide_area.legs import Arrow, Deployment
from evenflow.stream.arrays import Floats

PASSES: Final = 32
"""Over all operators, in which first replicas move to where they cost less. Each lowers the cost, so they end; usually after three."""
EDGE: Final = 1e-9
"""What sums may differ by rounding."""


def deploy(
    ops: Sequence[str],
    sites: Sequence[float],
    latency: Floats,
    rate: Mapping[Arrow, float],
    load: Mapping[str, float],
    k_max: int,
    alpha: float,
    d_min: float,
    *,
    pinned: Mapping[str, int],
    first: Mapping[str, int] | None = None,
) -> Deployment:
    """Up to k_max replicas of each operator, each on the site where it adds least to the network's cost, that has room and is far enough
    from its peers.

    ops: operators, producers before consumers. sites: the capacity of each, in the unit of load. latency: float (sites, sites), ms, from a
    row's site to a column's. rate: of each arrow, rows/s. load: of one replica of each operator. alpha: the share of a site's capacity
    that may be used, < 1. d_min: what peers must be apart, ms; 30 to 70 did well in the thesis. pinned: the sites of sources and
    applications, which are in the result too. first: where first replicas are.

    An operator for which no site is left has fewer replicas; one without any raises PolicyError, as does what cannot be meant. Pure; ties
    go to the first site. Cost: O(k_max^2 arrows sites).
    """
    _check(ops, sites, latency, rate, load, k_max, pinned)
    placed = _Placed(ops, sites, latency, rate, load, alpha, d_min, {name: [at] for name, at in pinned.items()})
    if first is None:
        for op in ops:
            placed.add(op, needed=True)
        placed.descend()
    else:
        for op in ops:
            placed.put(op, first[op])
    for _ in range(1, k_max):
        for op in ops:
            placed.add(op)
    return {name: tuple(at) for name, at in placed.at.items()}


def _check(
    ops: Sequence[str],
    sites: Sequence[float],
    latency: Floats,
    rate: Mapping[Arrow, float],
    load: Mapping[str, float],
    k_max: int,
    pinned: Mapping[str, int],
) -> None:
    if k_max < 1:
        raise PolicyError(f"k_max is {k_max}; an operator has at least one replica")
    if latency.shape != (len(sites), len(sites)) or not (latency >= 0).all():
        raise PolicyError(f"latency must be {len(sites)} x {len(sites)} numbers that are not negative; its shape is {latency.shape}")
    for arrow in rate:
        for name in arrow:
            if name not in pinned and name not in ops:
                raise PolicyError(f"the arrow from {arrow[0]} to {arrow[1]} names {name}, which is neither an operator nor pinned")
    if missing := [op for op in ops if op not in load]:
        raise PolicyError(f"the load of {missing[0]} is not said")


class _Placed:
    """Replicas that lie somewhere already, and what one more would cost. at: by name, sites by age."""

    def __init__(
        self,
        ops: Sequence[str],
        sites: Sequence[float],
        latency: Floats,
        rate: Mapping[Arrow, float],
        load: Mapping[str, float],
        alpha: float,
        d_min: float,
        at: dict[str, list[int]],
    ) -> None:
        self.ops, self.sites, self.latency, self.load = ops, sites, latency, load
        self.alpha, self.d_min, self.at = alpha, d_min, at
        self.used = [0.0] * len(sites)
        self.inputs: dict[str, list[tuple[str, float]]] = {op: [] for op in ops}
        self.outputs: dict[str, list[tuple[str, float]]] = {op: [] for op in ops}
        for (producer, consumer), per_s in rate.items():
            self.inputs.get(consumer, []).append((producer, per_s))
            self.outputs.get(producer, []).append((consumer, per_s))

    def add(self, op: str, *, needed: bool = False) -> None:
        site = self._best(op)
        if site is not None:
            self.put(op, site)
        elif needed:
            raise PolicyError(f"no site has room for {op}, whose load is {self.load[op]:g}")

    def put(self, op: str, site: int) -> None:
        self.at.setdefault(op, []).append(site)
        self.used[site] += self.load[op]

    def descend(self) -> None:
        """Move first replicas to where they cost less, each by itself and all of one site together, until none can be moved. What is on one
        site already is there because it is linked, and one of two that are linked seldom gains by leaving the other. Only before there are
        others."""
        for _ in range(PASSES):
            moved = [self._move([op]) for op in self.ops]
            for site in range(len(self.sites)):
                moved.append(self._move([op for op in self.ops if self.at[op] == [site]]))
            if not any(moved):
                return

    def _move(self, group: Sequence[str]) -> bool:
        """These operators, all to one site, if one of them is better."""
        before = {op: self.at.pop(op)[0] for op in group}
        for op, site in before.items():
            self.used[site] -= self.load[op]
        load = sum(self.load[op] for op in group)
        able = [site for site in range(len(self.sites)) if self.used[site] + load < self.alpha * self.sites[site]]
        best = min(able, key=lambda site: (sum(self.cost(op, site) for op in group), site), default=None)
        stayed = sum(self.cost(op, site) for op, site in before.items())
        stayed += sum(
            per_s * float(self.latency[before[name], before[op]]) for op in group for name, per_s in self.inputs[op] if name in before
        )
        better = best is not None and sum(self.cost(op, best) for op in group) < stayed - EDGE
        for op, site in before.items():
            self.put(op, best if best is not None and better else site)
        return better

    def cost(self, op: str, site: int) -> float:
        """Of all legs that a replica of op would have there with the replicas that are placed already."""
        to = sum(per_s * float(self.latency[at, site]) for name, per_s in self.inputs[op] for at in self.at.get(name, ()))
        return to + sum(per_s * float(self.latency[site, at]) for name, per_s in self.outputs[op] for at in self.at.get(name, ()))

    def _best(self, op: str) -> int | None:
        able = [site for site in range(len(self.sites)) if self._has_room(op, site) and self._is_apart(op, site)]
        return min(able, key=lambda site: (self.cost(op, site), site), default=None)

    def _has_room(self, op: str, site: int) -> bool:
        return self.used[site] + self.load[op] < self.alpha * self.sites[site]

    def _is_apart(self, op: str, site: int) -> bool:
        """Peers near each other fall into the same part of a network that is cut."""
        return all(site != peer and min(self.latency[site, peer], self.latency[peer, site]) > self.d_min for peer in self.at.get(op, ()))
