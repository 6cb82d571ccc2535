"""Load balancing by utilization, exactly as in Flux (FL 5.3, FT 4.4.3, 5.1.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evenflow.policy.hosting import Hosting, Placement
from evenflow.policy.load import PartitionLoad, SiteLoad, imbalance, mean, measure, pairs, told
from evenflow.policy.move import Move
from evenflow.policy.proposal import Memory, Parameters, Proposal, next_delta_us
from evenflow.statistics.statistics import Statistics


def utilization(statistics: Statistics, hosting: Hosting, parameters: Parameters, memory: Memory) -> Proposal:
    """Sort sites by U, pair the most with the least utilized inwards, and move at most one partition per pair.

    A pair is considered only if U_donor > mean, U_donor / U_receiver >= th_imb and U_receiver <= th_util. The donor's partitions are
    walked from most rows down, and the first is moved that lowers the pair's imbalance and does not overload the receiver. Both replicas
    of a partition are candidates; where a replica must not go it is passed over (`Placement.allows`).
    """
    sites = measure(statistics, hosting, parameters.segments)
    return propose(relieve(sites, hosting, parameters, room=False), sites, statistics, parameters, memory)


def propose(moves: tuple[Move, ...], sites: Sequence[SiteLoad], statistics: Statistics, parameters: Parameters, memory: Memory) -> Proposal:
    """The proposal of a round of the papers' policies: their rule for delta, and no memory but that."""
    delta_us = next_delta_us(statistics, memory, parameters.delta_min_us, moving=bool(moves))
    kept = replace(memory, round=memory.round + 1, delta_us=delta_us)
    measured = imbalance(sites) if sites else 1.0
    quiet = f"nothing to move: the busiest of {len(sites)} sites is at {measured:.2f} of the mean"
    return Proposal(moves, delta_us, measured, told(moves, quiet if sites else "nothing to move: no site has reported"), kept)


def relieve(sites: Sequence[SiteLoad], hosting: Hosting, parameters: Parameters, *, room: bool) -> tuple[Move, ...]:
    """One move per pair. room: whether the receiver must have memory for the partition (FL 6.4)."""
    ranked = sorted(sites, key=lambda site: (-site.utilization, site.site))
    average = mean(site.utilization for site in sites)
    placement = Placement(hosting)
    moves = []
    for donor, receiver in pairs(ranked, hosting):
        worth = (
            donor.utilization > average
            and donor.utilization >= parameters.th_imb * receiver.utilization
            and receiver.utilization <= parameters.th_util
        )
        if not worth:
            break  # Further in, donors are less and receivers more utilized (FT 4.4.3).
        found = _first(donor, receiver, placement, hosting, room=room)
        if found is not None:
            placement.move(found.segment, found.partition)
            reason = f"site {donor.site} is {donor.utilization:.0%} utilized, site {receiver.site} {receiver.utilization:.0%}"
            moves.append(Move(found.segment, (found.partition,), donor.site, receiver.site, reason))
    return tuple(moves)


def _first(donor: SiteLoad, receiver: SiteLoad, placement: Placement, hosting: Hosting, *, room: bool) -> PartitionLoad | None:
    for each in sorted(donor.partitions, key=lambda p: (-p.rows, p.segment, p.partition)):
        if not placement.allows(each.segment, each.partition, donor.site, receiver.site):
            continue
        if room and receiver.free_bytes is not None and each.state_bytes > receiver.free_bytes:
            continue
        less, more = after(donor, receiver, each.rows)
        # Imbalance is the ratio of the two (FL 5.3), without dividing: a receiver may be idle.
        lower = max(less, more) * receiver.utilization < donor.utilization * min(less, more)
        if lower and more <= hosting.capacity[receiver.site]:
            return each
    return None


def after(donor: SiteLoad, receiver: SiteLoad, rows: int) -> tuple[float, float]:
    """U'_d = U_d (1 - N_p / T_d) and U'_r = U_r (1 + N_p / T_r), if so many rows went over (FT 4.4.3).

    A receiver that processed nothing has shown no rate; it is taken to be as fast as the donor.
    """
    share = donor.utilization * rows / donor.rows if donor.rows else 0.0
    gained = receiver.utilization * rows / receiver.rows if receiver.rows and receiver.utilization else share
    return donor.utilization - share, receiver.utilization + gained
