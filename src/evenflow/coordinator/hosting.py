"""Who hosts what, from the newest plan and membership: of every site its role and how many partitions it has, and how many replicas of
each partition live. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenflow.availability.mode import MODES
from evenflow.statistics.progress import Role

if TYPE_CHECKING:
    from evenflow.plan.membership import Membership
    from evenflow.plan.plan import Plan
    from evenflow.site.view import View


@dataclass(frozen=True, slots=True)
class Hosting:
    """partitions: replicas that count, of all segments together. coming: replicas whose state is under way to the site."""

    partitions: int = 0
    coming: int = 0

    @property
    def role(self) -> Role:
        """joining: it gets replicas that do not count yet. spare: it waits for somebody's death."""
        return "joining" if self.coming else "live" if self.partitions else "spare"


def hosting(plan: Plan, membership: Membership) -> dict[int, Hosting]:
    """By site, of all that take part. The two must be of about the same moment: a copy that only one of them knows does no harm."""
    joining = {copy.number for copy in membership.joining}
    copies = {copy.number: copy for copy in (*plan.copies, *membership.joining)}.values()
    pending = [copy for copy in copies if copy.number in joining or copy.number in membership.dropped]
    absent = {(copy.segment, partition, copy.target) for copy in pending for partition in copy.partitions}
    counted: Counter[int] = Counter()
    for segment, row in enumerate(plan.placement):
        for partition, sites in enumerate(row):
            counted.update([site for site in sites if (segment, partition, site) not in absent])
    coming: Counter[int] = Counter()
    for copy in membership.joining:
        coming[copy.target] += len(copy.partitions)
    return {site: Hosting(counted[site], coming[site]) for site in membership.sites}


def redundancy_of(view: View) -> int:
    """The least number of live replicas of any partition that has several, or of any if none has."""
    plan = view.plan
    if not plan.modes or not any(MODES[mode].replicates for mode in plan.modes):
        return view.redundancy()
    several = [segment.id for segment in view.layout.segments if MODES[plan.mode(segment.id)].replicates]
    return min(len(view.live(block)) for segment in several for block in view.blocks(segment))
