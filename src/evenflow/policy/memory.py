"""Balancing memory instead of time, and the hybrid of both (FL 6.2, 6.4)."""

from __future__ import annotations

from collections.abc import Sequence

from evenflow.policy.hosting import Hosting, Placement
from evenflow.policy.load import PartitionLoad, SiteLoad, mean, measure, pairs
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Parameters, Proposal
from evenflow.policy.utilization import propose, relieve
from evenflow.statistics.statistics import Statistics


def memory(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Proposal:
    """Sort sites by excess memory, pair the ends, and move at most one partition per pair: the first, those in memory before those on
    disk and the largest first, that lowers the pair's difference. No thresholds of utilization. Sites without a budget take no part."""
    sites = measure(statistics, hosting, parameters.segments)
    return propose(unload(sites, hosting), sites, statistics, parameters, memory)


def hybrid(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Proposal:
    """The memory policy while any site has spilled, since latency suffers most from that; else load balancing, if the receiver has room."""
    sites = measure(statistics, hosting, parameters.segments)
    moves = unload(sites, hosting) if spilling(sites) else relieve(sites, hosting, parameters, room=True)
    return propose(moves, sites, statistics, parameters, memory)


def spilling(sites: Sequence[SiteLoad]) -> bool:
    """Whether any site has state on disk, or has to put some there."""
    return any(site.spilled_bytes or (site.free_bytes or 0) < 0 for site in sites)


def excess(site: SiteLoad) -> int:
    """Memory available to state minus the state, bytes (FL 6.2): what is left of the budget, less what is on disk."""
    return (site.free_bytes or 0) - site.spilled_bytes


def unload(sites: Sequence[SiteLoad], hosting: Hosting) -> tuple[Move, ...]:
    """One move per pair, from sites with less excess memory than the mean."""
    budgeted = [site for site in sites if site.free_bytes is not None]
    average = mean(excess(site) for site in budgeted)
    placement = Placement(hosting)
    moves = []
    for donor, receiver in pairs(sorted(budgeted, key=lambda site: (excess(site), site.site)), hosting):
        if excess(donor) >= average:
            break
        gap = excess(receiver) - excess(donor)
        for each in largest_first(donor.partitions):
            if 0 < each.state_bytes < gap and placement.allows(each.segment, each.partition, donor.site, receiver.site):
                placement.move(each.segment, each.partition)
                moves.append(Move(each.segment, (each.partition,), donor.site, receiver.site, reason(donor.site, excess(donor))))
                break
    return tuple(moves)


def largest_first(partitions: Sequence[PartitionLoad]) -> list[PartitionLoad]:
    """Those in memory before those on disk, which must be read first; then the largest (FL 6.2)."""
    return sorted(partitions, key=lambda p: (p.on_disk, -p.state_bytes, p.segment, p.partition))


def reason(site: int, excess_bytes: int) -> str:
    """Why a site gives away memory, as a phrase."""
    if excess_bytes < 0:
        return f"site {site} lacks {-excess_bytes / 1e6:.1f} MB of memory"
    return f"site {site} has {excess_bytes / 1e6:.1f} MB of memory left, less than others"
