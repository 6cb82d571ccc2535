"""Finished epochs that a region keeps for its subscribers, and forgets by age and size: it waits for nobody (race.md, W5).

A subscriber has a place, the last epoch that it was given. What follows on it is here, or was never here, or was here and is not any more;
the last two are a gap, and who has one asks another region.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from evenflow.availability.chain import Link

Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True)
class Epoch(Generic[Rows]):
    """One that is kept. at_us: when it was finished here. bytes: of its rows."""

    link: Link
    rows: Rows
    bytes: int
    at_us: int


@dataclass(slots=True)
class Finished(Generic[Rows]):
    """keep_us, keep_bytes: for how long and how much is kept; the newest epoch is, however large it is.

    last: the newest epoch with rows that is known of. passed: the newest epoch, with rows or without. floor: who has been given less than
    this cannot go on here. ended: no epoch comes any more.
    """

    keep_us: int
    keep_bytes: int
    last: int = 0
    passed: int = 0
    floor: int = 0
    bytes: int = 0
    ended: bool = False
    _kept: list[Epoch[Rows]] = field(default_factory=list)
    _from: int = 0

    def begin_behind(self, epoch: int) -> None:
        """Before the first one: what this region makes follows on `epoch`, or on one with rows before it that it does not know."""
        assert self.passed == self.floor and not self._kept, "epochs have been finished already"
        self.last = self.passed = self.floor = epoch

    def add(self, epoch: int, digest: int, rows: Rows, size: int, now_us: int) -> Link | None:
        """Keep an epoch with rows. Its link; None if it was finished before."""
        if epoch <= self.passed:
            return None
        link = Link(self.last, epoch, digest)
        self._kept.append(Epoch(link, rows, size, now_us))
        self.last = self.passed = epoch
        self.bytes += size
        self.trim(now_us)
        return link

    def skip(self, epoch: int) -> None:
        """An epoch without rows is through."""
        self.passed = max(self.passed, epoch)

    def trim(self, now_us: int) -> None:
        """Forget what is too old or too much. Cost: of what is forgotten."""
        kept = self._kept
        while self._from < len(kept) - 1 and (self.bytes > self.keep_bytes or kept[self._from].at_us < now_us - self.keep_us):
            self._forget()
        if self._from < len(kept) and kept[self._from].at_us < now_us - self.keep_us:
            self._forget()
        if self._from > len(kept) // 2:
            del kept[: self._from]
            self._from = 0

    def _forget(self) -> None:
        oldest = self._kept[self._from]
        self.bytes -= oldest.bytes
        self.floor = oldest.link.epoch
        self._from += 1

    def after(self, epoch: int) -> Epoch[Rows] | None:
        """What comes next for who was given `epoch`; None if nothing has, or if something is missing between: see `reaches`."""
        at = bisect_right(self._kept, epoch, lo=self._from, key=lambda each: each.link.epoch)
        return self._kept[at] if at < len(self._kept) and self.reaches(epoch) else None

    def of(self, epoch: int) -> Epoch[Rows] | None:
        """That epoch, if it is kept."""
        found = self.after(epoch - 1) if epoch > self.floor else None
        return found if found is not None and found.link.epoch == epoch else None

    def reaches(self, epoch: int) -> bool:
        """Whether who was given `epoch` can go on here without a gap."""
        return epoch >= self.floor
