"""The auction's events: functions of seed and number, in Nexmark's proportions, with times that are shuffled as far as said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evenflow import sources
from evenflow.errors import QueryError
from evenflow.sources.nexmark_events import FIRST_AUCTION, FIRST_PERSON, GROUP, STREAMS, Clock, numbers_of, rows_of

from .reading import arrivals, read_all

EVENTS = 100_033
PINNED = {
    "person": [[1000, 1001, 1002], ["Luke Shultz", "Julie Abrams", "Peter White"], ["OR", "WA", "AZ"]],
    "auction": [[1000, 1001, 1002], [1007, 1000, 1000], [14, 10, 11]],
    "bid": [[1005, 1000, 1000], [1001, 1004, 1009], [428, 374851, 115879]],
}


def of(stream: Any, **more: Any) -> sources.NexmarkSource:
    return sources.nexmark(stream, **{"events": EVENTS, "seed": 3, **more})


@pytest.mark.parametrize("stream", STREAMS)
def test_partitions_have_the_rows_of_the_table_however_they_are_asked_for(stream: str) -> None:
    source = of(stream, disorder=100)
    table = source.table()
    assert table.schema.equals(source.schema)
    for size in (977, 1 << 16):
        parts = [read_all(source, p, 3, max_rows=size) for p in range(3)]
        for p, part in enumerate(parts):
            assert part.equals(table.take(np.arange(p, table.num_rows, 3)))


def test_of_fifty_events_there_are_one_person_three_auctions_and_46_bids() -> None:
    for events in (0, 1, 4, 5, 50, 51, 54, EVENTS):
        numbers = np.concatenate([numbers_of(stream, np.arange(rows_of(stream, events))) for stream in STREAMS])
        assert sorted(numbers.tolist()) == list(range(events))
    assert [rows_of(stream, GROUP) for stream in STREAMS] == [1, 3, 46]


def test_seeds_differ_and_the_first_rows_are_pinned() -> None:
    """Content may never change between versions or machines: results are compared by it."""
    columns = {"person": ["id", "name", "state"], "auction": ["id", "seller", "category"], "bid": ["auction", "bidder", "price"]}
    for stream, names in columns.items():
        first = of(stream, seed=7).table().slice(0, 3)
        assert [first.column(name).to_pylist() for name in names] == PINNED[stream]
        assert not of(stream, seed=8).table().slice(0, 3).equals(first)


def test_times_are_shuffled_within_the_delay_and_each_is_there_once() -> None:
    clock = Clock(0, 10_000, disorder=1000)
    times = clock.times(np.arange(20_000))
    assert sorted(times.tolist()) == (np.arange(20_000) * 100).tolist()
    behind = np.maximum.accumulate(times) - times
    assert 90_000 < behind.max() <= clock.delay_us <= 100_001
    assert Clock(0, 10_000).delay_us == 0
    # A rate that does not divide a second, and a number whose microseconds would not fit: no drift and no overflow.
    assert Clock(5, 3).times(np.array([0, 1, 3_000_000_000_000])).tolist() == [5, 333_338, 1_000_000_000_000_000_005]


def test_rows_refer_to_what_there_is_at_about_that_time() -> None:
    auctions, bids = of("auction").table(), of("bid").table()
    group = pa.array(np.arange(bids.num_rows) // 46)
    newest = pc.add(pc.multiply(group, 3), FIRST_AUCTION + 2)
    ahead = pc.subtract(bids["auction"], newest)
    assert pc.min_max(ahead).as_py()["max"] <= 10
    assert pc.min_max(ahead).as_py()["min"] >= -(100 + 99)
    assert pc.min(bids["auction"]).as_py() >= FIRST_AUCTION
    assert pc.min(bids["bidder"]).as_py() >= FIRST_PERSON
    lasts = pc.subtract(auctions["expires"], auctions["dateTime"]).cast(pa.int64())
    assert pc.min(lasts).as_py() > 0
    assert set(auctions["category"].unique().to_pylist()) == {10, 11, 12, 13, 14}
    assert 100 <= pc.min(bids["price"]).as_py() < 200
    assert 90_000_000 < pc.max(bids["price"]).as_py() <= 100_000_000


def test_half_of_the_bids_go_to_the_hot_auction_and_three_quarters_come_from_the_hot_bidder() -> None:
    bids = of("bid").table().slice(10_000)
    assert np.mean(bids["auction"].to_numpy() % 100 == 0) == pytest.approx(0.5 + 0.5 / 100, abs=0.01)
    assert np.mean(bids["bidder"].to_numpy() % 100 == 1) == pytest.approx(0.75 + 0.25 / 100, abs=0.01)
    assert np.mean(~pc.starts_with(bids["channel"], "channel").combine_chunks().to_numpy(zero_copy_only=False)) == pytest.approx(
        0.5, abs=0.01
    )


def test_each_stream_comes_at_its_share_of_the_rate() -> None:
    for stream, share in (("person", 1), ("auction", 3), ("bid", 46)):
        seen = arrivals(of(stream, rate=10_000, events=20_000).open(0, 1))
        assert sum(rows for _, rows in seen) == 20_000 * share // 50
        assert 1_900_000 < seen[-1][0] < 2_000_001
    assert of("bid", rate=500).clock.rate == 500
    assert of("bid", rate=500, event_rate=50).clock.rate == 50


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"stream": "bids"}, "the streams are person, auction, bid"),
        ({"rate": 49}, "50 to 1,000,000,000"),
        ({"events": -1}, "events is -1"),
        ({"event_rate": 0}, "event_rate is 0"),
        ({"partitions": 0}, "partitions is 0"),
        ({"disorder": 1906}, "no multiple of 953"),
        ({"disorder": 0}, "1 to 1,048,576"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        sources.nexmark(**given)


def test_an_endless_stream_has_no_table() -> None:
    assert sources.nexmark().streaming
    with pytest.raises(QueryError, match="events="):
        sources.nexmark().table()
