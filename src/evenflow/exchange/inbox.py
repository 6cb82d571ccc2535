"""The consumer's half of the exchange: frames wait here until their epoch is complete, then leave in address order.

One `Inbox` per input stream of a cohort of partitions. It answers one question: do I have every frame of epoch e yet (E2)? Each producer
partition is fed by one live replica, the **feeder**, chosen and changed by this side alone (A3). A change of feeders forgets what is
incomplete and asks for it again, from the first incomplete epoch on: what a former feeder still sends is dropped by its feed number (A4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from evenflow.exchange.section import Bundle, Mark
from evenflow.plan.layout import FROM_COLUMN
from evenflow.stream.epoch import ALL_KEPT, NO_WATERMARK
from evenflow.stream.ids import FeedNumber, SiteId


@dataclass(slots=True)
class Feed:
    """What one site feeds. producers: its producer partitions. marked: last epoch of which all of it is here."""

    number: FeedNumber
    site: SiteId
    producers: tuple[int, ...]
    marked: int


@dataclass(slots=True)
class Gathered:
    """One epoch so far. producers: how many producer partitions have marked it; and what their marks say together."""

    producers: int = 0
    watermark: int = 2**63 - 1
    stamp: int = 0
    opened: int = 2**63 - 1
    kept: int = ALL_KEPT
    newest: int = NO_WATERMARK
    missed: int = NO_WATERMARK
    frames: dict[tuple[int, int], list[Bundle]] = field(default_factory=dict)

    def add(self, producers: int, mark: Mark) -> None:
        """A feeder of so many producer partitions has marked it. Comparisons: `min` and `max` would be five calls more for each mark."""
        self.producers += producers
        _, _, _, _, watermark, stamp, opened, kept, newest, missed = mark
        if watermark < self.watermark:
            self.watermark = watermark
        if stamp > self.stamp:
            self.stamp = stamp
        if opened < self.opened:
            self.opened = opened
        if kept < self.kept:
            self.kept = kept
        if newest > self.newest:
            self.newest = newest
        if missed > self.missed:
            self.missed = missed


@dataclass(frozen=True, slots=True)
class EpochInput:
    """One complete epoch of one stream. batches: non-empty bundles in order of their sender's index."""

    batches: tuple[pa.RecordBatch, ...]
    watermark: int
    stamp: int
    opened: int
    kept: int = ALL_KEPT
    newest: int = NO_WATERMARK
    missed: int = NO_WATERMARK


