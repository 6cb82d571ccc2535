"""From where a region without state begins to read, and when others may believe it (race.md, W4).

From the origin of its group, or from a checkpoint, its results are those of the others from the first epoch on. Where neither is at hand it
reads from a time back as far as the dataflow's state reaches (its horizon, which the planner knows of windows, bounds and delays). Then it
is silent: it neither feeds nor commits before so many epochs with rows in a row were as a live region has them. What differs meanwhile
is no contradiction, for its state is not whole yet; afterwards it is one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

from evenflow.availability.chain import Link
from evenflow.errors import QueryError, RegionsDisagree

COMPARED: Final = 64
"""Epochs with rows that have to be as a live region's, one after the other."""
AHEAD: Final = 4096
"""Links of one side that wait for the other's; and epochs that wait for a region to be believed."""

Rows = TypeVar("Rows")


class Start(Enum):
    """From where a region reads."""

    ORIGIN = "the group's first epoch: exact"
    CHECKPOINT = "behind a checkpoint of the group: exact"
    HORIZON = "as far back as state reaches: silent until it is as a live region"


@dataclass(frozen=True, slots=True)
class Reading:
    """start: see there. after: the first epoch that is read comes behind this one."""

    start: Start
    after: int

    @property
    def silent(self) -> bool:
        return self.start is Start.HORIZON


def reading(now: int, kept_from: int, checkpoint: int | None, horizon: int | None) -> Reading:
    """How a region without state begins. Facts in epochs of its group.

    now: the epoch of the present. kept_from: the oldest that every source still has whole. checkpoint: the newest one of the group, None
    without. horizon: so far back state reaches, None if for ever. Raises QueryError if no way is left that gives the others' results.
    """
    if checkpoint is not None and kept_from <= checkpoint + 1:
        return Reading(Start.CHECKPOINT, checkpoint)
    if kept_from <= 1:
        return Reading(Start.ORIGIN, 0)
    if horizon is None:
        raise QueryError(
            f"this region cannot begin: its sources have epochs from {kept_from} on, state of the dataflow reaches back for ever, and "
            "there is no checkpoint of the group from which the sources go on. Bring a checkpoint, or keep more at the sources"
        )
    after = max(0, now - horizon - 1)
    if kept_from > after + 1:
        raise QueryError(
            f"this region cannot begin: its sources have epochs from {kept_from} on, and state reaches back to epoch {after + 1}. Bring a "
            "checkpoint of the group, or keep more at the sources"
        )
    return Reading(Start.HORIZON, after)


def near(made: int, horizon: int) -> Reading:
    """How a region begins that would rather be silent for a while than read everything. made: the last epoch with rows that a live region
    has. horizon: so many epochs back state reaches. One epoch more is not whole where the horizon begins in it, and of the first one with
    rows it is not known which came before."""
    after = made - horizon - 2
    return Reading(Start.HORIZON, after) if after > 0 else Reading(Start.ORIGIN, 0)


