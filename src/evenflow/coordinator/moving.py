"""Moving: replicas that are to go from one live site to another (protocol C3, C5). Decides; the machine proposes the plan.

A move is a copy whose target has a rank of its own until it is live; in the same membership that counts it, the replica that it replaces is
retired, as if it had died. So a partition never has fewer replicas than before, and nobody waits for anything.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from evenflow.availability.guarantee import OperatorClass
from evenflow.coordinator.recovery import Recovery
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Copy, Placement
from evenflow.policy.move import Move
from evenflow.site.view import View
from evenflow.stream.ids import SiteId

AT_ONCE: Final = 32
"""Copies from a site, and to a site, that begin with the same plan: the work is theirs. A plan waits for what is in flight, which takes
long where a site is overloaded: then the moves of a round should not need several, one after the other, however many sites there are."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Moves to begin with a plan of this placement. refused: what cannot be done (any more), with the reason."""

    placement: Placement
    copies: tuple[Copy, ...]
    refused: tuple[str, ...]


@dataclass(slots=True)
class BegunMove:
    """bytes: of state that have travelled."""

    move: Move
    bytes: int = 0


class Moving:
    """wanted: moves that wait for their turn. leaving: sites that are being emptied, which get nothing more. begun: those that are not
    over, by number of the copy.

    unconfirmed: copies whose target counts, but has not answered yet; until then what it replaces counts too. pinned: (segment, partition)
    that only a person's moves may bring elsewhere; another one may have waited for its turn when they were pinned.
    """

    def __init__(self, layout: Layout, view: View, recovery: Recovery, pinned: Set[tuple[int, int]]) -> None:
        self._layout, self._view, self._recovery, self._pinned = layout, view, recovery, pinned
        self.wanted: deque[Move] = deque()
        self.leaving: set[SiteId] = recovery.leaving
        self._emptied: set[SiteId] = set()
        self.begun: dict[int, BegunMove] = {}
        self.unconfirmed: dict[int, Copy] = {}

    def want(self, moves: Iterable[Move]) -> None:
        self.wanted.extend(moves)

    def leave(self, site: SiteId) -> None:
        """Empty a site, and keep it so."""
        self.leaving.add(site)
        self._emptied.discard(site)

    def stay(self, site: SiteId) -> None:
        """It is to be emptied no longer."""
        self.leaving.discard(site)
        self.wanted = deque(move for move in self.wanted if move.source != site or move.reason != leaves(site))

    def reason(self, copy: Copy) -> str:
        return self.begun[copy.number].move.reason

    def takes(self, partitions: Set[tuple[int, int]]) -> bool:
        """Whether a move that has begun is about one of these (segment, partition)."""
        return any((begun.move.segment, partition) in partitions for begun in self.begun.values() for partition in begun.move.partitions)

    def again(self, copies: Iterable[Copy]) -> None:
        """The plan that was to begin these is off: they are wanted again, before all others."""
        moves = [replace(self.begun.pop(copy.number).move, partitions=copy.partitions) for copy in copies if copy.moves]
        self.wanted.extendleft(reversed(moves))

    def described(self, move: Copy) -> dict[str, Any]:
        """What a person wants to know of a move: see `Happened`."""
        begun = self.begun[move.number]
        return {
            "number": move.number, "segment": self._layout.segments[move.segment].name, "partitions": list(move.partitions),
            "source": move.replaces, "target": move.target, "reason": begun.move.reason, "bytes": begun.bytes,
        }  # fmt: skip

    def over(self, move: Copy) -> dict[str, Any]:
        """The same of a move that is done or given up: nothing is kept of it."""
        described = self.described(move)
        del self.begun[move.number]
        return described

    def forget(self, site: SiteId) -> list[Copy]:
        """It is dead: it is emptied no more, and what it would have replaced stays. Returns the moves that it has not confirmed."""
        self.leaving.discard(site)
        lost = [copy for copy in self.unconfirmed.values() if copy.target == site]
        self.unconfirmed = {number: copy for number, copy in self.unconfirmed.items() if copy.target != site}
        return lost

    def still_to_empty(self) -> tuple[list[SiteId], list[Move]]:
        """(sites that have nothing any more, which is said once; moves that take the rest away from the others)."""
        hosts = set(self._view.active())
        emptied = [site for site in sorted(self.leaving - hosts) if site not in self._emptied]
        self._emptied.update(emptied)
        return emptied, [move for site in sorted(self.leaving & hosts) for move in self._all_of(site)]

    def _all_of(self, site: SiteId) -> tuple[Move, ...]:
        """Moves that take everything away from a site, to those that have least and may have it. Whatever finds no place stays."""
        view = self._view
        homes = [other for other in view.membership.sites if other not in self.leaving]
        load = view.load()
        shares: dict[tuple[int, int], list[int]] = {}
        for segment in self._layout.segments:
            for block in view.blocks(segment.id) if movable(self._layout, segment.id) else ():
                live = view.live(block)
                able = [home for home in homes if home not in live]
                for partition in block.partitions if site in live and able else ():
                    target = min(able, key=lambda home: (load[home], home))
                    load[target] += 1
                    shares.setdefault((segment.id, target), []).append(partition)
        return tuple(
            Move(segment, tuple(sorted(partitions)), site, target, leaves(site), asked=True)
            for (segment, target), partitions in shares.items()
        )

    def homeward(self) -> tuple[Move, ...]:
        """Moves of what found refuge at the remaining sites, to the sites that have come since in place of the lost ones."""
        shares: dict[tuple[int, int, int], list[int]] = {}
        for refugee in self._recovery.refugees():
            if movable(self._layout, refugee.segment) and (refugee.segment, refugee.partition) not in self._pinned:
                shares.setdefault((refugee.segment, refugee.site, refugee.heir), []).append(refugee.partition)
        return tuple(
            Move(segment, tuple(partitions), site, heir, f"site {heir} has come in place of a lost one")
            for (segment, site, heir), partitions in shares.items()
        )

    def begin(self) -> Begun:
        """The next moves that can be made together. Called when no plan is proposed and no copy is under way."""
        rows = [list(row) for row in self._recovery.cleared()]
        copies: list[Copy] = []
        refused: list[str] = []
        taken: set[tuple[int, int]] = set()
        busy: Counter[SiteId] = Counter()
        wanted, self.wanted = self.wanted, deque()
        for move in wanted:
            about = {(move.segment, partition) for partition in move.partitions}
            first = not about & taken  # Else one before it is about the same partitions, and must be over first.
            why = self._obstacle(move) if first else ""
            if why:
                refused.append(f"{self._name(move)} cannot move from site {move.source} to site {move.target}: {why}")
                continue
            taken |= about
            by_source = self._by_source(move) if first else {}
            if not first or max(busy[site] for site in (SiteId(move.target), *by_source)) >= AT_ONCE:
                self.wanted.append(move)
                continue
            for source, partitions in by_source.items():
                target = SiteId(move.target)
                copy = Copy(self._recovery.next_number(), move.segment, tuple(partitions), source, target, SiteId(move.source))
                copies.append(copy)
                self.begun[copy.number] = BegunMove(move)
                busy.update((source, target))
                for partition in partitions:
                    rows[move.segment][partition] = (*rows[move.segment][partition], target)
        return Begun(tuple(map(tuple, rows)), tuple(copies), tuple(refused))

    def _by_source(self, move: Move) -> dict[SiteId, list[int]]:
        """C5: an overloaded site is not to be on the critical path of what is to relieve it."""
        found: dict[SiteId, list[int]] = {}
        for partition in move.partitions:
            live = self._view.membership.live(self._view.plan, move.segment, partition)
            found.setdefault(next((site for site in live if site != move.source), SiteId(move.source)), []).append(partition)
        return found

    def _obstacle(self, move: Move) -> str:
        """Why this cannot be done; "" if it can."""
        view = self._view
        if not 0 <= move.segment < len(self._layout.segments):
            return f"there is no segment {move.segment}"
        segment = self._layout.segments[move.segment]
        if move.target not in view.membership.sites or move.target in self.leaving:
            return "its target is not there or is being emptied"
        for partition in move.partitions:
            if not 0 <= partition < segment.partitions:
                return f"there is no partition {partition}"
            live = view.membership.live(view.plan, move.segment, partition)
            if move.source not in live:
                return f"site {move.source} has no replica of partition {partition}"
            if move.target in live:
                return f"site {move.target} has a replica of partition {partition} already"
            if (move.segment, partition) in self._pinned and not move.asked:
                return f"partition {partition} has been pinned meanwhile"
        return bound_by(self._layout, move.segment)

    def _name(self, move: Move) -> str:
        known = 0 <= move.segment < len(self._layout.segments)
        name = self._layout.segments[move.segment].name if known else f"segment {move.segment}"
        return f"{len(move.partitions)} partitions of {name}"