class Inbox:
    """Frames of one stream for one cohort of partitions of its consumer.

    producers: number of producer partitions. through: last complete epoch. frame_bytes: memory held by waiting frames.
    duplicates: frames and marks that came again or from a former feeder. voids: producer partitions whose frames up to an epoch nobody
    has (B4): they are read as empty, and event time stands still meanwhile.
    """

    __slots__ = ("_epochs", "_stamp", "duplicates", "feeds", "frame_bytes", "producers", "stream", "through", "voids")

    def __init__(self, stream: int, producers: int, through: int = 0) -> None:
        self.stream, self.producers, self.through = stream, producers, through
        self.frame_bytes = 0
        self.duplicates = 0
        self.feeds: dict[FeedNumber, Feed] = {}
        self._epochs: dict[int, Gathered] = {}
        self.voids: dict[int, int] = {}
        self._stamp = 0

    def void(self, partitions: Iterable[int], until: int) -> None:
        """Nobody has the frames of these producer partitions behind the last complete epoch, up to `until`. Assign anew."""
        self.voids = {partition: last for partition, last in self.voids.items() if last > self.through}
        if until > self.through:
            self.voids |= dict.fromkeys(partitions, until)

    def voided(self, epoch: int) -> int:
        """How many producer partitions' frames of the epoch are read as empty."""
        return sum([last >= epoch for last in self.voids.values()]) if self.voids else 0

    def _complete(self) -> bool:
        """Whether all of the epoch after the last complete one is here."""
        gathered = self._epochs.get(self.through + 1)
        return (0 if gathered is None else gathered.producers) + self.voided(self.through + 1) == self.producers

    def advance(self) -> bool:
        """Look what is complete now that frames are missed no more. True if any epoch is."""
        before = self.through
        while self._complete():
            self.through += 1
        return self.through > before

    def assign(self, feeders: Mapping[SiteId, tuple[int, ...]], numbers: Iterable[FeedNumber]) -> list[Feed]:
        """Be fed by these sites (site: producer partitions) from now on, from the first incomplete epoch. numbers: for the new feeds."""
        self._forget_after(self.through)
        made = [
            Feed(number, site, producers, self.through) for (site, producers), number in zip(sorted(feeders.items()), numbers, strict=False)
        ]
        self.feeds = {feed.number: feed for feed in made}
        return made

    def put(self, bundle: Bundle) -> None:
        """Keep a bundle unless its feed is over or has marked its epoch (A4)."""
        feed = self.feeds.get(bundle.feed)
        if feed is None or bundle.epoch <= feed.marked:
            self.duplicates += 1
            return
        gathered = self._epochs.get(bundle.epoch)
        if gathered is None:
            gathered = self._epochs[bundle.epoch] = Gathered()
        key = feed.site, feed.number
        if key in gathered.frames:
            gathered.frames[key].append(bundle)
        else:
            gathered.frames[key] = [bundle]
        self.frame_bytes += bundle.size

    def mark(self, mark: Mark) -> bool:
        """Note that a feeder has sent all of an epoch. True if the oldest incomplete epoch is complete now."""
        feed = self.feeds.get(mark.feed)
        if feed is None or mark.epoch != feed.marked + 1:
            self.duplicates += 1
            return False
        feed.marked = mark.epoch
        gathered = self._epochs.get(mark.epoch)
        if gathered is None:
            gathered = self._epochs[mark.epoch] = Gathered()
        gathered.add(len(feed.producers), mark)
        if self.voids:
            return self.advance()
        if mark.epoch != self.through + 1 or gathered.producers < self.producers:
            return False
        self.through = mark.epoch
        while (following := self._epochs.get(self.through + 1)) is not None and following.producers == self.producers:
            self.through += 1
        return True

    def portion(self, mark: Mark) -> tuple[tuple[int, ...], tuple[pa.RecordBatch, ...]] | None:
        """What a feed has sent of the epoch that it has just marked, which stays here: its producer partitions, and their rows. None: the
        mark was not the feed's next one, or came again."""
        feed, gathered = self.feeds.get(mark.feed), self._epochs.get(mark.epoch)
        if feed is None or gathered is None or feed.marked != mark.epoch:
            return None
        bundles = gathered.frames.get((feed.site, feed.number), ())
        return feed.producers, tuple([bundle.rows for bundle in bundles])

    def pop(self, epoch: int) -> EpochInput:
        """Take a complete epoch out."""
        found = self.peek(epoch)
        gathered = self._epochs.pop(epoch, None)
        if gathered is None:
            return found
        if self.voided(epoch) and epoch >= max(self.voids.values()):
            self.voids = {}
        self._stamp = gathered.stamp
        for bundles in gathered.frames.values():
            self._forget(bundles)
        return found

    def peek(self, epoch: int) -> EpochInput:
        """A complete epoch, which stays here."""
        gathered = self._epochs.get(epoch)
        if gathered is None:  # Nobody has anything of it.
            assert self.voided(epoch) == self.producers, f"epoch {epoch} of stream {self.stream} is not here"
            return EpochInput((), NO_WATERMARK, self._stamp, self._stamp)
        frames = gathered.frames
        order = sorted(frames) if len(frames) > 1 else frames
        batches = tuple([bundle.rows for key in order for bundle in frames[key]])
        watermark = NO_WATERMARK if self.voided(epoch) else gathered.watermark
        of = gathered
        return EpochInput(batches, watermark, of.stamp, of.opened, of.kept, of.newest, of.missed)

    def merge(self, other: Inbox) -> None:
        """Take over what waits for another cohort that has popped as much. Both forget what is incomplete in one of them; assign anew."""
        through = min(self.through, other.through)
        self._forget_after(through)
        other._forget_after(through)
        self.through = through
        for epoch, gathered in other._epochs.items():
            self._epochs[epoch].frames.update(gathered.frames)
        self.frame_bytes += other.frame_bytes
        self.duplicates += other.duplicates
        self.feeds = {}

    def sift(self, own: Callable[[int, pa.RecordBatch], pa.RecordBatch]) -> None:
        """Partitions have left: of what waits for an epoch, keep only the rows that `own` does."""
        for gathered in self._epochs.values():
            for key, bundles in gathered.frames.items():
                kept = []
                for bundle in bundles:
                    rows = own(bundle.epoch, bundle.rows)
                    size = bundle.size * rows.num_rows // max(1, bundle.rows.num_rows)
                    self.frame_bytes += size - bundle.size
                    if rows.num_rows:
                        kept.append(bundle._replace(rows=rows, size=size))
                gathered.frames[key] = kept

    def _forget_after(self, through: int) -> None:
        for epoch in [epoch for epoch in self._epochs if epoch > through]:
            for bundles in self._epochs.pop(epoch).frames.values():
                self._forget(bundles)

    def _forget(self, bundles: Iterable[Bundle]) -> None:
        for bundle in bundles:
            self.frame_bytes -= bundle.size


def merge(batches: tuple[pa.RecordBatch, ...]) -> pa.RecordBatch:
    """One batch of all bundles of a stream and epoch. Where `_from` is carried, rows leave in order of producer partition (E2).

    The sort is stable and skipped where the rows are in order already; rows of one producer partition never change places.
    """
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    at = whole.schema.get_field_index(FROM_COLUMN)
    if at < 0:
        return whole
    producer = whole.column(at).to_numpy(zero_copy_only=True)
    if bool((producer[1:] >= producer[:-1]).all()):
        return whole
    return whole.take(pa.array(np.argsort(producer.astype(np.uint16), kind="stable")))