@dataclass(slots=True)
class Silence:
    """Of a region that reads from its horizon. sink: of which it compares results. agreed: so many epochs in a row were equal; since: the
    last epoch that was not, behind which they are.

    own, live: links that only one side has said yet, by epoch. through: up to there they were compared. told: the last epoch of a live
    region, without gaps from where its last gap was. needed: so many equal ones in a row. over: there were so many; what differs from then
    on is a contradiction.
    """

    sink: str
    since: int = 0
    agreed: int = 0
    own: dict[int, Link] = field(default_factory=dict)
    live: dict[int, Link] = field(default_factory=dict)
    through: int = 0
    told: int = 0
    needed: int = COMPARED
    over: bool = False
    _equal: deque[int] = field(default_factory=deque)

    @staticmethod
    def behind(sink: str, epoch: int) -> Silence:
        """Of a region whose first epoch comes behind this one."""
        return Silence(sink, since=epoch, through=epoch, told=epoch)

    @property
    def settled(self) -> bool:
        """Neither side has said anything that the other one has not."""
        return not self.own and not self.live

    def behind_all(self, epoch: int) -> bool:
        """So many equal ones as are needed came behind this epoch."""
        return self.over and bool(self._equal) and self._equal[0] > epoch

    def made(self, link: Link) -> None:
        """This region has finished an epoch with rows."""
        self._keep(self.own, link)
        self._compare("a live region")

    def heard(self, link: Link, region: str) -> None:
        """A live region has finished it. Raises RegionsDisagree where this region was believed before."""
        if link.prev > self.told:
            self._forget(link.prev)
        self.told = max(self.told, link.epoch)
        self._keep(self.live, link)
        self._compare(region)

    def _forget(self, through: int) -> None:
        """What live regions have up to there is not known: nothing of it can be compared, and what agreed before is not in a row with what
        comes."""
        self.since, self.agreed = max(self.since, through), 0
        self._equal.clear()
        for side in (self.own, self.live):
            for epoch in [each for each in side if each <= through]:
                del side[epoch]
        self.through = max(self.through, through)

    def _keep(self, side: dict[int, Link], link: Link) -> None:
        if link.epoch <= self.through:
            return
        side[link.epoch] = link
        while len(side) > AHEAD:
            del side[min(side)]

    def _compare(self, region: str) -> None:
        """Up to where both sides are known: an epoch that one side has and the other has passed is none of that side."""
        if not self.own or not self.live:
            return
        through = min(max(self.own), max(self.live))
        for epoch in sorted(e for e in {*self.own, *self.live} if e <= through):
            own, live = self.own.pop(epoch, None), self.live.pop(epoch, None)
            if own == live:
                self._agree(epoch)
            elif self.over:
                raise RegionsDisagree(self.sink, epoch, region, "has other rows in it than this one, which had been as the others")
            else:
                self.agreed, self.since = 0, epoch
                self._equal.clear()
        self.through = max(self.through, through)

    def _agree(self, epoch: int) -> None:
        self.agreed += 1
        self._equal.append(epoch)
        if len(self._equal) > self.needed:
            self._equal.popleft()
        self.over = self.over or self.agreed >= self.needed


@dataclass(slots=True)
class Gate:
    """Of one region: nothing leaves it before it is believed. silences: by sink; none: what it makes is exact from the start.

    A sink may have rows once a day, or never. So where one sink's silence is over another one's is as well if nothing of it is left to be
    compared, and it has not differed since the epochs by which that one is over.
    """

    silences: dict[str, Silence] = field(default_factory=dict)
    _believed: bool = False

    @property
    def over(self) -> bool:
        """It may feed and commit, from now on."""
        self._believed = self._believed or not self.silences or self._agrees()
        return self._believed

    def _agrees(self) -> bool:
        over = [silence for silence in self.silences.values() if silence.over]
        rest = [silence for silence in self.silences.values() if not silence.over]
        return any(all(each.settled and one.behind_all(each.since) for each in rest) for one in over)

    @property
    def since(self) -> int:
        """What comes behind this epoch is as a live region has it."""
        return max([silence.since for silence in self.silences.values()], default=0)


@dataclass(slots=True)
class Withheld(Generic[Rows]):
    """What a region has made of one sink since it agrees, until it may give that out. prev: the last epoch with rows that it has made.
    known: it is that of the live regions. Of the first epoch that a region makes behind its horizon nobody here knows which came before,
    so that one is left to others, also where the sink is so quiet that it was never compared.

    What it gives out first is the first epoch behind the last one that was not as a live region has it: of all that follows it knows which
    epoch came before, too.
    """

    gate: Gate
    prev: int
    known: bool = True
    _kept: deque[tuple[Link, Rows]] = field(default_factory=deque)

    def made(self, epoch: int, digest: int, rows: Rows) -> Link:
        """It has finished an epoch with rows."""
        link = Link(self.prev, epoch, digest)
        self.prev = epoch
        if self.known:
            self._kept.append((link, rows))
        self.known = True
        self._trim()
        return link

    def given(self) -> list[tuple[Link, Rows]]:
        """What may be given out now that has not been, in order; nothing while the region is silent."""
        self._trim()
        if not self.gate.over:
            return []
        found = list(self._kept)
        self._kept.clear()
        return found

    def _trim(self) -> None:
        while self._kept and (self._kept[0][0].epoch <= self.gate.since or len(self._kept) > AHEAD):
            self._kept.popleft()
