"""Sources at a site: asked when there is room, in order, to the end; those that wait do so beside the loop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import SourceError
from evenflow.site.events import RowsArrived, SourceEnded
from evenflow.sources.source import Reader
from evenflow.statistics.histogram import Histogram, percentile_ms
from evenflow.world.spark.executor.feeds import BesideFeed, ReaderFeed
from evenflow.world.spark.net.reactor import READABLE, Reactor


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.int64())})


class Script(Reader):
    """Returns what it is given, one item a read; None means nothing now, an exception is raised. Ends with its last item."""

    def __init__(self, *items: Any, wake_us: int | None = None, fd: int | None = None, ends: bool = True) -> None:
        self._items, self.wake_us, self._fd, self._ends = list(items), wake_us, fd, ends
        self.asked: list[int] = []
        self.closed = False

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        self.asked.append(max_rows)
        item = self._items.pop(0) if self._items else None
        self.ended = self._ends and not self._items
        if isinstance(item, BaseException):
            raise item
        return item

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    made.close()


def told(events: list[Any]) -> list[Any]:
    return [e.batch.column(0).to_pylist() if isinstance(e, RowsArrived) else type(e) for e in events]


def test_rows_then_the_end(reactor: Reactor) -> None:
    reader = Script(batch(1, 2), batch(3))
    feed = ReaderFeed(0, 0, reader, reactor)
    assert told(feed.poll(0, 10)) == [[1, 2]]
    assert told(feed.poll(0, 10)) == [[3], SourceEnded]
    assert feed.over and reader.closed
    assert reader.asked == [10, 10]


def test_an_idle_reader_is_asked_less_and_less_often(reactor: Reactor) -> None:
    feed = ReaderFeed(0, 0, Script(ends=False), reactor)
    waits = []
    for _ in range(7):
        assert feed.poll(1_000_000, 10) == []
        waits.append(feed.due_us - 1_000_000)
    assert waits == [1000, 2000, 4000, 8000, 16000, 16000, 16000]


def test_a_reader_says_when_to_come_back(reactor: Reactor) -> None:
    feed = ReaderFeed(0, 0, Script(None, batch(1), wake_us=5_000_000, ends=False), reactor)
    feed.poll(1_000_000, 10)
    assert feed.due_us == 5_000_000
    feed.poll(5_000_000, 10)
    assert feed.due_us == 5_000_000


def test_a_readable_descriptor_brings_the_reader_back(reactor: Reactor) -> None:
    read_end, write_end = os.pipe()
    feed = ReaderFeed(0, 0, Script(fd=read_end, ends=False), reactor)
    feed.poll(1_000_000, 10)
    assert feed.due_us == 2_000_000
    os.write(write_end, b"x")
    reactor.poll(5.0)
    assert feed.due_us == 0
    reactor.poll(0.0)  # Told once: it stays readable, and the loop must not spin on it.
    feed.close()
    os.close(read_end)
    os.close(write_end)


def test_a_reader_that_has_lost_its_descriptor_leaves_it_to_who_has_the_number_now(reactor: Reactor) -> None:
    """A reader connects again, and meanwhile the system has given its old number to a connection of the site's: that one stays heard."""
    first, first_end = os.pipe()
    reader, heard = Script(fd=first, ends=False), list[int]()
    feed = ReaderFeed(0, 0, reader, reactor)
    feed.poll(1_000_000, 10)
    os.close(first)  # As the reader does when its peer has gone.
    reader._fd = None
    feed.poll(1_000_000, 10)
    other, other_end = os.pipe()
    os.dup2(other, first)
    reactor.register(first, READABLE, heard.append)
    second, second_end = os.pipe()
    reader._fd = second
    feed.poll(1_000_000, 10)
    os.write(other_end, b"x")
    reactor.poll(5.0)
    assert heard == [READABLE]
    os.write(second_end, b"x")
    reactor.poll(5.0)
    assert feed.due_us == 0, "and the reader is, at its new one"
    feed.close()
    for descriptor in {first, first_end, other, other_end, second, second_end}:  # The system may have given one number twice.
        os.close(descriptor)


def collected(feed: BesideFeed, reactor: Reactor, room: int) -> list[Any]:
    events: list[Any] = []
    deadline = time.monotonic() + 20
    while not feed.over:
        assert time.monotonic() < deadline
        reactor.poll(0.05)
        events += feed.poll(0, room)
    return told(events)


def test_a_reader_that_may_wait_is_read_beside_the_loop(reactor: Reactor) -> None:
    reader = Script(batch(1, 2, 3), None, batch(4), batch(5))
    feed = BesideFeed(0, 0, reader, reactor)
    assert collected(feed, reactor, room=2) == [[1, 2], [3], [4], [5], SourceEnded]


def test_what_a_reader_beside_the_loop_raises_comes_out(reactor: Reactor) -> None:
    feed = BesideFeed(0, 0, Script(batch(1), SourceError("torn")), reactor)
    with pytest.raises(SourceError, match="torn"):
        collected(feed, reactor, room=10)


def test_a_reader_that_wants_to_exit_ends_its_dataflow_only(reactor: Reactor) -> None:
    with pytest.raises(SourceError, match="SystemExit: enough"):
        ReaderFeed(0, 0, Script(SystemExit("enough")), reactor).poll(0, 10)
    with pytest.raises(SourceError, match="SystemExit: enough"):
        collected(BesideFeed(0, 0, Script(SystemExit("enough")), reactor), reactor, room=10)


def test_a_closed_feed_lets_its_thread_go(reactor: Reactor) -> None:
    reader = Script(*(batch(i) for i in range(50)))
    feed = BesideFeed(0, 0, reader, reactor)
    feed.close()
    feed._thread.join(10)
    assert not feed._thread.is_alive() and reader.closed


def test_percentiles_are_within_five_percent() -> None:
    histogram = Histogram()
    for latency_us in range(1, 100_001):
        histogram.add(latency_us)
    counts = histogram.take()
    assert histogram.counts == {}
    for q in (0.5, 0.99):
        found = percentile_ms([counts], q)
        assert found is not None and abs(found - q * 100) / (q * 100) < 0.05
    assert percentile_ms([{}], 0.5) is None


def test_a_punctual_reader_is_asked_a_linger_after_its_next_row_is_there(reactor: Reactor) -> None:
    """Nobody needs the first row of an epoch before the epoch closes, but how long it has waited is known."""
    reader = Script(None, batch(1, 2), batch(3), wake_us=5_000_000, ends=False)
    reader.punctual = True
    feed = ReaderFeed(0, 0, reader, reactor, linger_us=5_000)
    assert feed.poll(1_000_000, 10) == []
    assert (feed.due_us, feed.resting) == (5_005_000, True)
    (arrived,) = feed.poll(feed.due_us, 10)
    assert isinstance(arrived, RowsArrived) and arrived.since_us == 5_000_000
    reader.wake_us = 6_000_000
    (early,) = feed.poll(5_006_000, 10)  # A peer's epoch makes this one close before: what was expected at 5.0 s has come.
    assert isinstance(early, RowsArrived) and early.since_us == 5_000_000
    assert feed.due_us == 6_005_000


def test_a_reader_that_is_not_punctual_is_asked_when_it_says(reactor: Reactor) -> None:
    feed = ReaderFeed(0, 0, Script(None, batch(1), wake_us=5_000_000, ends=False), reactor, linger_us=5_000)
    feed.poll(1_000_000, 10)
    assert (feed.due_us, feed.resting) == (5_000_000, False)
    (arrived,) = feed.poll(5_000_100, 10)
    assert isinstance(arrived, RowsArrived) and arrived.since_us is None
