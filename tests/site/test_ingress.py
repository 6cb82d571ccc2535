"""What waits at an ingress partition enters epochs in order, and no epoch gets more rows or bytes than it may."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.availability.entries import Cut
from evenflow.plan.layout import Segment
from evenflow.site import ingress, ingress_queue
from evenflow.site.content import ContentIngress
from evenflow.site.ingress_queue import IngressQueue
from evenflow.site.log import PartitionLog
from evenflow.site.options import FlowOptions
from evenflow.site.replaying import Beginning, CannotReplay
from evenflow.stream.cut import Grid


def text(*lengths: int) -> pa.RecordBatch:
    return pa.record_batch({"s": ["x" * length for length in lengths]})


def emptied(queue: IngressQueue, limit: int) -> list[list[int]]:
    """The lengths of the texts in each epoch."""
    epochs = []
    while queue.rows:
        batch, _, _ = queue.take(limit, 0)
        assert batch is not None
        epochs.append([len(s) for s in batch.column(0).to_pylist()])
    return epochs


def test_wide_rows_make_short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_queue, "EPOCH_BYTES_MAX", 1000)
    queue = IngressQueue(0, None)
    queue.put(text(*[96] * 25), 0)  # a row takes 100 bytes, with its offset
    assert queue.full(100)
    assert queue.room(100) == 0
    assert [len(epoch) for epoch in emptied(queue, 100)] == [10, 10, 5]
    assert queue.bytes == 0 and queue.room(100) == 200


def test_a_row_that_is_wider_than_an_epoch_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_queue, "EPOCH_BYTES_MAX", 1000)
    queue = IngressQueue(0, None)
    queue.put(text(5000, 5000), 0)
    assert emptied(queue, 100) == [[5000], [5000]]


def test_room_is_for_rows_as_wide_as_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_queue, "EPOCH_BYTES_MAX", 8000)
    queue = IngressQueue(0, 100)
    queue.put(text(*[1] * 40), 0)
    assert not queue.full(1000)
    assert queue.room(1000) == 120
    assert queue.room(50) == 60


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), max_size=8), st.integers(1, 25))
def test_nothing_is_lost_or_reordered(batches: list[list[int]], limit: int) -> None:
    queue = IngressQueue(0, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ingress_queue, "EPOCH_BYTES_MAX", 300)
        for lengths in batches:
            queue.put(text(*lengths), 0)
        epochs = emptied(queue, limit)
    assert list(chain(*epochs)) == list(chain(*batches))
    assert all(1 <= len(epoch) <= limit for epoch in epochs)
    assert (queue.bytes, queue.rows, queue.since) == (0, 0, None)


def positions(*given: int) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(given, pa.int64())})


def test_rows_of_an_epoch_that_was_cut_before_are_counted_or_found_by_their_position() -> None:
    counted, placed = IngressQueue(0, 8), IngressQueue(0, 8, "at")
    for batch in (positions(3, 4), positions(9, 10, 40)):
        counted.put(batch, 0)
        placed.put(batch, 0)
    assert [counted.rows_before(taken, 100) for taken in (100, 103, 105, 106)] == [0, 3, 5, None]
    assert [placed.rows_before(taken, 2) for taken in (2, 5, 10, 41, 42)] == [0, 2, 3, 5, None]
    with pytest.raises(LookupError, match="the row before 21 is not there any more: the next one is at 40"):
        placed.rows_before(21, 2)


def test_what_is_cut_again_is_taken_whatever_an_epoch_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_queue, "EPOCH_BYTES_MAX", 10)
    queue = IngressQueue(0, 8)
    for batch in (positions(3, 4), positions(9, 10, 40)):
        queue.put(batch, 0)
    first, second, third = queue.take_rows(3, 0), queue.take_rows(0, 0), queue.take_rows(2, 0)
    assert first is not None and first.column(0).to_pylist() == [3, 4, 9] and second is None
    assert third is not None and third.column(0).to_pylist() == [10, 40]
    assert (queue.rows, queue.bytes, queue.since) == (0, 0, None)


def test_there_is_room_for_a_cut_that_is_greater_than_an_epoch_may_be() -> None:
    cut = Cut(1, 7, 7, 90, False, False)
    made = ingress.Ingress(FlowOptions(epoch_rows=10), Beginning(cuts={(0, 0): (cut,)}))
    segment = Segment(0, "in", "ingress", 1, (), (), (), source="in", schema=positions(1).schema)
    log = PartitionLog(0, 0)
    assert made.lead(segment, log) == []
    while made.queues[0, 0].rows < 90:
        room = made.room((0, 0))
        assert room > 0 and not made.may_close(10, 0, 10**9), "time and demand mean nothing to it"
        made.queues[0, 0].put(positions(*range(min(room, 7))), 0)
        made.demand(5)
    assert made.room((0, 0)) == 0 and not made.may_close(0, 0, 0), "room means something"
    assert made.may_close(1, 0, 0)
    [record] = made.close({(0, 0): log}, 3)
    assert Cut.of(record) == cut._replace(rows=90) and record.rows is not None and record.rows.num_rows == 90


@pytest.mark.parametrize(("here", "said"), [((3, 5, 8), None), ((3, 8), "has 2 rows there, and gave 3 then"), ((1, 3, 5, 8), "has 4 rows")])
def test_a_cut_whose_rows_are_fewer_or_more_is_not_made_again(here: tuple[int, ...], said: str | None) -> None:
    """The position behind them is the same: they were deleted or compacted, or others came in between."""
    cut = Cut(1, 7, 7, 9, False, False, rows=3)
    made = ingress.Ingress(FlowOptions(epoch_rows=10), Beginning(cuts={(0, 0): (cut,)}))
    made.lead(Segment(0, "in", "ingress", 1, (), (), (), source="in", schema=positions(1).schema), PartitionLog(0, 0), "at")
    made.queues[0, 0].put(positions(*here), 0)
    if said is None:
        assert made.may_close(1, 0, 0)
        return
    with pytest.raises(CannotReplay, match=f"partition 0 cannot be replayed: epoch 1, .* goes from position 0 to 9, and the source {said}"):
        made.may_close(1, 0, 0)


@pytest.mark.parametrize(("here", "said"), [((3, 5, 8), None), ((3, 8), "has 2 rows there, and gave 3 then"), ((), "has 0 rows there")])
def test_an_epoch_that_is_cut_by_content_has_as_many_rows_as_it_had(here: tuple[int, ...], said: str | None) -> None:
    """Goal: rows that are gone end the run, and nothing is given out instead. Method: the source ends within the epoch."""
    cut = Cut(1, 10, 0, 3, False, True, rows=3)
    made = ContentIngress(FlowOptions(), Grid(0, 10, 0, 10), Beginning(cuts={(0, 0): (cut,)}), journalled=True)
    log = PartitionLog(0, 0)
    made.lead(Segment(0, "in", "ingress", 1, (), (), (), source="in", schema=positions().schema), log)
    queue = made.queues[0, 0]
    if here:
        marked = positions(*here).append_column("_epoch", pa.array([1] * len(here), pa.int64()))
        queue.put(queue.narrowed(marked, positions().schema), 0)
    queue.end_here()
    made.demand(1)
    assert made.may_close(1, 0, 0)
    if said is None:
        assert Cut.of(made.close({(0, 0): log}, 3)[0]).rows == 3
        return
    with pytest.raises(CannotReplay, match=f"partition 0 cannot be replayed: epoch 1, .* goes from position 0 to 3, and the source {said}"):
        made.close({(0, 0): log}, 3)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.booleans()), min_size=1, max_size=30), st.integers(0, 10**7))
def test_stamps_go_on_behind_those_of_a_clock_that_was_ahead(steps: list[tuple[int, bool]], ahead_us: int) -> None:
    """Goal: they go half as fast as the clock until it has caught up, and when it is time for one is known before. Method: epochs close now
    and then, behind a log that is so far ahead."""
    now_us, found = 10**9, ingress.Ingress(FlowOptions())
    found._goes_behind(now_us + ahead_us)
    before = found.time_us(now_us)
    for step_us, closes in steps:
        due = before + 1 + step_us // 2
        assert found.time_us(found.clock_us(due, now_us) + 1) >= due
        now_us += step_us
        time_us = found.time_us(now_us)
        assert max(now_us, before + step_us // 2 - 1) <= time_us <= max(now_us, before + step_us // 2 + 1)
        if closes:
            found.close({}, now_us)
            assert found.stamp >= time_us and found.stamp > before
        before = found.time_us(now_us)
    assert found.time_us(now_us + 2 * ahead_us) == now_us + 2 * ahead_us


def test_a_partition_that_reads_what_is_behind_opens_no_epochs_for_others_that_have_ended() -> None:
    """Goal: no epochs behind the last one. Method: one partition has ended in epoch 10, and a copied one reads on from epoch 7; what it
    gives is of epochs that are closed here, and nothing says yet that there are more."""
    segment = Segment(0, "in", "ingress", 2, (), (0,), (), source="in", schema=positions().schema)
    cut = ContentIngress(FlowOptions(), Grid(0, 10, 0, 10))
    ended, late = PartitionLog.begun(0, 0, 10, ended=True), PartitionLog.begun(0, 1, 7)
    for log in (ended, late):
        cut.lead(segment, log)
    assert cut.closed == 10 and not cut.may_close(64, 0, 0)
    cut.reach((0, 1), 9)
    for epoch in (8, 9):
        records = cut.catch_up(0)
        assert [(record.partition, record.epoch) for record in records] == [(1, epoch)] and not cut.may_close(64, 0, 0)
        late.append(records[0])
    cut.reach((0, 1), 12)
    late.append(*cut.catch_up(0))
    assert not cut.catch_up(0) and cut.may_close(64, 0, 0), "it is level: now it says what is whole"
    cut.queues[0, 1].end_here()
    late.append(cut.close({(0, 0): ended, (0, 1): late}, 0)[-1])
    assert cut.closed == 11 and not cut.may_close(64, 0, 0) and late.ended
