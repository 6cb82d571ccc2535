"""Loads as the policies see them: per site its utilization and the partitions that it may give away, from one round's statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evenflow.policy.hosting import Hosting
from evenflow.policy.move import Move
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SiteWindow


class PartitionLoad(NamedTuple):
    """One replica. rows: processed in the window. cpu_share: its part of the site's time, CPU-seconds per second, >= 0: its segment's busy
    time by its share of the segment's rows. state_bytes: held at the end. on_disk: whether its state is spilled.

    A round makes thousands of them, and a tuple is made five times as fast as a frozen dataclass."""

    segment: int
    partition: int
    rows: int
    cpu_share: float
    state_bytes: int
    on_disk: bool


@dataclass(frozen=True, slots=True)
class SiteLoad:
    """One site. utilization: U_j in [0, 1]. rows: T_j, of all partitions that the policy looks at, movable or not. partitions: the movable
    ones. costs: busy microseconds per row, by segment that had rows. free_bytes: None if the site has no budget."""

    site: int
    utilization: float
    rows: int
    partitions: tuple[PartitionLoad, ...]
    free_bytes: int | None = None
    spilled_bytes: int = 0
    costs: dict[int, float] = field(default_factory=dict)


def measure(statistics: Statistics, hosting: Hosting, segments: Sequence[int] | None = None) -> tuple[SiteLoad, ...]:
    """The sites that take part: those that report, and host something or may be given something. By site.

    segments: those to balance; None means all. What the statistics say of partitions that are no longer where they were reported, and
    sites whose window is empty, are left out: a stale report proposes nothing.
    """
    hosting_sites = {site for sites in hosting.replicas.values() for site in sites}
    return tuple(
        _site(window, hosting, segments)
        for window in statistics.sites
        if window.end_us > window.begin_us and (window.site in hosting_sites or window.site in hosting.capacity)
    )


def _site(window: SiteWindow, hosting: Hosting, segments: Sequence[int] | None) -> SiteLoad:
    """Its movable partitions are those that `Placement.hosted` says are; asked here without a call for each."""
    length_us, site, replicas, pinned = window.end_us - window.begin_us, window.site, hosting.replicas, hosting.pinned
    partitions: list[PartitionLoad] = []
    costs: dict[int, float] = {}
    total = 0
    for segment in window.segments:
        number, cost_us = segment.segment, segment.cost_us
        if cost_us is not None:
            costs[number] = cost_us
        if segments is not None and number not in segments:
            continue
        total += sum(segment.rows)
        cost_us = cost_us or 0.0
        for partition, rows, state_bytes in zip(segment.partitions, segment.rows, segment.state_bytes):
            at = (number, partition)
            if site in replicas.get(at, ()) and at not in pinned:
                on_disk = (site, number, partition) in hosting.on_disk
                partitions.append(PartitionLoad(number, partition, rows, rows * cost_us / length_us, state_bytes, on_disk))
    return SiteLoad(window.site, window.utilization, total, tuple(partitions), window.free_bytes, window.spilled_bytes, costs)


def mean(values: Iterable[float]) -> float:
    """Mean; 0 of nothing."""
    all_of_them = list(values)
    return sum(all_of_them) / len(all_of_them) if all_of_them else 0.0


def imbalance(sites: Sequence[SiteLoad]) -> float:
    """Greatest utilization by mean utilization, >= 1; 1 if nobody works."""
    average = mean(site.utilization for site in sites)
    return max(site.utilization for site in sites) / average if average else 1.0


def pairs(sites: Sequence[SiteLoad], hosting: Hosting) -> list[tuple[SiteLoad, SiteLoad]]:
    """Donor and receiver, from the ends of a sorted list inwards (FL figure 6). sites: those with most to give first.

    Who may be given nothing is no receiver, and the next one takes its place.
    """
    found = []
    last = len(sites)
    for first, donor in enumerate(sites):
        last = next((i for i in range(last - 1, first, -1) if sites[i].site in hosting.capacity), -1)
        if last < 0:
            break
        found.append((donor, sites[last]))
    return found


def told(moves: Sequence[Move], otherwise: str) -> str:
    """The sentence about a round. otherwise: what to say if nothing moves."""
    if not moves:
        return otherwise
    count = sum(len(move.partitions) for move in moves)
    return f"{count} partition{'s' if count > 1 else ''} to move: " + "; ".join(_phrase(move) for move in moves)


def _phrase(move: Move) -> str:
    many = f"{len(move.partitions)} of segment {move.segment}"
    one = f"partition {move.partitions[0]} of segment {move.segment}"
    return f"{one if len(move.partitions) == 1 else many} from site {move.source} to {move.target} ({move.reason})"
