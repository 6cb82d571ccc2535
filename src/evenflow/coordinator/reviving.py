"""Reviving: partitions of which no replica lives begin again at other sites, from the last checkpoint (availability.md, B1, M2).

A passive segment's state is safe as of the last checkpoint that is whole, its base (or, without a store, as of its images: see `backing`);
and its producers keep every frame after that (B2). So a partition that is lost is a copy without a source: its target reads the base, takes
in again what followed, and counts when it is level. What it makes again is dropped by address. All that is lost begins at once, on the
sites with least to do; those that feed others are level first, since the others wait for them.

That cannot be where frames after the base are kept at no site: behind a copy from a live replica, which brings state and no frames
(decision 14), until the next checkpoint is whole. Nor where key groups have changed hands since, or boxes their version. Then the run ends
with `PartitionsLost`, as it does without this, and its next generation begins. Decides; the machine proposes the plan.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from evenflow.availability.mode import Mode
from evenflow.coordinator.backing import Backing
from evenflow.coordinator.checkpointing import Checkpointing
from evenflow.coordinator.events import SiteLost
from evenflow.coordinator.recovery import Recovery, Step
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy, Plan
from evenflow.site.bases import Revive
from evenflow.site.facts import Depends
from evenflow.site.replaying import Beginning
from evenflow.site.view import View
from evenflow.stream.epoch import NO_WATERMARK
from evenflow.stream.ids import NO_SITE, SiteId

TRIES_MAX: Final = 4
"""So often in a row a base may turn out not to be readable."""


class Reviving:
    """failed: how often in a row a copy from the base was given up. last: the newest loss that is being made good, and what it was.

    _from: the first base that will do: before it frames are gone, or the plan was another one in what matters. _newcomers: by site that
    came to the run later, since which epoch it knows plans. _said: by segment with upstream backup and site, (base, watermark there) under
    the newest plan; _bases: by segment, the one that all have said.
    """

    def __init__(
        self, layout: Layout, view: View, recovery: Recovery, checkpointing: Checkpointing, backing: Backing, beginning: Beginning
    ) -> None:
        self._layout, self._view, self._recovery, self._checkpointing = layout, view, recovery, checkpointing
        self._backing = backing
        self._begun = beginning.epoch
        self._from = view.plan.effective if len(beginning.plans) > 1 else beginning.epoch
        self._newcomers: dict[SiteId, int] = {}
        self._said: dict[int, dict[SiteId, tuple[int, int]]] = {}
        self._bases: dict[int, tuple[int, int]] = {}
        self.failed = 0
        self.last: tuple[SiteLost, str] | None = None

    # ------------------------------------------------------------ what it has to know

    def note_plan(self, before: Plan, plan: Plan) -> None:
        """A plan is committed. What sites have said of bases may not be true of what they have got since."""
        self._said = {}
        copied = any(not copy.revives for copy in plan.copies)
        if copied or (plan.ranges, plan.version, plan.modes) != (before.ranges, before.version, before.modes):
            self._from = max(self._from, plan.effective)

    def hear(self, site: SiteId, said: Depends, *, calm: bool) -> bool:
        """A site's partitions of a segment follow from what came after a base. True if that of all has moved."""
        if said.plan < self._view.plan.number or self._view.plan.mode(said.segment) is not Mode.UPSTREAM:
            return False
        known = self._said.setdefault(said.segment, {})
        known[site] = max(known.get(site, (0, 0)), (said.base, said.watermark))
        hosts = {live for block in self._view.blocks(said.segment) for live in self._view.live(block)}
        if not calm or not hosts <= known.keys():
            return False
        least = min(known[host] for host in hosts)
        if least[0] <= self._bases.get(said.segment, (self._begun, NO_WATERMARK))[0]:
            return False
        self._bases[said.segment] = least
        return True

    def note_newcomer(self, site: SiteId) -> None:
        """It has been given the newest plan, and knows none before it."""
        self._newcomers[site] = self._view.plan.effective

    # ------------------------------------------------------------ what can be done

    @property
    def base(self) -> int:
        """The epoch from whose end the lost begin again: that of the newest checkpoint, or before the first one."""
        if self._backing.active:
            return self._backing.least
        retained = self._checkpointing.retained
        return retained[-1].epoch if retained else self._begun

    def base_of(self, segment: int) -> int:
        """The epoch from whose end its lost partitions begin again. With upstream backup that of the newest checkpoint, too, if its own is
        older: what feeds it may be lost with it and begin again there, and then nobody has what came before (B2)."""
        if self._view.plan.mode(segment) is Mode.UPSTREAM and segment in self._bases:
            return max(self._bases[segment][0], self.base)
        return self.base

    def can(self) -> bool:
        """Whether all that is lost can begin again."""
        lost = self._lost()
        if not lost or self.failed >= TRIES_MAX or not self._able():
            return False
        if self._backing.active:
            known = all(self._newcomers.get(site, 0) <= base + 1 for site, base in self._backing.targets())
            return known and self._backing.can()
        return all(self.has_base(segment) for segment in lost)

    def _lost(self) -> list[int]:
        names = self._recovery.lost()
        return [segment.id for segment in self._layout.segments if segment.name in names]

    def has_base(self, segment: int) -> bool:
        """Frames behind the segment's base are kept somewhere, and what plans said since matters to nobody. Of images: see `Backing`."""
        mode, base = self._view.plan.mode(segment), self.base_of(segment)
        able = mode is Mode.UPSTREAM or (mode is Mode.PASSIVE and self._checkpointing.journalled)
        return able and self._begun <= base and self._from <= base

    def based(self, site: SiteId | None = None, view: View | None = None) -> bool:
        """Whether all that begins again from a base has one, as far as it would be lost with a site, or with any: an image elsewhere, a
        checkpoint since anything has changed, or what producers keep. view: of those who ask beside the coordinator, which keeps what it
        has counted once, and must not find what others have counted before."""
        modes = self._view.plan.modes
        if not all(self.has_base(segment) for segment, mode in enumerate(modes) if mode is Mode.UPSTREAM):
            return False
        if Mode.PASSIVE not in modes:
            return True
        if self._backing.active:
            known = self._newcomers
            return self._backing.protected(known, view) if site is None else self._backing.spares(site, known, view)
        return self._checkpointing.journalled and bool(self._checkpointing.retained) and self._from <= self.base

    def _able(self) -> list[SiteId]:
        """Sites that may take something: they know all plans since the base."""
        least = min([self.base_of(segment) for segment in self._lost()], default=self.base)
        return [site for site in self._recovery.staying() if self._newcomers.get(site, 0) <= least + 1]

    def step(self) -> Step:
        """A placement where all that is lost is somewhere else, and the copies for it."""
        rows = [list(row) for row in self._recovery.cleared()]
        if self._backing.active:
            placed, copies = self._backing.begun_again(self._able())
            for (number, partition), site in placed.items():
                rows[number][partition] = (site,)
            return Step(tuple(map(tuple, rows)), tuple(copies))
        load, able = self._view.load(), self._able()
        shares: dict[tuple[int, SiteId], list[int]] = {}
        given: Counter[SiteId] = Counter()
        for segment in self._layout.segments:
            for block in self._view.blocks(segment.id):
                for partition in block.partitions if not self._view.live(block) else ():
                    target = min(able, key=lambda site: (load[site] + given[site], site))
                    given[target] += 1
                    rows[segment.id][partition] = (target,)
                    shares.setdefault((segment.id, target), []).append(partition)
        copies = [
            Copy(self._recovery.next_number(), segment, tuple(sorted(partitions)), NO_SITE, target, base=self.base_of(segment))
            for (segment, target), partitions in sorted(shares.items())
        ]
        return Step(tuple(map(tuple, rows)), tuple(copies))

    def order(self, copy: Copy) -> Revive:
        """What the target of a copy is to read."""
        if unit := self._backing.unit_of(copy):
            return Revive(copy.number, copy.segment, copy.partitions, copy.base, (), unit)
        base, watermark = self._bases.get(copy.segment, (0, NO_WATERMARK))
        if self._view.plan.mode(copy.segment) is Mode.UPSTREAM and base >= copy.base:
            assert base == copy.base, f"the base of segment {copy.segment} has moved while something begins again from it"
            return Revive(copy.number, copy.segment, copy.partitions, base, (), watermark=watermark)
        retained = self._checkpointing.retained
        mine = set(copy.partitions)
        found = retained[-1].pieces if retained and retained[-1].epoch == copy.base else ()
        pieces = tuple(piece for piece in found if piece.segment == copy.segment and mine.intersection(piece.partitions))
        return Revive(copy.number, copy.segment, copy.partitions, copy.base, pieces)
