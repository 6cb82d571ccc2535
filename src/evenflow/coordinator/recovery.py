"""Recovery: which lost replicas to copy next, from where and to where (protocol C6). Decides; the machine proposes the plan.

A dead site's replicas go to one spare or one new site, which takes its place, its heir. If there is none, they go to the remaining sites at
once, each partition to the one that has least and none of its replicas: one replica less is what the next death must not meet. When an
heir comes later, they go home to it, as moves. Sources come first, and a few pieces are on their way at a time. Between two sites where
copies have failed there is a pause (`Retries`); meanwhile other sites are asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from evenflow.availability.mode import MODES
from evenflow.coordinator.events import PairPause, Pause
from evenflow.coordinator.retries import PAUSE_MS, Retries
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy, Placement
from evenflow.site.view import NOBODY, Block, View
from evenflow.stream.ids import NO_SITE, CopyNumber, SiteId

PATIENCE_MS: Final = 0.0
"""How long what was lost waits for a new site before the remaining ones take it."""
SETTLE_MS: Final = 250.0
PIECES: Final = 8
"""A segment's partitions are copied in at least this many pieces."""
AT_ONCE: Final = 2
"""Pieces that are on their way at the same time."""


def hole(site: SiteId) -> SiteId:
    """What stands in a placement for a lost replica of `site`: a negative number, so no site's. Its own inverse."""
    return SiteId(NOBODY - 1 - site)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next. copies: to begin with a plan of this placement. wait_ms: when to ask again.

    complete: what was missing is there again; this is said once.
    waits: what is missing and cannot be copied now, with the reason; each is said once.
    """

    placement: Placement
    copies: tuple[Copy, ...] = ()
    wait_ms: float | None = None
    complete: bool = False
    waits: str = ""


class _Share(NamedTuple):
    """Lost replicas that one site can have from another. refuge_of: the line of heirs that they belong to, if it is not the target's."""

    source: SiteId
    target: SiteId
    partitions: tuple[int, ...]
    refuge_of: SiteId | None = None


@dataclass(frozen=True, slots=True)
class Refugee:
    """A replica that found a place at a remaining site, and could go to the site that has come since in place of the lost one."""

    segment: int
    partition: int
    site: SiteId
    heir: SiteId


