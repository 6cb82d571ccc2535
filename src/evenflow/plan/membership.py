"""The membership: who lives, whose copies have not joined yet, and who leads. Numbered; acts on receipt (protocol V1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from evenflow.plan.plan import Copy, Plan
from evenflow.stream.ids import CopyNumber, SiteId, Term


class Leader(NamedTuple):
    """The site that cuts the epochs of an ingress partition (I1). since: number of the membership that made it so: its term."""

    site: SiteId
    since: Term


@dataclass(frozen=True, slots=True)
class Membership:
    """Who lives (V1). number: from 0; acts on receipt. sites: of the run that are not dead, ascending, spares included.

    joining: copies whose target does not count as a replica yet.
    dropped: numbers of the newest plan's copies that were given up; their targets never will count.
    retired: numbers of the newest plan's moves that are done; the replicas that they replace count no more.
    leaders[segment][partition]: who leads each ingress partition; an empty tuple for other segments.
    """

    number: Term
    sites: tuple[SiteId, ...]
    joining: tuple[Copy, ...]
    dropped: tuple[CopyNumber, ...]
    leaders: tuple[tuple[Leader, ...], ...]
    retired: tuple[CopyNumber, ...] = ()

    def live(self, plan: Plan, segment: int, partition: int) -> tuple[SiteId, ...]:
        """Sites of the partition's replicas that count, by rank."""
        copied = [c for c in (*self.joining, *plan.copies) if c.segment == segment and partition in c.partitions]
        pending = {c.target for c in copied if c in self.joining or c.number in self.dropped}
        pending |= {c.replaces for c in copied if c.number in self.retired}
        return tuple(s for s in plan.placement[segment][partition] if s in self.sites and s not in pending)
