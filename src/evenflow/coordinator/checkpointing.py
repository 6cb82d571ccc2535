"""Checkpoints as the coordinator sees them, from the order until they are in the journal (availability.md, K1, K5, K6, K8).

    nothing --Waited, calm--> open --all Stored, epoch durable--> asked --Appended--> nothing, one more is retained
                               |                                 (of the journal)
                               +--Late--> open, further ahead
                               +--Unable, a writer lost, a plan proposed, no patience--> nothing, dropped

The order names an epoch that no site has reached, and for each partition one live replica that is to write it. Nobody promises, and
nothing is held, so an order that comes too late costs nothing: it is given anew, further ahead. A checkpoint is whole when all writers have
said so, which they do when the sinks beside them have the epoch, and when the journal has the cuts up to it: from then on nothing before it
is ever needed again. The entry in the journal is what makes it one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from evenflow.availability.entries import Completed, Piece
from evenflow.availability.retained import RETAINED, folder_of
from evenflow.coordinator.events import CheckpointPause, CoordinatorAction, Denied, Done, Happened, Kind, RunPause, Sweep, Tell, Wake
from evenflow.coordinator.journal import Journal
from evenflow.coordinator.pace import AHEAD
from evenflow.plan.layout import Layout
from evenflow.site.events import Checkpoint
from evenflow.site.facts import CheckpointStored
from evenflow.site.view import NOBODY, View
from evenflow.stream.ids import SiteId

PATIENCE_MS: Final = 60_000.0
"""A checkpoint that is not whole by then is dropped: whatever it waits for may never come. The next one has twice as long: it may be the
first with all state that there is, and a store that was too slow for that will be so again."""
PATIENCE_MAX_MS: Final = 3_600_000.0
AHEAD_MAX: Final = 512
"""Epochs that an order is ahead of what was seen, at most."""
BUSY_MS: Final = 250.0
"""After so long it is looked again whether a checkpoint can begin that is due."""

Wanted = dict[SiteId, list[tuple[int, tuple[int, ...]]]]
"""By site: (segment, partitions) that it is to write."""


@dataclass(slots=True)
class Open:
    """A checkpoint that is under way. owing: sites that have not stored all yet. asked: the journal is to have it. last: the journal takes
    nothing of later epochs."""

    number: int
    epoch: int
    owing: set[SiteId]
    last: bool = False
    pieces: list[Piece] = field(default_factory=list)
    asked: bool = False


class Checkpointing:
    """journal: the run's, None if it has none: then nobody ever begins one. every_ms: from one checkpoint to the next, None: when asked.

    retained: those that are kept, ascending. failures: how many have been dropped since the last that became whole. requests: of those who
    wait for the one that is under way. patience_ms: how long the next one has to become whole. _first: the least epoch that the next may be
    of: behind that of the last, and of what is made again.
    _writers: by (segment, partition), who wrote it last: it does so again as long as it can.
    """

    def __init__(self, layout: Layout, view: View, journal: Journal | None, every_ms: float | None) -> None:
        self._layout, self._view, self._journal = layout, view, journal
        self.every_ms = None if journal is None else every_ms
        self.retained: tuple[Completed, ...] = () if journal is None else journal.retained[-RETAINED:]
        self.open: Open | None = None
        self.failures = 0
        self.requests: list[int] = []
        self.held_for: set[int] = set()
        # Numbers go on over generations, for people; names of objects have the generation, too.
        self._number, self._ahead = max([made.number for made in self.retained], default=0), AHEAD
        self.patience_ms = PATIENCE_MS
        self._first = 1 if journal is None else journal.durable + 1
        self._writers: dict[tuple[int, int], SiteId] = {}

    @property
    def journalled(self) -> bool:
        """There can be checkpoints."""
        return self._journal is not None

    @property
    def settled(self) -> bool:
        """None is in the journal's hands, which may be whole at any moment."""
        return self.open is None or not self.open.asked

    def start(self) -> list[CoordinatorAction]:
        """The run has begun: the first one is due after a while."""
        return [] if self.every_ms is None else [Wake(self.every_ms, RunPause.CHECKPOINT)]

    def may_begin(self, seen: int) -> bool:
        """As far as it is this one's to say. seen: the newest epoch heard of."""
        journal = self._journal
        if journal is None or journal.closing or journal.until is not None:
            return False
        return self.open is None and seen + self._ahead >= self._first

    def begin(self, seen: int, effective: int, request: int = 0, *, last: bool = False) -> list[CoordinatorAction]:
        """The next checkpoint, and who has to write what. effective: of the newest plan: state is captured as that plan has left it.
        request: of who waits for it. last: nothing after its epoch may be given out, so it is none of which something was."""
        assert self._journal is not None and self.open is None, "one at a time"
        self._number += 1
        self.requests = [request] if request else []
        wanted = self._assigned()
        least = self._journal.told + 1 if last else 0
        self.open = Open(self._number, max(seen + self._ahead, effective, self._first, least), set(wanted), last)
        self._journal.under_way = self.open.epoch
        if last:
            self._journal.until = self.open.epoch
            self.held_for.update(self.requests)
        folder = folder_of(self._journal.generation, self._number)
        orders = [(site, Checkpoint(self._number, self.open.epoch, folder, tuple(mine))) for site, mine in sorted(wanted.items())]
        return [*[Tell(site, order) for site, order in orders], Wake(self.patience_ms, CheckpointPause(self._number))]

    def _assigned(self) -> Wanted:
        """One live replica of every partition: who wrote it last, or who has least to write."""
        load: Counter[SiteId] = Counter()
        chosen: dict[tuple[SiteId, int], list[int]] = {}
        for segment in self._layout.segments:
            for block in self._view.blocks(segment.id):
                live = self._view.live(block)
                for partition in block.partitions:
                    site = self._writers.get((segment.id, partition), NOBODY)
                    if site not in live:
                        site = min(live, key=lambda each: (load[each], each))
                    load[site] += 1
                    self._writers[segment.id, partition] = site
                    chosen.setdefault((site, segment.id), []).append(partition)
        wanted: Wanted = {}
        for (site, number), partitions in chosen.items():
            wanted.setdefault(site, []).append((number, tuple(sorted(partitions))))
        return wanted

    def concerns(self, number: int) -> bool:
        """It is the one that is under way, and not in the journal's hands."""
        return self.open is not None and self.open.number == number and not self.open.asked

    def owes(self, site: SiteId, number: int) -> bool:
        """The one that is under way has that number, and waits for this site."""
        return self.open is not None and self.open.number == number and site in self.open.owing

    def take(self, site: SiteId, said: CheckpointStored) -> None:
        """A site has stored its part."""
        assert self.open is not None and site in self.open.owing, f"site {site} has stored what nobody wants from it: {said}"
        self.open.owing.discard(site)
        self.open.pieces += said.pieces

    def ask_journal(self) -> bool:
        """Whether the journal is to have it now: all is stored, and durable (K5)."""
        found, journal = self.open, self._journal
        if found is None or journal is None or found.asked or found.owing or (journal.precise and found.epoch > journal.durable):
            return False
        found.asked = True
        pieces = tuple(sorted(found.pieces, key=lambda piece: (piece.segment, piece.site)))
        journal.ask(Completed(found.number, found.epoch, pieces, generation=journal.generation))
        return True

    def completed(self, made: Completed) -> list[CoordinatorAction]:
        """It is in the journal. What is needed no more goes (K8)."""
        assert self._journal is not None
        self.open, self._journal.under_way, self.failures, self._first = None, None, 0, made.epoch + 1
        self._ahead, self.patience_ms = max(AHEAD, self._ahead // 2), max(PATIENCE_MS, self.patience_ms / 2)
        self.retained = (*self.retained, made)[-RETAINED:]
        details: dict[str, Any] = {"number": made.number, "epoch": made.epoch, "bytes": made.bytes}
        text = f"checkpoint {made.number} has the state at the end of epoch {made.epoch}: {made.bytes} bytes"
        requests, self.requests = self.requests, []
        sweep = [self._sweep()] if len(self.retained) == RETAINED else []
        return [Happened(Kind.CHECKPOINT_COMPLETED, NOBODY, text, details), *[Done(request, details) for request in requests], *sweep]

    def _sweep(self) -> Sweep:
        """What is needed no more goes."""
        journal = self._journal
        assert journal is not None
        oldest = self.retained[0].epoch
        gone, programs = journal.gone_rows(oldest), journal.programs(oldest)
        snapshot = journal.snapshot(self.retained[0])
        return Sweep(self.retained, journal.generation, frozenset(journal.rows), gone, snapshot, programs)

    def again(self, seen: int, effective: int) -> list[CoordinatorAction]:
        """A site was beyond its epoch (K6): order it anew further ahead, as a plan is proposed again (V2). What was heard of epochs may be
        old news; so it is given up only if that does not help."""
        assert self.open is not None and not self.open.asked, "who owes can be late"
        if self._ahead >= AHEAD_MAX:
            self._ahead = AHEAD
            return self.drop("sites were beyond its epoch each time that it was ordered")
        self._ahead *= 2
        last, self.open, requests = self.open.last, None, self.requests
        actions = self.begin(seen, effective, last=last)
        self.requests = requests
        return actions

    def drop(self, why: str) -> list[CoordinatorAction]:
        """Forget the one that is under way, if the journal does not have to do with it yet (K6)."""
        if self.open is None or self.open.asked:
            return []
        number, last, self.open = self.open.number, self.open.last, None
        self.failures += 1
        if self._journal is not None:
            self._journal.under_way = None
            if last:
                self._let_go()
        requests, self.requests = self.requests, []
        happened = Happened(Kind.CHECKPOINT_DROPPED, NOBODY, f"checkpoint {number} was dropped: {why}", {"number": number})
        return [happened, *[Denied(request, f"the checkpoint was dropped: {why}") for request in requests]]

    def withdraw(self, request: int) -> None:
        """The run is not stopped for this request. Nothing is held for nobody; what is under way becomes a checkpoint like others."""
        self.held_for.discard(request)
        if not self.held_for and self._journal is not None:
            self._let_go()

    def _let_go(self) -> None:
        """What came behind the last checkpoint is given out, too."""
        assert self._journal is not None
        self._journal.until = None
        self.held_for.clear()
        if self.open is not None:
            self.open.last = False

    def lose_patience(self) -> str:
        """It has not become whole in its time, and is about to be dropped. Returns why; the next one has longer."""
        waited_ms, self.patience_ms = self.patience_ms, min(2 * self.patience_ms, PATIENCE_MAX_MS)
        return f"it is not whole after {waited_ms / 1000:.0f} s"

    def waits_for(self, site: SiteId) -> bool:
        """The one that is under way needs something of this site."""
        return self.open is not None and site in self.open.owing
