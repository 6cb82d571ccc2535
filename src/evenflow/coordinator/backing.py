"""Backing: which site backs up what another one has, of which epoch each image is, and from which images lost partitions begin again.

    unit --BackUp--> its site captures it --Pasted--> an image --newer one has all of its partitions--> dropped
                                                        |
                                                        +--its site dies--> ReportImages, Imaged --> copies with a base at the backup

What a passive segment has at a site is a unit (P1), where the run has no store to keep states in. Its partitions change: by a move, by a
death. Then it is another unit, whose first capture is a whole one, and until that is pasted the image of before stays (P5), since frames
behind that are kept. If nothing was pasted yet, all is kept since the first epoch, and the base is nothing.

Who begins again as of the end of epoch c makes nothing again up to c. Consumers elsewhere have that; consumers that are lost with it find
it in its image. A consumer that is lost at another time or place may want more than anybody has: then it cannot begin again (B3), until it
has an image that is newer. That is judged here, before anything is promised. Decides; the machine proposes the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from evenflow.availability.mode import Mode
from evenflow.coordinator.events import CoordinatorAction, Tell
from evenflow.coordinator.recovery import Recovery
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy, Plan
from evenflow.policy.backups import Backed, Sites, volunteers
from evenflow.site.bases import BackUp, DropImages, ImagePasted, ReportImages, Unit
from evenflow.site.facts import Lacking, NoRoom, Pasted
from evenflow.site.view import View
from evenflow.stream.ids import NO_SITE, SiteId

NOTHING = -1
"""Of an image: there is none."""
NO_NEWCOMERS: Final[Mapping[SiteId, int]] = {}


@dataclass(slots=True)
class Held:
    """A unit, and its image. site: where it lives, or lived. base: as of which epoch its image is, `NOTHING` before the first paste.
    final: its backup has said so after the site's death. own: (segment, partition) of consumers, frames for which are in it, too."""

    unit: Unit
    site: SiteId
    base: int = NOTHING
    final: bool = False
    bytes: int = 0
    own: frozenset[tuple[int, int]] = frozenset()


