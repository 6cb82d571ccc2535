"""What becomes of rates that are let in, without a plan: each site gives its boxes an equal part of what it can do (BO table 1).

A site that is asked for L times its capacity passes on one L-th of what each of its boxes would, and those behind it get no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evenflow.errors import PolicyError
from evenflow.policy.shedding.network import FlowNetwork


@dataclass(frozen=True, slots=True)
class Alternative:
    """rates: what is let in, by source. loads: what each site is asked for, of its capacity, by what reaches it. throughput: rows per
    second that leave the site, by arc that leads away from it."""

    rates: Mapping[str, float]
    loads: Mapping[int, float]
    throughput: Mapping[int, Mapping[str, float]]

    @property
    def feasible(self) -> bool:
        return all(load <= 1 + 1e-9 for load in self.loads.values())


def alternative(network: FlowNetwork, rates: Mapping[str, float]) -> Alternative:
    """What these rates lead to. Every box is at one site, and no site feeds another one that feeds it. Raises PolicyError otherwise."""
    site_of = {name: _only_site(name, cost) for name, cost in network.boxes.items()}
    rows: list[float] = [0.0] * len(network.arcs)
    for place, arc in enumerate(network.arcs):
        if arc.up in network.sources:
            rows[place] = rates.get(arc.up, 0.0)
    loads: dict[int, float] = {}
    throughput: dict[int, dict[str, float]] = {}
    for site in _sites_in_order(network, site_of):
        mine = [name for name in network.order if site_of.get(name) == site]
        load = 0.0
        for name in mine:  # What the site would do if it had the time: its boxes feed one another, too.
            into = sum(rows[place] for place in network.into(name))
            load += into * network.boxes[name][site] / network.capacity[site]
            for place, arc in enumerate(network.arcs):
                if arc.up == name:
                    rows[place] = arc.selectivity * into
        loads[site] = load
        away = [place for place, arc in enumerate(network.arcs) if arc.up in mine and site_of.get(arc.down) != site]
        for place in away:
            rows[place] /= max(1.0, load)
        throughput[site] = {network.arcs[place].name: rows[place] for place in away}
    return Alternative(dict(rates), loads, throughput)


def _only_site(name: str, cost: Mapping[int, float]) -> int:
    if len(cost) != 1:
        raise PolicyError(f"shedding: box {name!r} is at {len(cost)} sites; the paper's table is of boxes at one site each")
    return next(iter(cost))


def _sites_in_order(network: FlowNetwork, site_of: Mapping[str, int]) -> list[int]:
    feeds = {(site_of[arc.up], site_of[arc.down]) for arc in network.arcs if arc.up in site_of and arc.down in site_of}
    waiting, placed = list(network.sites), list[int]()
    while waiting:
        ready = next((s for s in waiting if all(a in placed or a == s for a, b in sorted(feeds) if b == s)), None)
        if ready is None:
            raise PolicyError("shedding: sites feed one another in a circle; the paper's table is of sites that do not")
        placed.append(ready)
        waiting.remove(ready)
    return placed


__all__ = ["Alternative", "alternative"]