class Recovery:
    """See the module. view: the coordinator's, shared. hosts: of the sites, as far as the world knows them. leaving: sites that get nothing
    more. spread: onto all remaining sites; else each block goes whole to the site that may take most of what is missing, which is the
    unbalanced recovery that experiments measure (FT 5.3.1). retries: between whom copies have failed."""

    def __init__(self, layout: Layout, view: View, patience_ms: float, pause_ms: float = PAUSE_MS) -> None:
        self._layout, self._view, self._patience_ms = layout, view, patience_ms
        self.hosts: dict[SiteId, str] = {}
        self.leaving: set[SiteId] = set()
        self.spread = True
        self.retries = Retries(pause_ms)
        self._numbers = 0
        self._heirs: dict[SiteId, SiteId] = {}
        self._line: dict[SiteId, SiteId] = {}
        self._refuges: dict[tuple[int, int, SiteId], SiteId] = {}
        """By segment, partition and the site that took it: whose line of heirs the replica belongs to."""
        self._waiting = self._missing = False
        self._impatient, self._said = patience_ms <= 0, ""

    def waited(self, pause: Pause) -> None:
        """The time to wait for a new site is over, or that between two sites where copies have failed."""
        if isinstance(pause, PairPause):
            self.retries.over(pause)
        else:
            self._waiting, self._impatient = False, True

    @property
    def missing(self) -> bool:
        """Some partition has fewer replicas than it should have, when last looked at."""
        return self._missing

    @property
    def waiting(self) -> bool:
        """For a new site that may take what was lost."""
        return self._waiting

    def lost(self) -> dict[str, tuple[int, ...]]:
        """Partitions without a live replica, by segment."""
        lost: dict[str, list[int]] = {}
        for segment in self._layout.segments:
            for block in self._view.blocks(segment.id):
                if not self._view.live(block):
                    lost.setdefault(segment.name, []).extend(block.partitions)
        return {name: tuple(sorted(partitions)) for name, partitions in lost.items()}

    def can_void(self) -> bool:
        """Whether all that has no live replica may begin anew, and somebody is there for it (B4)."""
        view = self._view
        lacking = [s.id for s in self._layout.segments if any(not view.live(block) for block in view.blocks(s.id))]
        return all(MODES[view.plan.mode(segment)].base == "void" for segment in lacking) and bool(self.staying())

    def staying(self) -> list[SiteId]:
        """Sites that may get what nobody has: those that are not leaving, or, rather than end the run, those that are."""
        sites = self._view.membership.sites
        return [site for site in sites if site not in self.leaving] or list(sites)

    def anew(self) -> Step | None:
        """Who gets what has no live replica, to begin anew with nothing; None if there is no such thing. It goes to the site that takes the
        lost one's place, else to those that have least. Called when no plan is proposed and no copy is under way."""
        view = self._view
        if view.redundancy():
            return None
        placement, load = self.cleared(), view.load()
        rows, copies = [list(row) for row in placement], []
        for segment in self._layout.segments:
            shares: dict[SiteId, list[int]] = {}
            for block in view.blocks(segment.id):
                if view.live(block):
                    continue
                for partition in block.partitions:
                    lost = next((site for site in rows[segment.id][partition] if site < 0), NOBODY)
                    heir = self._heir(hole(lost), (), load) if lost != NOBODY else NOBODY
                    target = heir if heir != NOBODY else min(self.staying(), key=lambda site: (load[site], site))
                    load[target] += 1
                    shares.setdefault(target, []).append(partition)
                    rows[segment.id][partition] = (target,)
            for target, partitions in shares.items():
                copies.append(Copy(self.next_number(), segment.id, tuple(sorted(partitions)), NO_SITE, target))
        return Step(tuple(map(tuple, rows)), tuple(copies))

    def cleared(self) -> Placement:
        """The newest placement without the replicas that are not there: a hole says whose heirs they are for (see `hole`)."""
        view = self._view
        rows: list[list[tuple[SiteId, ...]]] = [list(row) for row in view.plan.placement]
        for segment in self._layout.segments:
            for block in view.blocks(segment.id):
                live, ranks = view.live(block), self._ranks(segment.id, block)
                if len(live) < len(block.sites) or ranks != block.sites:
                    for partition in block.partitions:
                        rows[segment.id][partition] = tuple(
                            site if site in live else hole(self._first(site, segment.id, partition)) for site in ranks
                        )
        return tuple(map(tuple, rows))

    def _ranks(self, segment: int, block: Block) -> tuple[SiteId, ...]:
        """The site of each rank, once moves are over.

        The target of a move takes the rank of the replica that it replaces. The target of a move that was given up has none.
        """
        plan = self._view.plan
        move = next((c for c in plan.copies if c.moves and c.segment == segment and block.partitions[0] in c.partitions), None)
        if move is None:
            return block.sites
        sites = plan.placement[segment][block.partitions[0]][:-1]
        if move.number in self._view.membership.retired:
            return tuple(move.target if site == move.replaces else site for site in sites)
        return sites

    def next_number(self) -> CopyNumber:
        self._numbers += 1
        return CopyNumber(self._numbers)

    def next_step(self) -> Step:
        """Called when no plan is proposed and no copy is under way."""
        view = self._view
        placement = self.cleared()
        load = view.load()
        rows = [list(row) for row in placement]
        copies: list[Copy] = []
        waits: Counter[str] = Counter()
        missing = False
        for segment in self._layout.segments:
            for block in view.blocks(segment.id):
                live = view.live(block)
                for rank, site in enumerate(self._ranks(segment.id, block)):
                    if site in live:
                        continue
                    missing = True
                    for share in self._shares(site, segment.id, block, live, load, waits):
                        for piece in self._pieces(share.partitions, segment.partitions):
                            if len(copies) < AT_ONCE:
                                copies.append(self._begin(share, segment.id, piece, rank, rows))
                    break  # One rank of a block at a time.
        if copies:
            self._missing, self._said = True, ""
            return Step(tuple(map(tuple, rows)), tuple(copies))
        if not missing:
            complete, self._missing, self._impatient, self._said = self._missing, False, self._patience_ms <= 0, ""
            return Step(placement, complete=complete)
        self._missing = True
        why = "; ".join(f"{count} replicas are missing: {reason}" for reason, count in waits.items())
        self._said, new = why, why if why != self._said else ""
        if self._waiting or self._impatient:
            return Step(placement, waits=new)
        self._waiting = True
        return Step(placement, wait_ms=self._patience_ms, waits=new)

    def _begin(self, share: _Share, segment: int, piece: tuple[int, ...], rank: int, rows: list[list[tuple[SiteId, ...]]]) -> Copy:
        """A copy of a piece, which gets its rank in the placement."""
        for partition in piece:
            sites = rows[segment][partition]
            rows[segment][partition] = (*sites[:rank], share.target, *sites[rank + 1 :])
            if share.refuge_of is not None:
                self._refuges[segment, partition, share.target] = share.refuge_of
        return Copy(self.next_number(), segment, piece, share.source, share.target)

    def _shares(
        self, lost: SiteId, segment: int, block: Block, live: tuple[SiteId, ...], load: Counter[SiteId], waits: Counter[str]
    ) -> list[_Share]:
        """Who can get the lost replicas of a block. waits: counts what nobody can get now, by the reason."""
        lines: dict[SiteId, list[int]] = {}
        for partition in block.partitions:
            lines.setdefault(self._first(lost, segment, partition), []).append(partition)
        found: list[_Share] = []
        for first, partitions in lines.items():
            heir = self._heir(first, live, load)
            source = self._source(live, heir)
            if source != NOBODY:
                found.append(_Share(source, heir, tuple(partitions)))
            elif self._impatient:
                found += self._among_the_rest(first, segment, block, partitions, live, load, waits)
            else:
                waits["a new site may come and take them" if heir == NOBODY else self.retries.described(live[0], heir)] += len(partitions)
        return found

    def _heir(self, first: SiteId, live: tuple[SiteId, ...], load: Counter[SiteId]) -> SiteId:
        """The site that takes the place of a lost one: the one that did before, or one that has nothing yet. Not one that is being
        emptied: it would have to give away again what it gets."""
        sites = self._view.membership.sites
        heir = self._heirs.get(first, NOBODY)
        if heir not in sites or heir in live or heir in self.leaving:
            free = [site for site in sites if not load[site] and site not in self._heirs.values() and site not in self.leaving]
            heir = min(free, key=lambda site: (self._shares_host(site, live), site), default=NOBODY)
            if heir != NOBODY:
                self._heirs[first], self._line[heir] = heir, first
        return heir

    def _source(self, live: tuple[SiteId, ...], target: SiteId) -> SiteId:
        """Which live replica a copy to that site is taken from now."""
        if target == NOBODY:
            return NOBODY
        return next((site for site in live if self.retries.open(site, target)), NOBODY)

    def _among_the_rest(
        self,
        first: SiteId,
        segment: int,
        block: Block,
        partitions: list[int],
        live: tuple[SiteId, ...],
        load: Counter[SiteId],
        waits: Counter[str],
    ) -> list[_Share]:
        """The same onto the sites that are there: a partition has one replica less for as long as it waits for a new one."""
        able = [s for s in self._view.membership.sites if s not in live and s not in block.sites and s not in self.leaving]
        ready = {site: source for site in able if (source := self._source(live, site)) != NOBODY}
        if not ready:
            alone = "every site that is there has a replica of them, or is leaving"
            waits[self.retries.described(live[0], able[0]) if able else alone] += len(partitions)
            return []
        rank = load if self.spread else self._homeless()
        shares: dict[SiteId, list[int]] = {}
        for partition in partitions:
            target = min(ready, key=lambda site: (self._shares_host(site, live), rank[site], site))
            load[target] += 1
            shares.setdefault(target, []).append(partition)
        return [_Share(ready[target], target, tuple(share), first) for target, share in shares.items()]

    def refugees(self) -> list[Refugee]:
        """What could go home now. Called when nothing is missing: who is not where it found its place any more, is no refugee."""
        view, found = self._view, []
        there = {key: view.membership.live(view.plan, *key[:2]) for key in self._refuges}
        self._refuges = {key: first for key, first in self._refuges.items() if key[2] in there[key]}
        load = view.load() if self._refuges else Counter()
        for (segment, partition, site), first in sorted(self._refuges.items()):
            live = there[segment, partition, site]
            heir = self._heirs.get(first, NOBODY)
            if heir not in view.membership.sites:
                heir = self._heir(first, live, load)
            able = heir != NOBODY and heir not in live and heir not in self.leaving
            if able and all(self.retries.open(source, heir) for source in live):
                found.append(Refugee(segment, partition, site, heir))
        return found

    def _homeless(self) -> Counter[SiteId]:
        """By site, in how many of the blocks that lack a replica it has one already."""
        blocks = (block for segment in self._layout.segments for block in self._view.blocks(segment.id))
        lacking = [self._view.live(block) for block in blocks if len(self._view.live(block)) < len(block.sites)]
        return Counter(site for live in lacking for site in live)

    def _first(self, lost: SiteId, segment: int, partition: int) -> SiteId:
        """The first of the line of heirs that a lost replica belongs to: whoever inherits from an heir, inherits from that one."""
        if lost == NOBODY:  # A copy to an heir was dropped.
            dropped = self._view.membership.dropped
            copies = (c for c in self._view.plan.copies if c.segment == segment and c.number in dropped and partition in c.partitions)
            lost = next((copy.target for copy in copies), NOBODY)
        elif lost < NOBODY:
            return hole(lost)
        return self._refuges.get((segment, partition, lost), self._line.get(lost, lost))

    def _shares_host(self, site: SiteId, live: tuple[SiteId, ...]) -> bool:
        """Whether a death of the machine would take one of the live replicas along."""
        host = self.hosts.get(site, "")
        return host != "" and any(self.hosts.get(other, "") == host for other in live)

    def _pieces(self, partitions: tuple[int, ...], of: int) -> list[tuple[int, ...]]:
        size = max(1, of // PIECES)
        return [partitions[at : at + size] for at in range(0, len(partitions), size)]
