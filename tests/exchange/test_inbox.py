"""Frames wait until their epoch is complete; duplicates and gaps change nothing (E2, A3, A4)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from evenflow.exchange.inbox import Inbox, merge
from evenflow.exchange.section import Bundle, Mark

SCHEMA = pa.schema([("x", pa.int64()), pa.field("_from", pa.int32(), nullable=False)])


def batch(*rows: tuple[int, int]) -> pa.RecordBatch:
    return pa.record_batch({"x": [x for x, _ in rows], "_from": pa.array([f for _, f in rows], pa.int32())}, schema=SCHEMA)


def mark(epoch: int, *, watermark: int = 0, stamp: int = 0, opened: int = 0) -> Mark:
    return Mark(0, epoch, 0, watermark, stamp, opened)


def test_an_epoch_is_complete_when_every_producer_has_marked_it() -> None:
    inbox = Inbox(0, [0, 1])
    inbox.put(0, Bundle(0, 1, 0, batch((7, 0))))
    assert not inbox.mark(0, mark(1, watermark=50, stamp=9, opened=4))
    assert inbox.through == 0
    assert inbox.mark(1, mark(1, watermark=30, stamp=11, opened=8))
    taken = inbox.pop(1)
    assert [b.num_rows for b in taken.batches] == [1]
    assert (taken.watermark, taken.stamp, taken.opened) == (30, 11, 4)


def test_a_frame_that_arrives_twice_counts_once() -> None:
    inbox = Inbox(0, [0])
    for _ in range(2):
        inbox.put(0, Bundle(0, 1, 0, batch((7, 0))))
    inbox.mark(0, mark(1))
    inbox.put(0, Bundle(0, 1, 0, batch((7, 0))))
    assert not inbox.mark(0, mark(1))
    assert sum(b.num_rows for b in inbox.pop(1).batches) == 1
    assert inbox.duplicates == 3
    assert inbox.frame_bytes == 0


def test_a_mark_beyond_the_next_one_is_not_believed() -> None:
    inbox = Inbox(0, [0])
    assert not inbox.mark(0, mark(2))
    assert inbox.marked(0) == 0
    assert inbox.mark(0, mark(1))
    assert inbox.through == 1


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=20), min_size=1, max_size=4))
def test_merge_sorts_by_producer_and_keeps_the_order_of_each(parts: list[list[tuple[int, int]]]) -> None:
    merged = merge(tuple(batch(*rows) for rows in parts)).to_pylist()
    rows = [(x, f) for part in parts for x, f in part]
    assert [(r["x"], r["_from"]) for r in merged] == sorted(rows, key=lambda row: row[1])
