"""A frame is kept until its consumer has acknowledged it, and can be sent again from any epoch on (A1, A3)."""

from __future__ import annotations

import pyarrow as pa

from evenflow.exchange.retention import Retention
from evenflow.exchange.section import Bundle, Mark


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"x": list(range(count))})


def kept_through(epochs: int) -> Retention:
    retention = Retention(3, [1, 2])
    for epoch in range(1, epochs + 1):
        retention.keep([(1, Bundle(3, epoch, 0, rows(epoch), 8 * epoch))], Mark(3, epoch, 0, 0, 0, 0))
    return retention


def test_what_is_not_acknowledged_is_sent_again_and_nothing_else() -> None:
    retention = kept_through(4)
    retention.acked(1, 2)
    section = retention.replay(1, 3)
    assert [b.epoch for b in section.bundles] == [3, 4]
    assert [m.epoch for m in section.marks] == [3, 4]


def test_marks_stay_until_the_slowest_consumer_has_them() -> None:
    retention = kept_through(4)
    retention.acked(1, 4)
    assert [m.epoch for m in retention.replay(2, 1).marks] == [1, 2, 3, 4]
    assert retention.replay(1, 1).bundles == []


def test_memory_is_given_back_by_acknowledgement_only() -> None:
    retention = kept_through(3)
    assert retention.frame_bytes == 8 * (1 + 2 + 3)
    retention.acked(1, 1)
    assert retention.frame_bytes == 8 * (2 + 3)
    retention.acked(1, 1)
    retention.acked(1, 3)
    assert retention.frame_bytes == 0
