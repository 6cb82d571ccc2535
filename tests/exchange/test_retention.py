"""A frame is kept until its consumers have acknowledged it, and any consumer can be sent its part of it again (A1, A3)."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.exchange.retention import Asked, Kept, Retention
from evenflow.exchange.routing import Pieces, Router, Split, owners
from evenflow.exchange.section import Resume
from evenflow.plan.layout import FROM_COLUMN, Arc, Keyed, Layout, Port, Segment
from evenflow.plan.plan import Plan
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("k", pa.int64())])
PRODUCERS, CONSUMERS = 3, 6


def layout_of(*, sensitive: bool) -> Layout:
    segments = (
        Segment(0, "in", "ingress", PRODUCERS, (), (0,), (), False, "src", None, SCHEMA),
        Segment(1, "out", "egress", CONSUMERS, (0,), (), (), sensitive, None, None, SCHEMA),
    )
    return Layout("t", segments, (Arc(0, 0, 1, Port(-1), SCHEMA, Keyed(("k",))),), {"src": None}, {})


PLAN = Plan(0, 1, (((0,),) * PRODUCERS, ((0, 2), (0, 2), (1, 2), (1, 2), (0, 1), (0, 1))))


def pieces_of(rows: list[tuple[int, int]], *, sensitive: bool = True, producers: tuple[int, ...] = (0, 1, 2)) -> Pieces:
    """rows: (key, producer partition)."""
    layout = layout_of(sensitive=sensitive)
    batch = pa.record_batch([[k for k, _ in rows]], schema=SCHEMA)
    given_rows = Rows(batch, np.array([p for _, p in rows], np.int32))
    return Router.of(layout.arcs[0], layout).split(given_rows, Split.of(layout.arcs[0], layout, PLAN), producers, 1)


def asked(producers: Collection[int], consumers: Collection[int]) -> Asked:
    return Asked(9, Resume(0, 0, 1, 1, tuple(sorted(producers)), tuple(sorted(consumers))), 1)


def owner_of(key: int) -> int:
    """Consumer partition of a key."""
    pieces = pieces_of([(key, 0)])
    assert pieces.rows is not None
    return int(owners(pieces.rows, pieces.split.arc, pieces.split.key_groups, CONSUMERS)[0][0])


def keys(batches: list[pa.RecordBatch]) -> list[int]:
    return [k for batch in batches for k in batch.column(0).to_pylist()]


@pytest.mark.parametrize("sensitive", [True, False])
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(0, PRODUCERS - 1)), max_size=30),
    producers=st.sets(st.integers(0, PRODUCERS - 1), min_size=1),
    consumers=st.sets(st.integers(0, CONSUMERS - 1), min_size=1),
)
def test_a_consumer_gets_exactly_the_rows_that_it_asked_for(
    sensitive: bool, rows: list[tuple[int, int]], producers: set[int], consumers: set[int]
) -> None:
    got = list(asked(producers, consumers).rows_of(pieces_of(rows, sensitive=sensitive)))
    wanted = [(k, p) for k, p in rows if p in producers and owner_of(k) in consumers]
    assert sorted(keys(got)) == sorted(k for k, _ in wanted)
    if sensitive:
        sent = [(k, p) for b in got for k, p in zip(b.column(0).to_pylist(), b.column(b.schema.get_field_index(FROM_COLUMN)).to_pylist())]
        for consumer in range(CONSUMERS):
            for producer in producers:
                mine = [k for k, p in sent if p == producer and owner_of(k) == consumer]
                assert mine == [k for k, p in wanted if p == producer and owner_of(k) == consumer], "order within a producer is kept"


def test_two_halves_of_an_epoch_are_each_row_once() -> None:
    pieces = pieces_of([(k, k % 3) for k in range(60)])
    parts = [asked({0, 1, 2}, {0, 1, 2}), asked({0, 1}, {3, 4, 5}), asked({2}, {3, 4, 5})]
    assert sorted(k for part in parts for k in keys(list(part.rows_of(pieces)))) == list(range(60))


def kept(epoch: int, count: int = 10, producers: tuple[int, ...] = (0, 1, 2), **said: int) -> Kept:
    pieces = pieces_of([(k, producers[k % len(producers)]) for k in range(count)], producers=producers)
    watermark, stamp, opened, lost = (said.get(name, 0) for name in ("watermark", "stamp", "opened", "lost"))
    return Kept(epoch, 0, watermark, stamp, opened, [pieces], 100 - lost, 10 * lost, lost)


def kept_through(epochs: int) -> Retention:
    retention = Retention(3, [1, 2])
    for epoch in range(1, epochs + 1):
        retention.keep(kept(epoch))
    return retention


def epochs_of(retention: Retention, start: int = 0) -> list[int]:
    return [epoch.epoch for epoch in retention.since(start)]


def test_what_one_consumer_has_not_acknowledged_is_kept() -> None:
    retention = kept_through(4)
    retention.hear(1, 4)
    assert epochs_of(retention) == [1, 2, 3, 4]
    retention.hear(2, 2)
    assert epochs_of(retention) == [3, 4]
    assert epochs_of(retention, 4) == [4]


def test_memory_is_given_back_by_acknowledgement_only() -> None:
    retention, size = kept_through(3), kept(1).pieces[0].bytes
    assert size > 0 and retention.frame_bytes == 3 * size
    for epoch in (1, 3, 2):
        retention.hear(1, epoch)
    retention.hear(2, 1)
    assert retention.frame_bytes == 2 * size
    retention.hear(2, 1)
    retention.hear(2, 3)
    assert retention.frame_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_is_let_go_is_what_the_least_consumer_holds_whoever_comes_and_goes(seed: int) -> None:
    """Goal: counting who lacks the oldest frame lets go of the same as looking at everybody. Method: a plain list does that beside it."""
    random = Random(seed)
    retention, plain = Retention(0, [1, 2, 3]), list[int]()
    for _ in range(300):
        site = random.randrange(1, 6)
        match random.randrange(5):
            case 0 | 1:
                retention.keep(kept(retention.produced + 1))
                plain += [retention.produced] if retention.acked else []
            case 2 | 3:
                before = dict(retention.acked)
                retention.hear(site, random.randrange(max(0, retention.produced - 3), retention.produced + 3))
                if retention.acked != before:
                    plain = [epoch for epoch in plain if epoch > min(retention.acked.values())]
            case _ if site in retention.acked:
                retention.dismiss(site)
                plain = [epoch for epoch in plain if epoch > min(retention.acked.values(), default=retention.produced)]
            case _:
                retention.admit(site, retention.produced + random.randrange(1, 3))
        assert epochs_of(retention) == plain


def test_an_acknowledgement_of_a_stranger_frees_nothing() -> None:
    retention = kept_through(2)
    retention.hear(7, 2)
    assert epochs_of(retention) == [1, 2] and 7 not in retention.acked


def test_nothing_is_kept_for_the_dead() -> None:
    retention = kept_through(3)
    retention.hear(1, 2)
    retention.dismiss(2)
    assert epochs_of(retention) == [3]
    retention.dismiss(1)
    retention.keep(kept(4))
    assert (epochs_of(retention), retention.produced) == ([], 4)


def test_a_new_consumer_has_everything_kept_from_its_first_epoch_on() -> None:
    retention = kept_through(2)
    retention.admit(5, 4)
    for epoch in (3, 4, 5):
        retention.keep(kept(epoch))
    for site in (1, 2):
        retention.hear(site, 5)
    assert epochs_of(retention) == [4, 5]
    retention.admit(5, 9)
    assert retention.acked[5] == 3, "who is admitted again keeps what it has said"


def test_who_asks_again_holds_less_than_it_has_said() -> None:
    """B1: partitions that begin again at a site lack what its others hold; what was let go meanwhile was stable."""
    retention = kept_through(3)
    retention.hear(1, 3)
    retention.hear(2, 2)
    retention.ask_again(2, 1)
    assert (retention.acked[2], retention.settled(), epochs_of(retention)) == (0, 0, [3])
    retention.hear(2, 3)
    assert epochs_of(retention) == []
    retention.ask_again(2, 4)
    retention.ask_again(7, 1)
    assert (retention.acked[2], 7 in retention.acked) == (3, False)


def test_what_two_cohorts_keep_becomes_one_epoch_each() -> None:
    mine, theirs = Retention(0, [1]), Retention(0, [1])
    for epoch in (1, 2):
        mine.keep(kept(epoch, 4, (0,), watermark=50, stamp=7, opened=5, lost=4))
        theirs.keep(kept(epoch, 6, (1, 2), watermark=30, stamp=9, opened=3, lost=8))
    mine.hear(1, 1)
    mine.merge(theirs)
    [both] = mine.since(0)
    assert (both.epoch, both.watermark, both.stamp, both.opened) == (2, 30, 9, 3)
    assert (both.kept, both.newest, both.missed) == (92, 80, 8)
    assert both.mark(7, 0)[-3:] == (92, 80, 8)
    assert sorted(k for b in asked({0, 1, 2}, range(CONSUMERS)).bundles(both, 0) for k in b.rows.column(0).to_pylist()) == [
        *sorted([*range(4), *range(6)])
    ]
    assert mine.frame_bytes == sum(pieces.bytes for pieces in both.pieces)


def test_what_one_has_let_go_is_not_merged_where_more_would_be_kept_by_now() -> None:
    """Goal: two cohorts become one when their consumer has just got upstream backup. Method: consumers hold what the live one has made, so
    it keeps nothing; the copied one comes later, and nobody says so again."""
    live, copied = Retention(0, [1, 2], 50), Retention(0, [1, 2], 50)
    for epoch in range(51, 55):
        live.keep(Kept(epoch, 0, 1, 1, 1))
    for site in (1, 2):
        live.hear(site, 53)
        copied.hear(site, 53)
    for epoch in range(51, 55):
        copied.keep(Kept(epoch, 0, 1, 1, 1))
    for retention in (live, copied):
        retention.hold(40)
    live.merge(copied)
    assert [kept.epoch for kept in live.since(0)] == [54]