class Backing:
    """units: of all sites, by (segment, site). images: units of which something is pasted, oldest first, as long as somebody may begin
    again from it. stable: by segment, what was told last (B2).

    located: the run has a store, and its checkpoints are the bases. _floor: by segment, no frames up to there are kept for those who want
    them again. _useless: images that nobody can begin again from, of which their backups have not been told yet. _full: by unit, sites
    without memory for it. _opening: by copy, the image that it begins with.
    """

    def __init__(self, layout: Layout, view: View, recovery: Recovery, *, located: bool) -> None:
        self._layout, self._view, self._recovery, self._located = layout, view, recovery, located
        self.units: dict[tuple[int, SiteId], Held] = {}
        self.images: list[Held] = []
        self.stable = [0] * len(layout.segments)
        self._floor = [0] * len(layout.segments)
        self._told: dict[SiteId, tuple[Unit, ...]] = {}
        self._numbers = 0
        self._full: dict[tuple[int, SiteId], set[SiteId]] = {}
        self._there = set[SiteId]()
        self._opening: dict[int, Held | None] = {}
        self._useless: list[Held] = []

    @property
    def active(self) -> bool:
        return not self._located and Mode.PASSIVE in self._view.plan.modes

    def _passive(self) -> list[int]:
        return [segment.id for segment in self._layout.segments if self._view.plan.mode(segment.id) is Mode.PASSIVE]

    # ------------------------------------------------------------ who backs up what

    def settle(self) -> list[CoordinatorAction]:
        """Plan or membership are new: units follow. Sites are told what is new for them."""
        if not (self.active or self.units or self.images or self._useless):
            return []
        before, self.units = self.units, {}
        there = set(self._view.membership.sites)
        self.images = [held for held in self.images if held.unit.backup in there]
        for (segment, site), partitions in self._hosted().items():
            known = before.get((segment, site))
            kept = known is not None and known.unit.partitions == partitions and known.unit.backup in there
            held = known if kept and known is not None else Held(self._numbered(segment, partitions), site)
            self.units[segment, site] = held
        if there != self._there:
            self._there, self._full = there, {}
        return [*self._tell_units(), *self._trim()]

    def _tell_units(self) -> list[CoordinatorAction]:
        self._assign()
        return [Tell(site, BackUp(units)) for site, units in self._orders().items()]

    def _hosted(self) -> dict[tuple[int, SiteId], tuple[int, ...]]:
        found: dict[tuple[int, SiteId], list[int]] = {}
        for segment in self._passive() if self.active else ():
            for block in self._view.blocks(segment):
                for site in self._view.live(block):
                    found.setdefault((segment, site), []).extend(block.partitions)
        return {key: tuple(sorted(partitions)) for key, partitions in sorted(found.items())}

    def _numbered(self, segment: int, partitions: tuple[int, ...]) -> Unit:
        self._numbers += 1
        return Unit(self._numbers, segment, partitions, NO_SITE)

    def _assign(self) -> None:
        """Those that have no backup get one: another site, on another host if there is one, that does least for others (HW 4.4)."""
        leaving = self._recovery.leaving
        hosts = {site: self._recovery.hosts.get(site, "") for site in self._view.membership.sites if site not in leaving}
        for key, held in self.units.items():
            if held.unit.backup == NO_SITE:
                able = {site: host for site, host in hosts.items() if site not in self._full.get(key, ())}
                for given in volunteers([*self._rows(but=held), _row(held)], Sites(able)):
                    if given.unit == held.unit.number:
                        held.unit = replace(held.unit, backup=given.backup)

    def _rows(self, but: Held) -> list[Backed]:
        return [_row(held) for held in self.units.values() if held is not but and held.unit.backup != NO_SITE]

    def _orders(self) -> dict[SiteId, tuple[Unit, ...]]:
        """By site, what is new for it."""
        now: dict[SiteId, list[Unit]] = {site: [] for site in self._told if site in self._view.membership.sites}
        for held in self.units.values():
            if held.unit.backup != NO_SITE:
                now.setdefault(held.site, []).append(held.unit)
        found = {site: tuple(units) for site, units in sorted(now.items())}
        new = {site: units for site, units in found.items() if self._told.get(site, ()) != units}
        self._told = found
        return new

    def full(self, site: SiteId, said: NoRoom) -> tuple[str, list[CoordinatorAction]]:
        """A site has no memory for an image: another one backs it up, if there is one that has not said so, too. (for people, if there is
        none; what is to be told)"""
        held = next((held for held in self.units.values() if held.unit.number == said.unit and held.unit.backup == site), None)
        if held is None:
            return "", []
        unit, key = held.unit, (held.unit.segment, held.site)
        self._full.setdefault(key, set()).add(site)
        self.units[key] = Held(self._numbered(unit.segment, unit.partitions), held.site)
        actions = self._tell_units()
        if self.units[key].unit.backup != NO_SITE:
            return "", actions
        name = self._layout.segments[unit.segment].name
        return (
            f"no site has {said.bytes:,} bytes of memory to back up what site {held.site} has of {name}: its death would lose it. Give "
            "image_memory_bytes more, use more sites, or a checkpoint location",
            actions,
        )

    # ------------------------------------------------------------ images

    def pasted(self, site: SiteId, said: Pasted) -> list[CoordinatorAction]:
        """A backup has pasted a capture, or found that it cannot. What everybody is to know."""
        everybody = [*self.units.values(), *self.images]
        held = next((held for held in everybody if held.unit.number == said.unit and held.unit.backup == site), None)
        if held is None:  # It was on its way when its unit became another one.
            return [Tell(site, DropImages((said.unit,)))]
        if held.final:
            return []
        self._note(held, said)
        if said.epoch == NOTHING:
            self.images = [other for other in self.images if other is not held]
        elif held not in self.images:
            self.images.append(held)
        dropped = self._trim()
        for segment in self._passive():
            self.stable[segment] = max(self.stable[segment], self._least(segment))
        told = ImagePasted(said.unit, said.epoch, tuple(self.stable))
        return [*[Tell(each, told) for each in self._view.membership.sites], *dropped]

    def _note(self, held: Held, said: Pasted) -> None:
        held.base, held.bytes = said.epoch, said.bytes
        held.own = frozenset((segment, partition) for segment, partitions in said.own for partition in partitions)

    def _least(self, segment: int) -> int:
        """Up to where all partitions of a segment are in images."""
        bases = self._bases(segment, range(len(self._view.plan.placement[segment])))
        return min((0 if held is None else held.base for held in bases.values()), default=0)

    def _bases(self, segment: int, partitions: Iterable[int], but: SiteId = NO_SITE) -> dict[int, Held | None]:
        """By partition: the newest image that has it, and is not at that site."""
        found: dict[int, Held | None] = dict.fromkeys(partitions)
        there = set(self._view.membership.sites) - {but}
        for held in self.images:
            if held.unit.segment == segment and held.unit.backup in there:
                older = [p for p in held.unit.partitions if p in found and ((known := found[p]) is None or known.base <= held.base)]
                found |= dict.fromkeys(older, held)
        return found

    def _trim(self) -> list[CoordinatorAction]:
        """P5: an image goes when all of its partitions are in newer ones, and its unit is none any more: before that its backup may have
        pasted once more, and said so, what it is told to drop."""
        used = {held.unit.number for held in self.units.values()}
        for segment in {held.unit.segment for held in self.images}:
            bases = self._bases(segment, range(len(self._view.plan.placement[segment])))
            used |= {held.unit.number for held in bases.values() if held is not None}
        gone = [*self._useless, *[held for held in self.images if held.unit.number not in used]]
        self._useless = []
        self.images = [held for held in self.images if held.unit.number in used]
        dropped: dict[SiteId, list[int]] = {}
        for held in gone:
            dropped.setdefault(held.unit.backup, []).append(held.unit.number)
        return [Tell(site, DropImages(tuple(units))) for site, units in sorted(dropped.items())]

    # ------------------------------------------------------------ what begins again

    def note_plan(self, before: Plan, plan: Plan) -> None:
        """A plan is committed: a copy from a live replica brings state and no frames, and a base that other ranges or another version have
        made does not fit."""
        for copy in plan.copies:
            least = copy.base if copy.revives else plan.effective
            self._floor[copy.segment] = max(self._floor[copy.segment], least)
        if (plan.ranges, plan.version, plan.modes) != (before.ranges, before.version, before.modes):
            self._floor = [plan.effective] * len(self._floor)
            self._useless += self.images
            self.units, self.images = {}, []

    def lost(self) -> dict[int, dict[int, Held | None]]:
        """By segment and partition: what is lost, and the image that it begins again from; None: nothing was pasted of it."""
        names = {segment.name: segment.id for segment in self._layout.segments}
        return {names[name]: self._bases(names[name], partitions) for name, partitions in self._recovery.lost().items()}

    def can(self) -> bool:
        """Whether all that is lost can begin again, as far as is known."""
        lost = self.lost()
        modes = self._view.plan
        if not self.active or any(modes.mode(segment) is not Mode.PASSIVE for segment in lost):
            return False
        return all(self._may(segment, p, held, lost) for segment, bases in lost.items() for p, held in bases.items())

    def _may(self, segment: int, partition: int, held: Held | None, lost: Mapping[int, Mapping[int, Held | None]]) -> bool:
        """Whether what a partition with this image wants again is kept somewhere, or made again."""
        base = 0 if held is None else held.base
        if base < self.stable[segment]:
            return False
        for stream in self._layout.segments[segment].inputs:
            producer = self._layout.arcs[stream].producer
            if base < self._floor[producer]:
                return False
            for other in lost.get(producer, {}).values():
                if other is not None and other.base > base and (segment, partition) not in other.own:
                    return False
        return True

    def ask(self) -> list[CoordinatorAction]:
        """P4: backups of what is lost are to say how far their images are."""
        units: dict[SiteId, list[int]] = {}
        for held in self._needed():
            if not held.final:
                units.setdefault(held.unit.backup, []).append(held.unit.number)
        return [Tell(site, ReportImages(tuple(sorted(set(numbers))))) for site, numbers in sorted(units.items())]

    def _needed(self) -> list[Held]:
        found: dict[int, Held] = {}
        for bases in self.lost().values():
            found |= {held.unit.number: held for held in bases.values() if held is not None}
        return list(found.values())

    def imaged(self, site: SiteId, images: Iterable[Pasted]) -> None:
        """A backup has said how far its images are."""
        for said in images:
            for held in [held for held in self.images if held.unit.number == said.unit and held.unit.backup == site]:
                self._note(held, said)
                held.final = True
                if said.epoch == NOTHING:
                    self.images.remove(held)

    @property
    def least(self) -> int:
        """The earliest epoch from whose end something that is lost begins again."""
        return min((0 if held is None else held.base for bases in self.lost().values() for held in bases.values()), default=0)

    def targets(self) -> list[tuple[SiteId, int]]:
        """(site, epoch from whose end) of what is lost and has an image."""
        return [(held.unit.backup, held.base) for held in self._needed()]

    @property
    def known(self) -> bool:
        """Backups of all that is lost have said how far their images are."""
        return all(held.final for held in self._needed())

    def begun_again(self, able: Sequence[SiteId]) -> tuple[dict[tuple[int, int], SiteId], list[Copy]]:
        """(who gets what is lost, by (segment, partition); the copies for it): each at its backup, or where nothing was pasted at the site
        of these with least to do."""
        load, given = self._view.load(), Counter[SiteId]()
        placed: dict[tuple[int, int], SiteId] = {}
        images = dict[int, Held | None]()
        shares: dict[tuple[int, SiteId, int, int], list[int]] = {}
        for segment, bases in self.lost().items():
            for partition, held in bases.items():
                target = min(able, key=lambda site: (load[site] + given[site], site)) if held is None else held.unit.backup
                given[target] += 1
                placed[segment, partition] = target
                unit, base = (0, 0) if held is None else (held.unit.number, held.base)
                images[unit] = held
                shares.setdefault((segment, target, base, unit), []).append(partition)
        copies = []
        for (segment, target, base, unit), partitions in sorted(shares.items()):
            number = self._recovery.next_number()
            copies.append(Copy(number, segment, tuple(sorted(partitions)), NO_SITE, target, base=base))
            self._opening[number] = images[unit]
        return placed, copies

    def unit_of(self, copy: Copy) -> int:
        """From the image of which unit a copy begins; 0: from none."""
        held = self._opening.get(copy.number)
        return 0 if held is None else held.unit.number

    def leaves(self, lacking: Lacking) -> bool:
        """Whether partitions wait for what nobody has: the image that a copy begins with has none of it for them."""
        held = self._opening.get(lacking.number)
        return held is not None and any((lacking.segment, partition) not in held.own for partition in lacking.partitions)

    # ------------------------------------------------------------ for people

    def protected(self, newcomers: Mapping[SiteId, int] = NO_NEWCOMERS, view: View | None = None) -> bool:
        """Any one site may die now, as far as passive segments go. newcomers, view: see `spares`."""
        return self.active and all(self.spares(site, newcomers, view) for site in self._view.membership.sites)

    def spares(self, site: SiteId, newcomers: Mapping[SiteId, int] = NO_NEWCOMERS, view: View | None = None) -> bool:
        """All that would be lost with this site, as far as passive segments go, could begin again now: from images that are not there, too
        (B3), and are of epochs whose plans their sites know. newcomers: since which epoch sites that came later know plans. view: of those
        who ask beside the coordinator."""
        view = self._view if view is None else view
        lost: dict[int, dict[int, Held | None]] = {}
        for segment in self._passive():
            blocks = [block for block in view.blocks(segment) if set(view.live(block)) <= {site}]
            lost[segment] = self._bases(segment, [p for block in blocks for p in block.partitions], but=site)
        each = [(segment, p, held) for segment, bases in lost.items() for p, held in bases.items()]
        return all(
            held is not None and newcomers.get(held.unit.backup, 0) <= held.base + 1 and self._may(segment, p, held, lost)
            for segment, p, held in each
        )


def _row(held: Held) -> Backed:
    """A unit as the policy sees it. What it takes is not known before its first capture: its partitions are."""
    unit = held.unit
    return Backed(unit.number, held.site, None if unit.backup == NO_SITE else unit.backup, 0.0, float(len(unit.partitions)))
