"""What waits at an ingress partition enters epochs in order, and no epoch gets more rows or bytes than it may."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.site import ingress
from evenflow.site.ingress import IngressQueue


def text(*lengths: int) -> pa.RecordBatch:
    return pa.record_batch({"s": ["x" * length for length in lengths]})


def emptied(queue: IngressQueue, limit: int) -> list[list[int]]:
    """The lengths of the texts in each epoch."""
    epochs = []
    while queue.rows:
        batch, _ = queue.take(limit, 0)
        assert batch is not None
        epochs.append([len(s) for s in batch.column(0).to_pylist()])
    return epochs


def test_wide_rows_make_short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "EPOCH_BYTES_MAX", 1000)
    queue = IngressQueue(0, None)
    queue.put(text(*[96] * 25), 0)  # a row takes 100 bytes, with its offset
    assert queue.full(100)
    assert queue.room(100) == 0
    assert [len(epoch) for epoch in emptied(queue, 100)] == [10, 10, 5]
    assert queue.bytes == 0 and queue.room(100) == 200


def test_a_row_that_is_wider_than_an_epoch_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "EPOCH_BYTES_MAX", 1000)
    queue = IngressQueue(0, None)
    queue.put(text(5000, 5000), 0)
    assert emptied(queue, 100) == [[5000], [5000]]


def test_room_is_for_rows_as_wide_as_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "EPOCH_BYTES_MAX", 8000)
    queue = IngressQueue(0, 100)
    queue.put(text(*[1] * 40), 0)
    assert not queue.full(1000)
    assert queue.room(1000) == 120
    assert queue.room(50) == 60


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), max_size=8), st.integers(1, 25))
def test_nothing_is_lost_or_reordered(batches: list[list[int]], limit: int) -> None:
    queue = IngressQueue(0, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ingress, "EPOCH_BYTES_MAX", 300)
        for lengths in batches:
            queue.put(text(*lengths), 0)
        epochs = emptied(queue, limit)
    assert list(chain(*epochs)) == list(chain(*batches))
    assert all(1 <= len(epoch) <= limit for epoch in epochs)
    assert (queue.bytes, queue.rows, queue.since) == (0, 0, None)
