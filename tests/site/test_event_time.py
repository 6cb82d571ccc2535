"""What an epoch says of event time, of the partitions of a source that are here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenflow.operator.watermark import Watermark
from evenflow.site.event_time import EventTime
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("ts", pa.timestamp("us"))])


class Here:
    """Two partitions, with a delay of 10."""

    def __init__(self) -> None:
        self.watermark, self.epoch = Watermark(SCHEMA, "ts", 10), 0
        self.time = EventTime.of([self.watermark])

    def after(self, *pairs: tuple[int, int], thinned: tuple[int, ...] = (), ended: frozenset[int] = frozenset()) -> Tick:
        """An epoch of (partition, event time) pairs as rows."""
        self.epoch += 1
        tick = Tick(self.epoch, self.epoch, NO_WATERMARK, NO_WATERMARK)
        times = pa.array([time for _, time in pairs], pa.int64()).view(pa.timestamp("us"))
        self.watermark.process(Rows(pa.RecordBatch.from_arrays([times], schema=SCHEMA), np.array([p for p, _ in pairs], np.int32)), tick)
        return self.time.after(tick, (0, 1), thinned, stamps={}, done_batches=(), ended=ended)


def test_what_was_left_out_is_no_newer_than_the_rows_of_its_own_partition_and_epoch() -> None:
    """D4. Method: a row of the other partition is far ahead, in an epoch of which nothing was left out and in one of which some was."""
    here = Here()
    assert here.after((0, 100), (1, 9_000)).missed == NO_WATERMARK
    tick = here.after((0, 130), (1, 200), (0, 120), thinned=(0,))
    assert (tick.newest, tick.missed, tick.watermark) == (9_000, 130, 120)
    assert here.after((0, 125), (1, 8_000), thinned=(0,)).missed == 125
    assert here.after((0, 140), (1, 300), thinned=(0, 1)).missed == 300
    assert here.after().missed == NO_WATERMARK


def test_event_time_is_the_least_of_those_that_have_not_ended() -> None:
    here = Here()
    assert here.after((0, 100), (1, 50)).watermark == 40
    assert here.after((0, 110), ended=frozenset({1})).watermark == 100
    assert here.after(ended=frozenset({0, 1})).watermark == END_OF_STREAM
    assert EventTime(()).after(Tick(1, 1, 0, 0), (0,), (), stamps={}, done_batches=(), ended=()).watermark == NO_WATERMARK
