"""What a site knows of who hosts what: its plans and the newest membership, and what follows from the two.

Partitions with the same replicas are one **block**, so that what happens on a death costs the same for 64 partitions as for 4,096.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.availability.mode import BASED, MODES, Mode
from evenflow.exchange.routing import Split, key_groups_of
from evenflow.plan.layout import Layout, Segment
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.plan import Copy, Plan
from evenflow.stream.ids import NO_COPY, NO_SITE, CopyNumber, PlanNumber, SiteId

NOBODY: Final = NO_SITE
"""In a placement: the replica is lost and not being copied."""


@dataclass(frozen=True, slots=True)
class Block:
    """Partitions of a segment with the same replicas. sites: by rank, or NOBODY. target: the site that they are being copied to, or -1."""

    sites: tuple[SiteId, ...]
    partitions: tuple[int, ...]
    target: SiteId


Alike = tuple[CopyNumber, SiteId, tuple[SiteId, ...], tuple[int, ...]]
"""Partitions that are alike in a plan: number of the copy that they are part of, 0 for none; its target, -1 for none; sites; partitions."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the epochs of a segment go by as long as a plan acts. plan: its number. splits: how the output is grouped, by output arc.
    groups: int32 (G,), the partition of each key group; the same array as long as they are the same, None of an ingress segment. version:
    number of the one that changed the segment last; segment: with the steps that it runs."""

    plan: PlanNumber
    splits: tuple[Split, ...]
    groups: npt.NDArray[np.int32] | None
    version: int
    segment: Segment


class View:
    """plans: by effective epoch, at least one. membership: the newest. known: sites that have been members, as far as was heard here: who
    said hello first may join last. former: (segment, site) where replicas have moved away, or copies were given up. joining: numbers of the
    copies that do not count yet.

    earlier: plans that act before `plan` does, where a run begins with several.
    """

    def __init__(self, layout: Layout, plan: Plan, membership: Membership, site: SiteId, earlier: Iterable[Plan] = ()) -> None:
        self.layout, self.site = layout, site
        self.plans = [*earlier, plan]
        self.membership = membership
        self.known = set(membership.sites)
        self.former: set[tuple[int, SiteId]] = set()
        self._planned: dict[int, tuple[Alike, ...]] = {}
        self._blocks: dict[int, tuple[Block, ...]] = {}
        self._splits: dict[tuple[int, int], tuple[Split, ...]] = {}
        self._groups: dict[tuple[int, int], npt.NDArray[np.int32]] = {}
        self._terms: dict[tuple[int, int], Terms] = {}
        self._sides: dict[SiteId, int] = {}
        self._counted: dict[int, frozenset[int]] = {}
        self._least: int | None = None
        self._note()

    @property
    def plan(self) -> Plan:
        return self.plans[-1]

    def plan_at(self, epoch: int) -> Plan:
        newest = self.plans[-1]
        return newest if newest.effective <= epoch else next(plan for plan in reversed(self.plans) if plan.effective <= epoch)

    def passed(self, finished: int, stable: Sequence[int]) -> int:
        """Up to which epoch nobody asks for anything: it is finished, and what begins again from a base does so behind it (B2).

        stable: by segment."""
        plan = self.plan
        held = [epoch for segment, epoch in enumerate(stable) if plan.mode(segment) in BASED] if plan.modes else []
        return min([finished, *held])

    def adopt(self, plan: Plan, finished: int) -> None:
        """A newer plan. Those that govern only epochs up to `finished` are forgotten."""
        for segment, (now, then) in enumerate(zip(self.plan.placement, plan.placement, strict=True)):
            if now != then:  # Replicas that the plan leaves out may have asked for what is kept for them no more.
                gone = {site for row in now for site in row if site >= 0} - {site for row in then for site in row}
                self.former.update((segment, site) for site in gone)
        self.plans = [p for p, after in zip(self.plans, [*self.plans[1:], plan], strict=True) if after.effective > finished]
        self.plans.append(plan)
        self._planned.clear()
        oldest = self.plans[0].number
        self._splits = {key: splits for key, splits in self._splits.items() if key[1] >= oldest}
        self._groups = {key: groups for key, groups in self._groups.items() if key[1] >= oldest}
        self._terms.clear()
        self._note()

    def change(self, membership: Membership) -> None:
        self.membership = membership
        self.known.update(membership.sites)
        self.former.update((c.segment, c.replaces) for c in self.plan.copies if c.number in membership.retired)
        self.former.update((c.segment, c.target) for c in self.plan.copies if c.number in membership.dropped)
        self._note()

    def is_dead(self, site: SiteId) -> bool:
        return site not in self.membership.sites and site in self.known

    def is_new(self, site: SiteId) -> bool:
        return site not in self.known

    def _note(self) -> None:
        """Whatever is asked often is computed here, once per plan and membership."""
        self._blocks.clear()
        self._counted.clear()
        self._least = None
        self.joining = frozenset([copy.number for copy in self.membership.joining])
        ranks: dict[SiteId, Counter[int]] = {}
        for segment in self.layout.segments:
            for block in self.blocks(segment.id):
                for rank, site in enumerate(block.sites):
                    ranks.setdefault(site, Counter())[rank] += len(block.partitions)
        going = [c for c in self.plan.copies if c.replaces == self.site and c.number not in self.membership.dropped]
        self._leaving = {c.segment: frozenset(p for other in going if other.segment == c.segment for p in other.partitions) for c in going}
        self._sides = {site: min(counts, key=lambda rank: (-counts[rank], rank)) for site, counts in ranks.items()}

    def blocks(self, segment: int) -> tuple[Block, ...]:
        """The segment's partitions under the newest plan."""
        found = self._blocks.get(segment)
        if found is None:
            gone = {c.number: c.target for c in self.plan.copies if c.number in self.membership.dropped}
            gone |= {c.number: c.replaces for c in self.plan.copies if c.number in self.membership.retired}
            # Its target never got what the placement says, or its former host has it no more: nothing is kept for it.
            found = tuple(
                Block(
                    tuple(NOBODY if site == gone[copy] else site for site in sites) if copy in gone else sites,
                    partitions,
                    target if copy in self.joining else NO_SITE,
                )
                for copy, target, sites, partitions in self._as_planned(segment)
            )
            self._blocks[segment] = found
        return found

    def _as_planned(self, segment: int) -> tuple[Alike, ...]:
        """The segment's partitions under the newest plan, whatever has become of its copies since: a round of moves is one plan, but many
        memberships."""
        found = self._planned.get(segment)
        if found is None:
            copies = {p: (c.number, c.target) for c in self.plan.copies if c.segment == segment for p in c.partitions}
            groups: dict[tuple[tuple[SiteId, ...], tuple[CopyNumber, SiteId]], list[int]] = {}
            for partition, sites in enumerate(self.plan.placement[segment]):
                groups.setdefault((sites, copies.get(partition, (NO_COPY, NO_SITE))), []).append(partition)
            found = self._planned[segment] = tuple((*copy, sites, tuple(parts)) for (sites, copy), parts in groups.items())
        return found

    def live(self, block: Block) -> tuple[SiteId, ...]:
        """Its replicas that count, by rank."""
        return tuple([site for site in block.sites if site in self.membership.sites and site != block.target])

    def redundancy(self) -> int:
        """The least number of live replicas of any partition."""
        if self._least is None:
            blocks = (block for segment in self.layout.segments for block in self.blocks(segment.id))
            self._least = min(len(self.live(block)) for block in blocks)
        return self._least

    def protected(self, *, based: bool = False) -> int:
        """Deaths that nothing would be lost of now, whichever sites they are of. based: what begins again from a base has one."""
        return min(
            max(0, len(self.live(block)) - 1)
            if MODES[self.plan.mode(segment.id)].replicates
            else int(based and self.plan.mode(segment.id) in BASED and bool(self.live(block)))
            for segment in self.layout.segments
            for block in self.blocks(segment.id)
        )

    def left_out(self) -> dict[int, tuple[int, ...]]:
        """By segment, partitions that lived here under the plan before and are not here under the newest, which has other modes."""
        return self.leaves_out(self.plans[-2], self.plan) if len(self.plans) > 1 else {}

    def leaves_out(self, before: Plan, plan: Plan) -> dict[int, tuple[int, ...]]:
        """The same of any plan and the one before."""
        found: dict[int, tuple[int, ...]] = {}
        if before.modes == plan.modes:
            return found
        for segment, (then, now) in enumerate(zip(before.placement, plan.placement, strict=True)):
            gone = tuple(p for p, sites in enumerate(now) if self.site in then[p] and self.site not in sites)
            if gone:
                found[segment] = gone
        return found

    def lacks(self) -> bool:
        """Some partition has no live replica."""
        return self.redundancy() == 0

    def present(self, segment: int) -> tuple[SiteId, ...]:
        """Sites that live and host a replica of the segment or are getting one, ascending."""
        return tuple(sorted({s for block in self.blocks(segment) for s in block.sites if s in self.membership.sites}))

    def active(self) -> tuple[SiteId, ...]:
        """Sites with a replica that counts, ascending."""
        return tuple(sorted({s for segment in self.layout.segments for block in self.blocks(segment.id) for s in self.live(block)}))

    def load(self) -> Counter[SiteId]:
        """Replicas that count, by site, of all segments together."""
        found: Counter[SiteId] = Counter()
        for segment in self.layout.segments:
            for block in self.blocks(segment.id):
                for site in self.live(block):
                    found[site] += len(block.partitions)
        return found

    def vital(self, site: SiteId, silent: Collection[int] = (), *, spared: Collection[Mode] = ()) -> bool:
        """Whether some partition has its last live replica there, if these sites were gone too. spared: but for those of these modes."""
        gone = set(silent) - {site}
        segments = [segment.id for segment in self.layout.segments if self.plan.mode(segment.id) not in spared]
        blocks = (block for segment in segments for block in self.blocks(segment))
        return any([other for other in self.live(block) if other not in gone] == [site] for block in blocks)

    def feeders(self, segment: int, unreachable: set[SiteId]) -> dict[SiteId, tuple[int, ...]]:
        """Whom this site is fed by (A3): producer partitions by site.

        Itself where it can, else the replica of its own rank, so that two replicas of a dataflow run as two; where that is dead or cannot
        be reached the next one, and if none can be reached the one that it would have liked best.
        """
        side = self._sides.get(self.site, 0)
        fed: dict[SiteId, list[int]] = {}
        for block in self.blocks(segment):
            live = self.live(block)
            if not live:
                continue
            wanted = block.sites[side % len(block.sites)]
            if wanted not in live:
                wanted = live[side % len(live)]
            if self.site in live:
                wanted = self.site
            elif wanted in unreachable:
                wanted = next((site for site in live if site not in unreachable), wanted)
            fed.setdefault(wanted, []).extend(block.partitions)
        return {site: tuple(sorted(partitions)) for site, partitions in fed.items()}

    def terms(self, segment: int, epoch: int) -> Terms:
        """What the segment's epoch goes by: worked out once for each plan, and asked for each epoch."""
        plan = self.plan_at(epoch)
        found = self._terms.get((segment, plan.number))
        if found is None:
            described = self.layout.segments[segment]
            groups = None if described.kind == "ingress" else self.key_groups(described, epoch)
            found = Terms(plan.number, self.splits(described, epoch), groups, *self.runs(segment, epoch))
            self._terms[segment, plan.number] = found
        return found

    def splits(self, segment: Segment, epoch: int) -> tuple[Split, ...]:
        """How the segment's output of an epoch is grouped, per output arc."""
        plan = self.plan_at(epoch)
        found = self._splits.get((segment.id, plan.number))
        if found is None:
            found = tuple(Split.of(self.layout.arcs[arc], self.layout, plan) for arc in segment.outputs)
            self._splits[segment.id, plan.number] = found
        return found

    def key_groups(self, segment: Segment, epoch: int) -> npt.NDArray[np.int32]:
        """int32 (G,): the partition of each of the segment's key groups in an epoch; the same array as long as they are the same."""
        plan = self.plan_at(epoch)
        found = self._groups.get((segment.id, plan.number))
        if found is None:
            ranges = plan.ranges_of(segment)
            alike = [self._groups.get((segment.id, other.number)) for other in self.plans if other.ranges_of(segment) == ranges]
            found = next((groups for groups in alike if groups is not None), None)
            found = self._groups[segment.id, plan.number] = key_groups_of(plan, segment) if found is None else found
        return found

    def runs(self, segment: int, epoch: int) -> tuple[int, Segment]:
        """(number of the version that changed the segment last, the segment with the steps that it runs) in an epoch."""
        return self.plan_at(epoch).runs(self.layout.segments[segment])

    def counts(self, segment: int, partitions: tuple[int, ...]) -> bool:
        """Whether this site is the one of several replicas whose numbers are counted: the first live one of these partitions."""
        return partitions[0] in self.counted(segment)

    def counted(self, segment: int) -> frozenset[int]:
        """The partitions of a segment whose numbers are counted here (see `counts`)."""
        found = self._counted.get(segment)
        if found is None:
            alike = [block.partitions for block in self.blocks(segment)]
            live = [self.membership.live(self.plan, segment, partitions[0]) for partitions in alike]
            found = frozenset([p for partitions, sites in zip(alike, live, strict=True) if sites[:1] == (self.site,) for p in partitions])
            self._counted[segment] = found
        return found

    def leader(self, segment: int, partition: int) -> Leader:
        return self.membership.leaders[segment][partition]

    def members(self, segment: int, partition: int) -> tuple[SiteId, ...]:
        """Sites whose logs must hold a record before it is emitted: the partition's replicas that count."""
        return self.membership.live(self.plan, segment, partition)

    def followers(self, segment: int, partition: int) -> tuple[SiteId, ...]:
        """Everybody but the leader who is to get the partition's records, joining ones included."""
        leader = self.leader(segment, partition).site
        copies = [c for c in self.plan.copies if self._is_of(c, segment, partition)]
        without = {c.target for c in copies if c.number in self.membership.dropped}
        without |= {c.replaces for c in copies if c.number in self.membership.retired}
        without.add(leader)
        return tuple(s for s in self.plan.placement[segment][partition] if s in self.membership.sites and s not in without)

    @staticmethod
    def _is_of(copy: Copy, segment: int, partition: int) -> bool:
        return copy.segment == segment and partition in copy.partitions

    def leaving(self, segment: int) -> frozenset[int]:
        """Partitions whose replica here is on its way to another site."""
        return self._leaving.get(segment, frozenset())

    def copies(self) -> tuple[Copy, ...]:
        """Copies of the newest plan that are under way."""
        return tuple(copy for copy in self.plan.copies if copy.number in self.joining)
