"""The chain of epochs with rows, by which a reader of several regions takes each epoch once, and misses none (race.md, W2, W7).

Regions do not know each other. Each of them numbers epochs by the content of the sources, and says with each epoch that has rows which
one with rows came before it. Who has delivered epoch d takes (prev, e) if prev <= d < e, whoever says it. So nothing has to be agreed on:
a late frame is a duplicate, a region that lacks something shows a gap, and two regions that contradict each other are found out.

    e <= d             duplicate, and its digest has to be that of the epoch that was delivered
    prev <= d < e      next; where d was itself delivered from the chain, prev < d is a contradiction
    d < prev           a gap: another region is asked, and if all have it the epochs are gone
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from evenflow.errors import ProtocolError, RegionsDisagree

REMEMBERED: Final = 4096
"""Epochs whose digests are compared after they were delivered."""


@dataclass(frozen=True, slots=True)
class Link:
    """An epoch with rows. prev: the one with rows before it, 0 for the first. digest: of its rows, 64 bits."""

    prev: int
    epoch: int
    digest: int

    def __post_init__(self) -> None:
        if not 0 <= self.prev < self.epoch:
            raise ProtocolError(f"epoch {self.epoch} cannot come after epoch {self.prev}")


class Step(Enum):
    """What a link is to who has delivered an epoch."""

    NEXT = "it is the next epoch with rows"
    DUPLICATE = "it has been delivered"
    GAP = "epochs between the last one and it are missing here"


@dataclass(slots=True)
class Chain:
    """What one reader has delivered. sink: of which it reads, for messages. delivered: the last epoch, or after which it wanted to begin.

    known: links that were delivered, the newest REMEMBERED of them.
    """

    sink: str
    delivered: int = 0
    known: deque[Link] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def step(self, link: Link, region: str) -> Step:
        """What this link is. Changes nothing. region: who says it. Raises RegionsDisagree."""
        if link.prev > self.delivered:
            return Step.GAP
        if link.epoch <= self.delivered:
            self._compare(link, region)
            return Step.DUPLICATE
        if self.known and link.prev != self.delivered:
            raise RegionsDisagree(
                self.sink, link.epoch, region, f"says that epoch {link.prev} came before it, and epoch {self.delivered} was delivered"
            )
        return Step.NEXT

    def take(self, link: Link, region: str) -> bool:
        """Deliver it if it is next. Whether it was. Raises RegionsDisagree."""
        if self.step(link, region) is not Step.NEXT:
            return False
        self.known.append(link)
        self.delivered = link.epoch
        return True

    def _compare(self, link: Link, region: str) -> None:
        """A link of an epoch that is not after the last one, where it is remembered what was delivered then."""
        if not self.known or link.epoch <= self.known[0].prev:
            return
        at = bisect_right(self.known, link.epoch, key=lambda each: each.epoch) - 1
        if at < 0 or self.known[at].epoch != link.epoch:
            raise RegionsDisagree(self.sink, link.epoch, region, "has rows in it, and the region that was delivered has none")
        if self.known[at].digest != link.digest:
            raise RegionsDisagree(self.sink, link.epoch, region, "has other rows in it than those that were delivered")
