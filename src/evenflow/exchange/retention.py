"""Retention: a producer replica keeps every frame until every live consumer replica has acknowledged it (A1), and can send it again (A3).

What is kept is the epoch as the producer made it, sorted by groups of consumer partitions that live on the same sites: what one consumer
asks for is then a slice, or a few, whoever it is. Nothing here is per partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.exchange.routing import Pieces
from evenflow.exchange.section import Bundle, Mark, Resume, new_tuple
from evenflow.stream.epoch import ALL_KEPT, NO_WATERMARK, Tick
from evenflow.stream.ids import FeedNumber, PlanNumber, SiteId

NO_PLAN: Final = -1


@dataclass(slots=True)
class Kept:
    """One epoch of one stream. watermark, stamp, opened, kept, newest, missed: see Mark. pieces: from each cohort of partitions here that
    made some of it."""

    epoch: int
    plan: PlanNumber
    watermark: int
    stamp: int
    opened: int
    pieces: list[Pieces] = field(default_factory=list)
    kept: int = ALL_KEPT
    newest: int = NO_WATERMARK
    missed: int = NO_WATERMARK

    @staticmethod
    def of(tick: Tick, plan: PlanNumber, opened: int, pieces: list[Pieces]) -> Kept:
        """What an epoch has made. tick: at its end."""
        return Kept(tick.epoch, plan, tick.mark, tick.stamp, opened, pieces, tick.kept, tick.newest, tick.missed)

    def mark(self, feed: FeedNumber, stream: int) -> Mark:
        said = (feed, stream, self.epoch, self.plan, self.watermark, self.stamp, self.opened, self.kept, self.newest, self.missed)
        return new_tuple(Mark, said)  # type: ignore[no-any-return]


@dataclass(slots=True)
class Asked:
    """What a consumer site has asked for (Resume), and how far it has been sent.

    next: the epoch that it gets next. ready: it has got one, so what it asks for is here. whole: all producer partitions in `all_of` are
    wanted. _plan: by which it asks for all of one group and nothing else, `_group`.
    """

    site: SiteId
    resume: Resume
    next: int
    ready: bool = False
    all_of: tuple[int, ...] = ()
    whole: bool = False
    _plan: int = NO_PLAN
    _group: int = 0
    _slices: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)

    def rows_of(self, pieces: Pieces) -> Iterator[pa.RecordBatch]:
        """The rows that it asked for, without copying where whole groups are meant."""
        if pieces.rows is None:
            return
        slices = self._slices.get(pieces.split.plan)
        if slices is None:
            slices = self._slices[pieces.split.plan] = pieces.split.groups_within(self.resume.consumers)
        if pieces.partitions is not self.all_of:
            self.all_of, self.whole = pieces.partitions, set(pieces.partitions) <= set(self.resume.producers)
        entire, partly = slices
        self._plan, self._group = (pieces.split.plan, entire[0]) if len(entire) == 1 and not partly else (NO_PLAN, 0)
        for group in entire:
            start, end = pieces.bounds[group], pieces.bounds[group + 1]
            if end > start:
                yield from self._from_producers(pieces, start, end, None)
        for group in partly:
            start, end = pieces.bounds[group], pieces.bounds[group + 1]
            if end > start:
                wanted = np.isin(pieces.consumers_of(start, end), np.array(self.resume.consumers, np.int32))
                yield from self._from_producers(pieces, start, end, wanted)

    def _from_producers(self, pieces: Pieces, start: int, end: int, wanted: npt.NDArray[np.bool_] | None) -> Iterator[pa.RecordBatch]:
        assert pieces.rows is not None
        rows = pieces.rows if end - start == pieces.rows.num_rows else pieces.rows.slice(start, end - start)
        if not self.whole:
            fed = np.isin(pieces.producers_of(start, end), np.array(self.resume.producers, np.int32))
            wanted = fed if wanted is None else wanted & fed
        if wanted is not None:
            rows = rows.filter(pa.array(wanted))
        if rows.num_rows:
            yield rows

    def bundles(self, kept: Kept, stream: int) -> list[Bundle]:
        made: list[Bundle] = []
        for pieces in kept.pieces:
            if pieces.rows is None:
                continue
            if pieces.split.plan == self._plan and pieces.partitions is self.all_of and self.whole:
                start, end = pieces.bounds[self._group], pieces.bounds[self._group + 1]
                if end > start:
                    rows, size = pieces.rows.slice(start, end - start), pieces.bytes * (end - start) // pieces.rows.num_rows
                    made.append(Bundle(self.resume.feed, stream, kept.epoch, kept.plan, rows, size))
                continue
            for rows in self.rows_of(pieces):
                size = pieces.bytes * rows.num_rows // max(1, pieces.rows.num_rows)
                made.append(Bundle(self.resume.feed, stream, kept.epoch, kept.plan, rows, size))
        return made


class Retention:
    """Frames of one stream that one cohort of producer partitions made.

    acked: per consumer site that must have them, the last epoch that it holds. produced: last epoch. frame_bytes: memory held.
    stable: the last epoch that is never asked for again, where consumers that are lost begin again from a base (B2); None: where what all
    live ones hold is asked for by nobody.
    floor: the epoch behind which all that may still be asked for is here: before it this cohort has made nothing.
    _lacking: how many consumers do not hold the first epoch that is kept, so that only the last of them makes it be let go.
    """

    __slots__ = ("_kept", "_lacking", "acked", "floor", "frame_bytes", "produced", "stable", "stream")

    def __init__(self, stream: int, consumers: Iterable[SiteId], produced: int = 0) -> None:
        self.stream, self.produced, self.floor = stream, produced, produced
        self.frame_bytes = 0
        self.acked = dict.fromkeys(consumers, produced)
        self.stable: int | None = None
        self._kept: deque[Kept] = deque()
        self._lacking = 0

    def keep(self, kept: Kept) -> None:
        """Keep an epoch that is about to be sent."""
        assert kept.epoch > self.produced, f"epoch {kept.epoch} of stream {self.stream} was made after {self.produced}"
        self.produced = kept.epoch
        if self.acked or self.stable is not None:
            self._kept.append(kept)
            self.frame_bytes += sum([pieces.bytes for pieces in kept.pieces])
            if len(self._kept) == 1:
                self._count()

    def restore(self, floor: int, kept: Iterable[Kept]) -> None:
        """What was kept behind epoch `floor` where the partitions were before, for those who lost it with them (P1). A floor beyond what
        was produced is of partitions that had begun again, and had not come to where their consumers were: what is made next is all there.
        """
        assert not self._kept, f"stream {self.stream} has frames already"
        self.floor, self._kept = min(floor, self.produced), deque(kept)
        self.frame_bytes = sum([pieces.bytes for each in self._kept for pieces in each.pieces])
        self.evict()

    def hear(self, site: SiteId, epoch: int) -> None:
        """`site` holds everything up to `epoch`. Late and repeated acks change nothing."""
        before = self.acked.get(site, epoch)
        if epoch > before:
            self.acked[site] = epoch
            if self._kept:
                if before < self._kept[0].epoch <= epoch:
                    self._lacking -= 1
                if self._lacking <= 0:
                    self.evict()

    def admit(self, site: SiteId, start: int) -> None:
        """A new consumer replica needs every epoch from `start` on."""
        self.acked.setdefault(site, start - 1)
        self._count()

    def ask_again(self, site: SiteId, start: int) -> None:
        """`site` wants every epoch from `start` on, whatever it has said: partitions that have begun again there lack what its others
        hold (B1)."""
        if self.acked.get(site, 0) >= start:
            self.acked[site] = start - 1
            self._count()

    def dismiss(self, site: SiteId) -> None:
        """A consumer is dead: nothing is kept for it (T2)."""
        if self.acked.pop(site, None) is not None:
            self.evict()

    def settled(self) -> int:
        """Last epoch that every consumer holds."""
        return min(self.acked.values(), default=self.produced)

    def hold(self, stable: int | None) -> None:
        """From now on what follows this epoch is kept whoever holds it (B2); None: no longer."""
        if stable != self.stable:
            self.stable = stable
            self.evict()

    def released(self) -> int:
        """Last epoch that nobody asks for any more: every consumer holds it, and it is stable where that matters."""
        return self.settled() if self.stable is None else min(self.settled(), self.stable)

    def evict(self) -> None:
        """Let go of what every live consumer replica holds and is stable, and of nothing else (A1, B2)."""
        settled, kept = self.released(), self._kept
        while kept and kept[0].epoch <= settled:
            self.frame_bytes -= sum([pieces.bytes for pieces in kept.popleft().pieces])
        self._count()

    def _count(self) -> None:
        first = self._kept[0].epoch if self._kept else 0
        self._lacking = sum([held < first for held in self.acked.values()]) if self.settled() < first else 0

    def since(self, start: int) -> list[Kept]:
        """Everything kept from epoch `start` on."""
        return [kept for kept in self._kept if kept.epoch >= start]

    def merge(self, other: Retention) -> None:
        """Take over what another cohort, which has produced as much, keeps: its partitions are with this one's from now on."""
        mine = {kept.epoch: kept for kept in self._kept}
        # What came before its floor this one has not made either: nobody asks for it here.
        # What it has let go everybody holds, also where from now on more would be kept than was then (M2).
        gone = self._kept[0].epoch - 1 if self._kept else self.produced
        settled, self.floor = max(self.released(), self.floor, gone), max(self.floor, other.floor)
        for theirs in other._kept:
            if theirs.epoch > settled:
                kept = mine[theirs.epoch]
                kept.pieces.extend(theirs.pieces)
                kept.watermark = min(kept.watermark, theirs.watermark)
                kept.stamp, kept.opened = max(kept.stamp, theirs.stamp), min(kept.opened, theirs.opened)
                kept.kept, kept.newest = min(kept.kept, theirs.kept), max(kept.newest, theirs.newest)
                kept.missed = max(kept.missed, theirs.missed)
                self.frame_bytes += sum([pieces.bytes for pieces in theirs.pieces])