def leaves(site: SiteId) -> str:
    """The reason of a move that empties a site."""
    return f"site {site} is being emptied"


def movable(layout: Layout, segment: int) -> bool:
    """Whether a replica of the segment's partitions can go to another site without a failure."""
    return not bound_by(layout, segment)


def bound_by(layout: Layout, segment: int) -> str:
    """What holds the segment's replicas where they are, "" if nothing does: rows that cannot be read again, Spark's tasks and readers, and
    a state that follows from answers which its new site, that makes the same epochs for a while, would not get. Answers that are records
    are the same everywhere (N1)."""
    described = layout.segments[segment]
    arbitrary = next((box for box, of in layout.depends.get(segment, ()) if of is OperatorClass.ARBITRARY), None)
    if arbitrary is not None and described.effects is None:
        return f"box {arbitrary!r} may answer otherwise at another site, and its state follows from what it was told"
    if described.source is not None:
        source = layout.sources[described.source]
        if getattr(source, "pushed", False):
            return f"source {described.source!r} gets its rows from tasks of Spark, which bring them to that site"
        return "" if getattr(source, "replayable", True) else f"the rows of source {described.source!r} cannot be read again elsewhere"
    if described.sink is not None and layout.sinks[described.sink].where == "spark":
        return f"sink {described.sink!r} is read by Spark from that site"
    return ""
