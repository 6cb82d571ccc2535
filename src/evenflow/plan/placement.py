"""Where the replicas of a dataflow's partitions lie at the start (protocol T3).

**Mirrored**: the sites are R copies of one row of columns; rank r of everything is on the r-th copy, so that one death disturbs one
copy only and a partition is lost only if two sites of the same column die. **Chained**: rank r of what is at home on site h is on site
h + r, so that a dead site's load is spread over its neighbours, and any two neighbours are a fatal pair.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from evenflow.errors import QueryError
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.plan import Plan
from evenflow.stream.ids import FIRST_PLAN, FIRST_TERM

Scheme = Literal["mirrored", "chained"]


def first_plan(planned: Layout, sites: int, replicas: int = 1, scheme: Scheme = "mirrored") -> Plan:
    """Plan 0 on sites 0 .. `sites` - 1, `replicas` of them for every partition.

    Ingress partition i is at home in column i modulo the columns. The P partitions of any other segment lie in contiguous blocks,
    so that neighbours in key space share a site, and so do those that own nothing yet; a segment with one partition is put by the
    hash of its name, so that several of them do not meet. A number of sites that the replicas do not divide cannot be mirrored, and is
    chained. Raises QueryError.
    """
    if not 1 <= replicas <= sites:
        raise QueryError(f"{replicas} replicas need as many sites, and there are {sites}: use fewer replicas or more sites")
    mirrored = scheme == "mirrored" and sites % replicas == 0
    columns = sites // replicas if mirrored else sites
    placement = []
    for segment in planned.segments:
        homes = (_home(segment, partition, columns) for partition in range(segment.partitions))
        if mirrored:
            placement.append(tuple(tuple(home + rank * columns for rank in range(replicas)) for home in homes))
        else:
            placement.append(tuple(tuple((home + rank) % sites for rank in range(replicas)) for home in homes))
    return Plan(FIRST_PLAN, 1, tuple(placement))


def _home(segment: Segment, partition: int, columns: int) -> int:
    if segment.kind == "ingress":
        return partition % columns
    if segment.partitions == 1:
        return zlib.crc32(segment.name.encode()) % columns
    used = segment.in_use or segment.partitions
    if partition < used:
        return partition * columns // used
    return (partition - used) * columns // (segment.partitions - used)


def first_membership(planned: Layout, plan: Plan, sites: Iterable[int]) -> Membership:
    """Membership 0: these sites live, spares among them. The leaders of the ingress partitions are spread over the ranks."""
    leaders: list[tuple[Leader, ...]] = []
    for segment in planned.segments:
        if segment.kind != "ingress":
            leaders.append(())
            continue
        homes: dict[tuple[int, ...], int] = {}
        chosen = []
        for replicas in plan.placement[segment.id]:
            turn = homes[replicas] = homes.get(replicas, -1) + 1
            chosen.append(Leader(replicas[turn % len(replicas)], FIRST_TERM))
        leaders.append(tuple(chosen))
    return Membership(FIRST_TERM, tuple(sorted(sites)), (), (), tuple(leaders))


def on_hosts(sites: Sequence[int], hosts: Mapping[int, str], replicas: int, scheme: Scheme = "mirrored") -> tuple[int, ...]:
    """The sites in the order in which `first_plan`'s 0, 1, ... are to stand for them, so that no replicas share a host if they need not.

    hosts: of each site, as far as it is known. Mirrored, sites of a host are neighbours, so they have the same rank unless the host has
    more than its share; chained, sites of a host are as far apart as can be.
    """
    by_host: dict[str, list[int]] = {}
    for site in sites:
        by_host.setdefault(hosts.get(site, ""), []).append(site)
    groups = sorted(by_host.values(), key=lambda group: (-len(group), group))
    if replicas == 1 or len(groups) == 1:
        return tuple(sites)
    if scheme == "mirrored" and len(sites) % replicas == 0:
        return tuple(site for group in groups for site in group)
    row = [site for group in groups for site in group]
    # Dealt like cards: neighbours in the ring come from different hosts as long as no host has more than half of the sites.
    half = (len(row) + 1) // 2
    return tuple(site for pair in zip(row[:half], [*row[half:], None], strict=False) for site in pair if site is not None)
