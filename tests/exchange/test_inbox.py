"""Frames wait until their epoch is complete; duplicates, gaps and former feeders change nothing (E2, A3, A4)."""

from __future__ import annotations

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from evenflow.exchange.inbox import EpochInput, Inbox, merge
from evenflow.exchange.section import Bundle, Mark

SCHEMA = pa.schema([("x", pa.int64()), pa.field("_from", pa.int32(), nullable=False)])


def batch(*rows: tuple[int, int]) -> pa.RecordBatch:
    return pa.record_batch({"x": [x for x, _ in rows], "_from": pa.array([f for _, f in rows], pa.int32())}, schema=SCHEMA)


def mark(feed: int, epoch: int, *, watermark: int = 0, stamp: int = 0, opened: int = 0) -> Mark:
    return Mark(feed, 0, epoch, 0, watermark, stamp, opened)


def bundle(feed: int, epoch: int, *rows: tuple[int, int]) -> Bundle:
    return Bundle(feed, 0, epoch, 0, batch(*rows), 12 * len(rows))


def fed_by(feeders: dict[int, tuple[int, ...]], first_number: int = 1, through: int = 0) -> Inbox:
    """An inbox with feeds numbered from `first_number` in order of their sites."""
    inbox = Inbox(0, sum(map(len, feeders.values())), through)
    inbox.assign(feeders, range(first_number, first_number + len(feeders)))
    return inbox


def values(taken: EpochInput) -> list[int]:
    return [x for rows in taken.batches for x in rows.column(0).to_pylist()]


def test_an_epoch_is_complete_when_every_producer_has_been_marked() -> None:
    inbox = fed_by({4: (0, 2), 5: (1,)})
    inbox.put(bundle(1, 1, (7, 0)))
    assert not inbox.mark(mark(1, 1, watermark=50, stamp=9, opened=4))
    assert inbox.through == 0
    assert inbox.mark(mark(2, 1, watermark=30, stamp=11, opened=8))
    taken = inbox.pop(1)
    assert values(taken) == [7]
    assert (taken.watermark, taken.stamp, taken.opened) == (30, 11, 4)


def test_a_portion_is_what_a_feed_has_marked_once_and_stays_until_its_epoch_is_popped() -> None:
    """Goal: rows leave before their epoch is whole (O1), and a mark that comes again finds nothing, also when the epoch has gone."""
    inbox = fed_by({4: (0, 2), 5: (1,)})
    inbox.put(bundle(1, 1, (7, 0)))
    assert inbox.portion(mark(1, 1)) is None, "it is not marked"
    inbox.mark(mark(1, 1))
    found = inbox.portion(mark(1, 1))
    assert found is not None and found[0] == (0, 2) and [rows.column(0).to_pylist() for rows in found[1]] == [[7]]
    assert inbox.portion(mark(1, 2)) is None and inbox.portion(mark(9, 1)) is None
    inbox.mark(mark(2, 1))
    assert inbox.portion(mark(2, 1)) == ((1,), ())
    assert values(inbox.pop(1)) == [7]
    inbox.mark(mark(2, 1))
    assert inbox.portion(mark(2, 1)) is None


def test_marks_say_together_the_least_that_was_kept_and_the_newest_time() -> None:
    """Of three producers in any order: what each has kept of an epoch, and how far event time came there (D4)."""
    for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        inbox = fed_by({4: (0,), 5: (1,), 6: (2,)})
        said = {1: (900, 70, 40), 2: (500, 20, 10), 3: (700, 90, 15)}
        for feed in order:
            kept, newest, missed = said[feed]
            inbox.mark(mark(feed, 1)._replace(kept=kept, newest=newest, missed=missed))
        taken = inbox.pop(1)
        assert (taken.kept, taken.newest, taken.missed) == (500, 90, 40)


def test_batches_leave_in_order_of_their_sender_however_they_came() -> None:
    inbox = fed_by({4: (0,), 5: (1,)})
    inbox.put(bundle(2, 1, (50, 1)))
    inbox.put(bundle(1, 1, (40, 0)))
    inbox.put(bundle(2, 1, (51, 1)))
    for feed in (2, 1):
        inbox.mark(mark(feed, 1))
    assert values(inbox.pop(1)) == [40, 50, 51]
    assert inbox.frame_bytes == 0


def test_what_comes_after_its_mark_is_dropped() -> None:
    inbox = fed_by({4: (0,)})
    inbox.put(bundle(1, 1, (7, 0)))
    inbox.mark(mark(1, 1))
    inbox.put(bundle(1, 1, (7, 0)))
    assert not inbox.mark(mark(1, 1))
    assert values(inbox.pop(1)) == [7]
    assert (inbox.duplicates, inbox.frame_bytes) == (2, 0)


