"""The progress of event time of an ingress partition goes with the partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow.operator.watermark import Watermark
from evenflow.stream.epoch import END_OF_STREAM, IDLE, NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("ts", pa.timestamp("us"))])
NOW = Tick(1, 1, NO_WATERMARK, NO_WATERMARK)


def rows(*pairs: tuple[int, int | None]) -> Rows:
    """(partition, event time) pairs as rows."""
    times = pa.array([time for _, time in pairs], pa.int64()).view(pa.timestamp("us"))
    return Rows(pa.RecordBatch.from_arrays([times], schema=SCHEMA), np.array([p for p, _ in pairs], np.int32))


def moved(source: Watermark, target: Watermark, partition: int) -> None:
    snapshot = source.capture(partition)
    source.drop(partition)
    assert snapshot is not None
    target.install(partition, snapshot.to_bytes())


def test_a_watermark_does_not_go_back_when_its_partition_moves() -> None:
    first, second = Watermark(SCHEMA, "ts", 10), Watermark(SCHEMA, "ts", 10)
    first.process(rows((0, 100), (1, 50), (0, None)), NOW)
    second.process(rows((2, 70)), NOW)
    moved(first, second, 0)
    second.drop(2)
    second.process(rows((0, 60)), NOW)
    assert [second.current(p) for p in range(3)] == [90, NO_WATERMARK, NO_WATERMARK]
    assert [first.current(p) for p in range(3)] == [NO_WATERMARK, 40, NO_WATERMARK]
    second.drop(0)
    assert second.state_bytes() == 0


def test_what_waits_for_the_end_of_its_batch_waits_at_the_new_place_too() -> None:
    first, second = Watermark(SCHEMA, "ts", 0), Watermark(SCHEMA, "ts", 0)
    first.held.add(0)
    first.process(rows((0, 100)), NOW)
    first.batch_done(0)
    first.process(rows((0, 200)), NOW)
    moved(first, second, 0)
    assert first.held == set()
    second.process(rows((0, 150)), NOW)
    assert second.current(0) == 100
    second.batch_done(0)
    assert second.current(0) == 200


def test_a_held_partition_without_rows_moves_and_one_without_anything_has_no_state() -> None:
    first, second = Watermark(SCHEMA, "ts", 0), Watermark(SCHEMA, "ts", 0)
    assert first.capture(0) is None
    first.held.add(0)
    moved(first, second, 0)
    second.process(rows((0, 100)), NOW)
    assert second.current(0) == NO_WATERMARK
    assert first.capture(0) is None


def test_a_partition_is_not_installed_twice() -> None:
    watermark = Watermark(SCHEMA, "ts", 0)
    watermark.process(rows((0, 1)), NOW)
    snapshot = watermark.capture(0)
    assert snapshot is not None
    with pytest.raises(AssertionError, match="partition 0 is here already"):
        watermark.install(0, snapshot.to_bytes())


def test_a_partition_is_idle_after_its_silence_and_takes_it_along() -> None:
    first, second = (Watermark(SCHEMA, "ts", 10, idle_us=1_000) for _ in range(2))
    first.process(rows((0, 100)), NOW)
    assert [first.advance(0, 5_000), first.advance(0, 5_999), first.advance(0, 6_000)] == [90, 90, IDLE]
    first.process(rows((0, None)), NOW)
    assert first.advance(0, 6_500) == 90, "a row without a time is a row"
    moved(first, second, 0)
    assert [second.advance(0, 7_499), second.advance(0, 7_500)] == [90, IDLE]
    second.process(rows((0, 50)), NOW)
    assert second.advance(0, 9_000) == 90


def test_a_partition_that_never_had_rows_is_idle_from_its_first_epoch_on() -> None:
    watermark = Watermark(SCHEMA, "ts", 10, idle_us=1_000)
    assert [watermark.advance(3, 50), watermark.advance(3, 1_050)] == [NO_WATERMARK, IDLE]
    assert Watermark(SCHEMA, "ts", 10).advance(3, 10**12) == NO_WATERMARK


@pytest.mark.parametrize("time", [END_OF_STREAM, IDLE])
def test_no_time_of_a_row_is_the_end_or_idle(time: int) -> None:
    """`for ever` is the greatest timestamp in many systems."""
    watermark = Watermark(SCHEMA, "ts", 0, idle_us=1_000)
    watermark.process(rows((0, time)), NOW)
    assert watermark.current(0) == watermark.advance(0, 50) == IDLE - 1
    assert watermark.newest(0) == watermark.entered(0) == time
    assert watermark.advance(0, 1_050) == IDLE


def test_a_watermark_does_not_leave_the_range_of_times() -> None:
    watermark = Watermark(SCHEMA, "ts", 10)
    watermark.process(rows((0, NO_WATERMARK + 5), (1, NO_WATERMARK + 15)), NOW)
    assert [watermark.current(0), watermark.current(1)] == [NO_WATERMARK, NO_WATERMARK + 5]
