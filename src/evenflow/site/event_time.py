"""How far event time has come in partitions of a source that are here: from the watermarks that their segment keeps, after each epoch.

Partitions that have ended, and those that are idle, hold the others back no more. What goes along with an epoch for gates (D4) is of the
same rows: which is the newest that any partition has had, and which the newest of those partitions that have left some out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evenflow.operator.operator import Partitioned
from evenflow.operator.watermark import Watermark
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick


@dataclass(frozen=True, slots=True)
class EventTime:
    """watermarks: of the segment's steps; without any, event time is not known until all have ended."""

    watermarks: tuple[Watermark, ...]

    @staticmethod
    def of(operators: Iterable[Partitioned]) -> EventTime:
        return EventTime(tuple(each for each in operators if isinstance(each, Watermark)))

    def hold(self, partitions: Collection[int]) -> None:
        """They are fed by whole Spark batches in any order: event time moves at their ends only."""
        for each in self.watermarks:
            each.held.update(partitions)

    def absorb(self, other: EventTime) -> None:
        """Of the partitions of another cohort, those that are held."""
        for own, theirs in zip(self.watermarks, other.watermarks, strict=True):
            own.held |= theirs.held

    def after(
        self,
        tick: Tick,
        partitions: Sequence[int],
        thinned: Sequence[int],
        *,
        stamps: Mapping[int, int],
        done_batches: Sequence[int],
        ended: Collection[int],
    ) -> Tick:
        """The tick of an epoch that has been processed, with what it says of event time. partitions: that are here. thinned: of which rows
        were left out; the newest one of each has entered. stamps: of their records, where that is not the tick's. done_batches: whose batch
        is whole with it. ended: that have."""
        newest = max([each.newest(p) for each in self.watermarks for p in partitions], default=NO_WATERMARK)
        missed = max([each.entered(p) for each in self.watermarks for p in thinned], default=NO_WATERMARK)
        for each in self.watermarks:
            for partition in done_batches:
                each.batch_done(partition)
        live, watermark = [p for p in partitions if p not in ended], NO_WATERMARK
        if not live:
            watermark = END_OF_STREAM
        elif self.watermarks:
            watermark = min(each.advance(p, stamps.get(p, tick.stamp)) for each in self.watermarks for p in live)
        return Tick(tick.epoch, tick.stamp, tick.before, watermark, False, tick.kept, newest, missed)
