"""Where the replicas of a dataflow's partitions lie at the start (protocol T3).

**Mirrored**: the sites are R copies of one row of columns; rank r of everything is on the r-th copy, so that one death disturbs one
copy only and a partition is lost only if two sites of the same column die. **Chained**: rank r of what is at home on site h is on site
h + r, so that a dead site's load is spread over its neighbours, and any two neighbours are a fatal pair.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from evenflow.availability.mode import Modes, of_segment, replicas_of
from evenflow.errors import QueryError
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.plan import Plan, Settings
from evenflow.stream.ids import FIRST_PLAN, FIRST_TERM, SiteId

Scheme = Literal["mirrored", "chained"]

Place = Callable[[Segment, int, int], int]
"""Of a segment, a partition and the number of columns: the column where the partition's first replica lies."""


def home(segment: Segment, partition: int, columns: int) -> int:
    """The column where the first replica of a partition lies if nobody says otherwise (see `first_plan`)."""
    if segment.kind == "ingress":
        return partition % columns
    if segment.partitions == 1:
        return zlib.crc32(segment.name.encode()) % columns
    used = segment.in_use or segment.partitions
    if partition < used:
        return partition * columns // used
    return (partition - used) * columns // (segment.partitions - used)


def first_plan(
    planned: Layout,
    sites: int,
    replicas: int = 1,
    scheme: Scheme = "mirrored",
    together: Mapping[int, Sequence[Sequence[int]]] | None = None,
    place: Place = home,
    modes: Modes = (),
) -> Plan:
    """Plan 0 on sites 0 .. `sites` - 1, `replicas` of them for every partition.

    Ingress partition i is at home in column i modulo the columns. The P partitions of any other segment lie in contiguous blocks,
    so that neighbours in key space share a site, and so do those that own nothing yet; a segment with one partition is put by the
    hash of its name, so that several of them do not meet. A number of sites that the replicas do not divide cannot be mirrored, and is
    chained. together: by segment, groups of partitions that are all put where the first of them would be. place: where
    first replicas lie, if not there; the others follow as ever. modes: a segment of which one replica consumes is spread over all sites.
    Raises QueryError.
    """
    if not 1 <= replicas <= sites:
        raise QueryError(f"{replicas} replicas need as many sites, and there are {sites}: use fewer replicas or more sites")
    mirrored = scheme == "mirrored" and sites % replicas == 0
    placement = []
    for segment in planned.segments:
        many = replicas_of(of_segment(modes, segment.id), replicas)
        columns = sites // many if mirrored else sites
        homes = (place(segment, partition, columns) for partition in range(segment.partitions))
        row: list[tuple[SiteId, ...]]
        if many == 1:
            row = [(SiteId(column),) for column in homes]
        elif mirrored:
            row = [tuple(SiteId(column + rank * columns) for rank in range(replicas)) for column in homes]
        else:
            row = [tuple(SiteId((column + rank) % sites) for rank in range(replicas)) for column in homes]
        for first, *others in (together or {}).get(segment.id, ()):
            for partition in others:
                row[partition] = row[first]
        placement.append(tuple(row))
    return Plan(FIRST_PLAN, 1, tuple(placement), settings=Settings(modes=tuple(modes)))


def first_membership(planned: Layout, plan: Plan, sites: Iterable[SiteId]) -> Membership:
    """Membership 0: these sites live, spares among them. The leaders of partitions that have one are spread over the ranks."""
    leaders: list[tuple[Leader, ...]] = []
    for segment in planned.segments:
        if not segment.led:
            leaders.append(())
            continue
        homes: dict[tuple[int, ...], int] = {}
        chosen = []
        for replicas in plan.placement[segment.id]:
            turn = homes[replicas] = homes.get(replicas, -1) + 1
            chosen.append(Leader(replicas[turn % len(replicas)], FIRST_TERM))
        leaders.append(tuple(chosen))
    return Membership(FIRST_TERM, tuple(sorted(sites)), (), (), tuple(leaders))


def on_sites(plan: Plan, sites: Sequence[SiteId]) -> Plan:
    """A plan that was made for sites 0, 1, ... on those that there are: indices have gaps once a site was lost."""
    return replace(plan, placement=tuple(tuple(tuple(sites[s] for s in replicas) for replicas in row) for row in plan.placement))


def on_hosts(sites: Sequence[SiteId], hosts: Mapping[SiteId, str], replicas: int, scheme: Scheme = "mirrored") -> tuple[SiteId, ...]:
    """The sites in the order in which `first_plan`'s 0, 1, ... are to stand for them, so that no replicas share a host if they need not.

    hosts: of each site, as far as it is known. Mirrored, sites of a host are neighbours, so they have the same rank unless the host has
    more than its share; chained, sites of a host are as far apart as can be.
    """
    by_host: dict[str, list[SiteId]] = {}
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