def test_a_mark_beyond_the_next_one_is_not_believed() -> None:
    inbox = fed_by({4: (0,)})
    assert not inbox.mark(mark(1, 2))
    assert inbox.feeds[1].marked == 0
    assert inbox.mark(mark(1, 1))
    assert inbox.through == 1


def test_one_mark_can_complete_several_epochs() -> None:
    inbox = fed_by({4: (0,), 5: (1,)})
    for epoch in (1, 2, 3):
        inbox.mark(mark(1, epoch))
    inbox.mark(mark(2, 1))
    assert inbox.through == 1
    inbox.mark(mark(2, 2))
    assert inbox.through == 2


def test_new_feeders_start_after_the_last_complete_epoch_and_nothing_of_the_old_ones_counts() -> None:
    """0013: what is incomplete is forgotten as a whole and asked for again, so that no two feeds ever overlap."""
    inbox = fed_by({4: (0,), 5: (1,)})
    for feed, x in ((1, 10), (2, 20)):
        inbox.put(bundle(feed, 1, (x, feed - 1)))
        inbox.mark(mark(feed, 1))
    inbox.put(bundle(1, 2, (11, 0)))
    inbox.mark(mark(1, 2))

    [feed] = inbox.assign({6: (0, 1)}, [3])
    assert (feed.number, feed.site, feed.marked) == (3, 6, 1)
    inbox.put(bundle(1, 2, (11, 0)))
    assert not inbox.mark(mark(2, 2))
    assert values(inbox.pop(1)) == [10, 20]
    inbox.put(bundle(3, 2, (11, 0), (21, 1)))
    assert inbox.mark(mark(3, 2))
    assert values(inbox.pop(2)) == [11, 21]
    assert inbox.frame_bytes == 0


def test_two_inboxes_become_one_with_what_both_have_complete() -> None:
    mine, theirs = fed_by({4: (0,)}), fed_by({4: (0,)}, first_number=8)
    for epoch in (1, 2):
        mine.put(bundle(1, epoch, (epoch, 0)))
        mine.mark(mark(1, epoch))
    theirs.put(bundle(8, 1, (100, 0)))
    theirs.mark(mark(8, 1))
    mine.merge(theirs)
    assert mine.through == 1
    assert sorted(values(mine.pop(1))) == [1, 100]
    assert mine.frame_bytes == 0
    mine.assign({4: (0,)}, [9])
    assert mine.mark(mark(9, 2))
    assert values(mine.pop(2)) == []


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 6))
def test_feeders_may_change_at_any_time_and_every_row_counts_once(seed: int, producers: int, epochs: int) -> None:
    """Each feeder sends in its own order, is broken off anywhere, is replaced, and goes on sending: the input stays the same."""
    random = Random(seed)
    inbox, number = Inbox(0, producers), 0
    feeds: dict[int, list[Bundle | Mark]] = {}

    def assign() -> None:
        nonlocal number
        shares: dict[int, list[int]] = {}
        for producer in range(producers):
            shares.setdefault(random.randrange(3), []).append(producer)
        made = inbox.assign({site: tuple(own) for site, own in shares.items()}, range(number + 1, number + 4))
        number += 3
        for feed in made:
            said: list[Bundle | Mark] = []
            for epoch in range(inbox.through + 1, epochs + 1):
                said += [bundle(feed.number, epoch, (100 * epoch + p, p)) for p in feed.producers]
                said.append(mark(feed.number, epoch))
            feeds[feed.number] = said

    assign()
    got = []
    while inbox.through < epochs or len(got) < epochs:
        if number < 18 and random.random() < 0.1:
            assign()
        told = random.choice([n for n, said in feeds.items() if said] or [0])
        if told:
            word = feeds[told].pop(0)
            inbox.mark(word) if isinstance(word, Mark) else inbox.put(word)
        if len(got) < inbox.through and random.random() < 0.5:
            got.append(sorted(values(inbox.pop(len(got) + 1))))
    assert got == [[100 * epoch + p for p in range(producers)] for epoch in range(1, epochs + 1)]
    assert inbox.frame_bytes == 0


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=20), min_size=1, max_size=4))
def test_merge_sorts_by_producer_and_keeps_the_order_of_each(parts: list[list[tuple[int, int]]]) -> None:
    merged = merge(tuple(batch(*rows) for rows in parts)).to_pylist()
    rows = [(x, f) for part in parts for x, f in part]
    assert [(r["x"], r["_from"]) for r in merged] == sorted(rows, key=lambda row: row[1])
