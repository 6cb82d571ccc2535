"""Recovery: which lost replicas to copy next, from where and to where (protocol C6). Decides; the machine proposes the plan.

A dead site's replicas go to one spare or one new site, which takes its place; if there is none for a while, to the remaining sites, each
partition to the one that has least and none of its replicas. Sources come first, and a few pieces are on their way at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy, Placement
from evenflow.site.view import NOBODY, Block, View

PATIENCE_MS: Final = 15_000.0
SETTLE_MS: Final = 250.0
PIECES: Final = 8
"""A segment's partitions are copied in at least this many pieces."""
AT_ONCE: Final = 2
"""Pieces that are on their way at the same time."""
FAILURES_MAX: Final = 50


def hole(site: int) -> int:
    """What stands in a placement for a lost replica of `site`: a negative number, so no site's. Its own inverse."""
    return NOBODY - 1 - site


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next. copies: to begin with a plan of this placement. wait_ms: ask again then. complete: nothing has just been missing."""

    placement: Placement
    copies: tuple[Copy, ...] = ()
    wait_ms: float | None = None
    complete: bool = False


class Recovery:
    """See the module. view: the coordinator's, shared. hosts: of the sites, as far as the world knows them. leaving: sites that get nothing
    more. spread: onto all remaining sites; else each block goes whole to the site that may take most of what is missing, which is the
    unbalanced recovery that experiments measure (FT 5.3.1)."""

    def __init__(self, layout: Layout, view: View, patience_ms: float) -> None:
        self._layout, self._view, self._patience_ms = layout, view, patience_ms
        self.hosts: dict[int, str] = {}
        self.leaving: set[int] = set()
        self.spread = True
        self._numbers = 0
        self._heirs: dict[int, int] = {}
        self._line: dict[int, int] = {}
        self._waiting = self._impatient = self._missing = False
        self._failures = 0

    def waited(self) -> None:
        """The time to wait for a new site is over."""
        self._waiting, self._impatient = False, True

    @property
    def missing(self) -> bool:
        """Some partition has fewer replicas than it should have, when last looked at."""
        return self._missing

    @property
    def waiting(self) -> bool:
        """For a new site that may take what was lost."""
        return self._waiting

    def failed(self) -> None:
        """A copy was given up."""
        self._failures += 1

    def lost(self) -> dict[str, tuple[int, ...]]:
        """Partitions without a live replica, by segment."""
        lost: dict[str, list[int]] = {}
        for segment in self._layout.segments:
            for block in self._view.blocks(segment.id):
                if not self._view.live(block):
                    lost.setdefault(segment.name, []).extend(block.partitions)
        return {name: tuple(sorted(partitions)) for name, partitions in lost.items()}

    def cleared(self) -> Placement:
        """The newest placement without the replicas that are not there: a hole says whose heirs they are for (see `hole`)."""
        view = self._view
        rows: list[list[tuple[int, ...]]] = [list(row) for row in view.plan.placement]
        for segment in self._layout.segments:
            for block in view.blocks(segment.id):
                live, ranks = view.live(block), self._ranks(segment.id, block)
                if len(live) < len(block.sites) or ranks != block.sites:
                    sites = tuple(site if site in live else hole(self._first(site, segment.id, block)) for site in ranks)
                    for partition in block.partitions:
                        rows[segment.id][partition] = sites
        return tuple(map(tuple, rows))

    def _ranks(self, segment: int, block: Block) -> tuple[int, ...]:
        """Who has, or has had, each rank once a move is over: its target in the rank of whom it replaced, or nowhere if it was given up."""
        plan = self._view.plan
        move = next((c for c in plan.copies if c.moves and c.segment == segment and block.partitions[0] in c.partitions), None)
        if move is None:
            return block.sites
        sites = plan.placement[segment][block.partitions[0]][:-1]
        if move.number in self._view.membership.retired:
            return tuple(move.target if site == move.replaces else site for site in sites)
        return sites

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def next_step(self) -> Step:
        """Called when no plan is proposed and no copy is under way."""
        view = self._view
        placement = self.cleared()
        load = view.load()
        rows = [list(row) for row in placement]
        copies: list[Copy] = []
        missing = False
        for segment in self._layout.segments:
            for block in view.blocks(segment.id):
                live = view.live(block)
                for rank, site in enumerate(self._ranks(segment.id, block)):
                    if site in live:
                        continue
                    missing = True
                    for target, partitions in self._heirs_of(site, segment.id, block, live, load):
                        for piece in self._pieces(partitions, segment.partitions):
                            if len(copies) < AT_ONCE and self._failures < FAILURES_MAX:
                                copies.append(Copy(self.next_number(), segment.id, piece, live[0], target))
                                for partition in piece:
                                    sites = rows[segment.id][partition]
                                    rows[segment.id][partition] = (*sites[:rank], target, *sites[rank + 1 :])
                    break  # One rank of a block at a time.
        if copies:
            self._missing = True
            return Step(tuple(map(tuple, rows)), tuple(copies))
        if not missing:
            complete, self._missing, self._impatient = self._missing, False, False
            return Step(placement, complete=complete)
        self._missing = True
        if self._waiting or self._impatient:
            return Step(placement)
        self._waiting = True
        return Step(placement, wait_ms=self._patience_ms)

    def _heirs_of(
        self, lost: int, segment: int, block: Block, live: tuple[int, ...], load: Counter[int]
    ) -> list[tuple[int, tuple[int, ...]]]:
        """(target, partitions) for the lost replicas of a block; nothing if there is nobody yet."""
        sites = self._view.membership.sites
        first = self._first(lost, segment, block)
        heir = self._heirs.get(first, NOBODY)
        if heir not in sites or heir in live:
            free = [site for site in sites if not load[site] and site not in self._heirs.values() and site not in self.leaving]
            heir = min(free, key=lambda site: (self._shares_host(site, live), site), default=NOBODY)
            if heir != NOBODY:
                self._heirs[first], self._line[heir] = heir, first
        if heir != NOBODY and heir not in live:
            return [(heir, block.partitions)]
        if not self._impatient:
            return []
        shares: dict[int, list[int]] = {}
        for partition in block.partitions:
            able = [site for site in sites if site not in live and site not in block.sites and site not in self.leaving]
            if not able:
                return []
            rank = load if self.spread else self._homeless()
            target = min(able, key=lambda site: (self._shares_host(site, live), rank[site], site))
            load[target] += 1
            shares.setdefault(target, []).append(partition)
        return [(target, tuple(partitions)) for target, partitions in shares.items()]

    def _homeless(self) -> Counter[int]:
        """By site, in how many of the blocks that lack a replica it has one already."""
        blocks = (block for segment in self._layout.segments for block in self._view.blocks(segment.id))
        lacking = [self._view.live(block) for block in blocks if len(self._view.live(block)) < len(block.sites)]
        return Counter(site for live in lacking for site in live)

    def _first(self, lost: int, segment: int, block: Block) -> int:
        """The first of the line of heirs that a lost replica belongs to: whoever inherits from an heir, inherits from that one."""
        if lost == NOBODY:  # A copy to an heir was dropped.
            dropped = self._view.membership.dropped
            copies = (
                c for c in self._view.plan.copies if c.segment == segment and c.number in dropped and block.partitions[0] in c.partitions
            )
            lost = next((copy.target for copy in copies), NOBODY)
        elif lost < NOBODY:
            return hole(lost)
        return self._line.get(lost, lost)

    def _shares_host(self, site: int, live: tuple[int, ...]) -> bool:
        """Whether a death of the machine would take one of the live replicas along."""
        host = self.hosts.get(site, "")
        return host != "" and any(self.hosts.get(other, "") == host for other in live)

    def _pieces(self, partitions: tuple[int, ...], of: int) -> list[tuple[int, ...]]:
        size = max(1, of // PIECES)
        return [partitions[at : at + size] for at in range(0, len(partitions), size)]
