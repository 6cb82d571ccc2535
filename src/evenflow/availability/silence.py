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


@dataclass(slots=True)
class Silence:
    """Of a region that reads from its horizon. sink: of which it compares results. agreed: so many epochs in a row were equal; since: the
    last epoch that was not, behind which they are.

    own, live: links that only one side has said yet, by epoch. through: up to there they were compared. told: the last epoch of a live
    region, without gaps from where its last gap was. needed: so many equal ones in a row.
    """

    sink: str
    since: int = 0
    agreed: int = 0
    own: dict[int, Link] = field(default_factory=dict)
    live: dict[int, Link] = field(default_factory=dict)
    through: int = 0
    told: int = 0
    needed: int = COMPARED

    @staticmethod
    def behind(sink: str, epoch: int) -> Silence:
        """Of a region whose first epoch comes behind this one."""
        return Silence(sink, since=epoch, through=epoch, told=epoch)

    @property
    def over(self) -> bool:
        """It may feed and commit."""
        return self.agreed >= self.needed

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
                self.agreed += 1
            elif self.over:
                raise RegionsDisagree(self.sink, epoch, region, "has other rows in it than this one, which had been as the others")
            else:
                self.agreed, self.since = 0, epoch
        self.through = max(self.through, through)


@dataclass(slots=True)
class Gate:
    """Of one region: nothing leaves it before all its silences are over. silences: by sink; none: what it makes is exact from the start."""

    silences: dict[str, Silence] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return all(silence.over for silence in self.silences.values())

    @property
    def since(self) -> int:
        """What comes behind this epoch is as a live region has it."""
        return max([silence.since for silence in self.silences.values()], default=0)


@dataclass(slots=True)
class Withheld(Generic[Rows]):
    """What a region has made of one sink since it agrees, until it may give that out. prev: the last epoch with rows that it has made.

    What it gives out first is the first epoch behind the last one that was not as a live region has it: of all that follows it knows which
    epoch came before, too.
    """

    gate: Gate
    prev: int
    _kept: deque[tuple[Link, Rows]] = field(default_factory=deque)

    def made(self, epoch: int, digest: int, rows: Rows) -> Link:
        """It has finished an epoch with rows."""
        link = Link(self.prev, epoch, digest)
        self.prev = epoch
        self._kept.append((link, rows))
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
