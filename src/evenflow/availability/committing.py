"""Regions that write to the same sink: each compares what it has with what the sink has, and appends if it is next (race.md, W3).

A sink remembers the last epoch with rows and its digest. An epoch is committed if and only if the sink's last one is the one before it;
that the sink decides, in one step, so it needs no lease and no election. To save work the i-th region of a group waits i hedges for those
before it. A region that has committed the last epoch goes on at once, and one that finds others faster waits again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from evenflow.availability.chain import Link
from evenflow.errors import RegionsDisagree, SinkError
from evenflow.policy.hedge import MOST_US

STANDS_BY: Final = 16
"""Hedges for which a region that was fenced waits in addition."""
LACKS_US: Final = 300_000_000
"""So long a region that began in the middle waits for others to bring what the sink lacks before, if nobody brings anything."""


class Move(Enum):
    """What a region does with an epoch that it has finished."""

    APPEND = "the sink has the epoch before it, and it is this region's turn"
    WAIT = "the sink has the epoch before it, and a region before this one may append"
    DONE = "the sink has it, or a later one"


@dataclass(frozen=True, slots=True)
class Held:
    """What the sink says: its last epoch with rows, and the digest of it. 0 and 0 before the first."""

    epoch: int = 0
    digest: int = 0


@dataclass(slots=True)
class Turns:
    """Of one region and sink. place: in the group's list, from 0. held: as the sink was seen last. since_us: when that was new.

    own: the last epoch that this region has appended. offered, offered_us: what it would append next, and since when.
    stands_by: another region has taken the sink from this one, which leaves it time enough. begun: this region has only what comes behind
    that epoch; what the sink lacks before, others bring. lacks_us: for so long at most they may bring nothing.
    """

    sink: str
    place: int
    hedge_us: int = MOST_US
    held: Held = Held()
    since_us: int | None = None
    own: int = -1
    offered: int = 0
    offered_us: int = 0
    stands_by: bool = False
    begun: int = 0
    lacks_us: int = LACKS_US

    def seen(self, held: Held, now_us: int) -> None:
        """The sink was asked."""
        if held != self.held or self.since_us is None:
            self.held, self.since_us = held, now_us

    def move(self, link: Link, now_us: int) -> Move:
        """What to do with an epoch. Raises RegionsDisagree if the sink has something else, SinkError if nobody brings what it lacks."""
        held = self.held
        if held.epoch > link.epoch:
            return Move.DONE
        if held.epoch == link.epoch:
            if held.digest != link.digest:
                raise RegionsDisagree(self.sink, link.epoch, "that has written it", "has other rows in it than this one")
            return Move.DONE
        if held.epoch < self.begun:
            if self.still_us(now_us) >= self.lacks_us:
                raise SinkError(
                    f"sink {self.sink!r} has epoch {held.epoch} last, was given nothing for {self.lacks_us / 1e6:g} s, and this region "
                    f"has only what comes behind epoch {self.begun}: start a region that reads from the group's begin (without peers) or "
                    "goes on at a checkpoint location, and this one again"
                )
            return Move.WAIT
        if held.epoch != link.prev:
            what = f"wrote epoch {held.epoch} last, and here epoch {link.prev} comes before epoch {link.epoch}"
            raise RegionsDisagree(self.sink, link.epoch, "that has written before", what)
        if self.offered != link.epoch:
            self.offered, self.offered_us = link.epoch, now_us
        if held.epoch == self.own or now_us >= self.due_us(now_us):
            return Move.APPEND
        return Move.WAIT

    def still_us(self, now_us: int) -> int:
        """For how long the sink has been as it is; 0 if it has what comes before this region's first epoch."""
        return now_us - self.since_us if self.since_us is not None and self.held.epoch < self.begun else 0

    def doubt(self) -> None:
        """Whether the sink has taken something nobody knows: what it has must be asked before anything else."""
        self.since_us = None

    def due_us(self, now_us: int) -> int:
        """When it is this region's turn, if the sink stays as it is."""
        since_us = now_us if self.since_us is None else max(self.since_us, self.offered_us)
        return since_us + (self.place + (STANDS_BY if self.stands_by else 0)) * self.hedge_us

    def fenced(self) -> None:
        """Another region writes to the sink now. If this one took it back at once, they would take it from each other for ever."""
        self.stands_by, self.own = True, -1

    def appended(self, link: Link, now_us: int) -> None:
        """The sink has taken it."""
        self.own, self.stands_by = link.epoch, False
        self.held, self.since_us = Held(link.epoch, link.digest), now_us


class Next(Enum):
    """What is to be done for an epoch, now."""

    LOOK = "ask the sink what it has"
    APPEND = "give it to the sink, if that has the epoch before it"
    WAIT = "ask again in a moment"
    DONE = "the sink has it"


@dataclass(slots=True)
class Appending:
    """One region's side of a shared sink, epoch by epoch. prev: the last epoch with rows that is through. appended: epochs that this region
    has written; seen: those that others have.

    Whoever does it carries out what `next` says until that is DONE, and says what came of it: `seen`, `taken`, `refused` or `unknown`.
    """

    turns: Turns
    prev: int = 0
    appended: int = 0
    seen: int = 0

    def link(self, epoch: int, digest: int) -> Link:
        """Of the next epoch with rows."""
        return Link(self.prev, epoch, digest)

    def next(self, link: Link, now_us: int) -> Next:
        """Raises RegionsDisagree if the sink has something else. An epoch that is DONE is through."""
        if self.turns.since_us is None:
            return Next.LOOK
        match self.turns.move(link, now_us):
            case Move.APPEND:
                return Next.APPEND
            case Move.WAIT:
                return Next.WAIT
            case Move.DONE:
                self.appended += self.turns.own == link.epoch
                self.seen += self.turns.own != link.epoch
                self.prev = link.epoch
                return Next.DONE

    def looked(self, held: Held, now_us: int) -> None:
        """The sink has said what it has."""
        self.turns.seen(held, now_us)

    def taken(self, link: Link, now_us: int) -> None:
        """The sink has taken the epoch from this region."""
        self.turns.appended(link, now_us)

    def refused(self, *, fenced: bool) -> None:
        """The sink had something else, or another region writes to it now."""
        if fenced:
            self.turns.fenced()
        self.turns.doubt()

    def unknown(self) -> None:
        """It failed, and may have been taken."""
        self.turns.doubt()
