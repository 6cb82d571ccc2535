"""Combining hot keys before the exchange: exact whatever is combined, and what is hot is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.aggregate_cases import ALL_CALLS, SCHEMA, bits, by_key, call, expected, make_batch, make_rows, same, tick

from evenflow.kernels.columns import frozen
from evenflow.kernels.hash import hash_columns
from evenflow.kernels.hot import MOST_VOTES, PLACES, WINDOW, fold_groups, group_hot
from evenflow.kernels.table import index_hash
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.combine import Combine
from evenflow.operator.totals.time_window import TimeWindowAggregate
from evenflow.query.aggregates import TimeWindow, combinable, order_sensitive
from evenflow.state.pages import NO_EXTRA
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK
from evenflow.stream.rows import Rows

CALLS = [c for c in ALL_CALLS if combinable([c], SCHEMA)]
EXACT = [c for c in CALLS if not order_sensitive([c], SCHEMA)]
COUNT = [call("count")]


def produced(batch: pa.RecordBatch, partition: np.ndarray[Any, np.dtype[np.int32]]) -> Rows:
    return Rows(batch, partition, None)


def groups_of(keys: list[int] | np.ndarray[Any, np.dtype[np.int64]], most: int = PLACES, partition: Any = 0) -> list[int]:
    """The group of each row, for int64 keys."""
    batch = pa.RecordBatch.from_arrays([pa.array(np.asarray(keys, np.int64))], names=["k"])
    hashes = hash_columns(batch, ["k"])
    n = hashes.size
    ordinals, rows = np.empty(n, np.int64), np.empty(n, np.int64)
    owners = np.broadcast_to(np.asarray(partition, np.int32), (n,))
    groups = group_hot(
        frozen(hashes), frozen(np.asarray(keys, np.int64).view(np.uint64)), frozen(NO_EXTRA), frozen(owners), most, ordinals, rows
    )
    assert sorted(set(ordinals.tolist())) == list(range(groups))
    assert [int(np.flatnonzero(ordinals == g)[0]) for g in range(min(groups, 200))] == rows[: min(groups, 200)].tolist()
    return ordinals.tolist()


# ---------------------------------------------------------------- exact


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 20),
    places=st.sampled_from([4, 8, 32, PLACES]),
    keys=st.sampled_from([("k",), ("s",), ("k", "d"), ("name", "b"), ()]),
    skew=st.sampled_from([1, 3, 300]),
)
def test_combined_or_not_the_totals_are_the_same(seed: int, places: int, keys: tuple[str, ...], skew: int) -> None:
    """Integers to the bit, floats as the oracle compares them, for every aggregate that can be combined."""
    rng = np.random.default_rng(seed)
    combine = Combine(SCHEMA, keys, CALLS, places=places)
    merged, exact = Aggregate(combine.schemas[0], keys, CALLS, partial=True), Aggregate(SCHEMA, keys, EXACT)
    seen: list[dict[str, Any]] = []
    for epoch in range(1, 4):
        batch = make_batch(rng, 300, keys=skew)
        seen += batch.to_pylist()
        (partial,) = combine.process(produced(batch, rng.integers(0, 3, 300).astype(np.int32)), tick(epoch))
        (out,) = merged.process(make_rows(partial.batch, keys), tick(epoch))
        (plain,) = exact.process(make_rows(batch, keys), tick(epoch))
        names = [*keys, *(c.name for c in EXACT)]
        assert sorted(map(repr, zip(*(v for _, v in bits(out.batch.select(names))), strict=True))) == sorted(
            map(repr, zip(*(v for _, v in bits(plain.batch)), strict=True))
        )
        groups = by_key(seen, keys)
        for row in out.batch.to_pylist():
            for c in CALLS:
                assert same(row[c.name], expected(c, groups[tuple(row[key] for key in keys)])), c.name


@pytest.mark.parametrize(
    "window", [TimeWindow("ts", 4_000_000, 4_000_000), TimeWindow("ts", 6_000_000, 2_000_000)], ids=["tumbling", "sliding"]
)
def test_windows_of_hot_and_cold_keys_equal_uncombined_ones(window: TimeWindow) -> None:
    rng = np.random.default_rng(12)
    combine = Combine(SCHEMA, ("s",), EXACT, window, places=4)
    merged = TimeWindowAggregate(combine.schemas[0], ("s",), EXACT, window=window, partial=True)
    plain = TimeWindowAggregate(SCHEMA, ("s",), EXACT, window=window)
    batch = make_batch(rng, 3_000, span_us=20_000_000)
    (partial,) = combine.process(produced(batch, rng.integers(0, 2, 3_000).astype(np.int32)), tick(1))
    distinct = len(set(zip(*(partial.batch.column(n).to_pylist() for n in ("s", "window_start")), strict=True)))
    assert partial.count > distinct, "the table had a place for every key, so that nothing was cold"
    wanted = plain.process(make_rows(batch, ("s",)), tick(1, NO_WATERMARK, END_OF_STREAM))[0]
    found = merged.process(make_rows(partial.batch, ("s",)), tick(1, NO_WATERMARK, END_OF_STREAM))[0]
    assert bits(found.batch) == bits(wanted.batch)


def test_rows_that_pass_leave_as_partial_totals_of_one_row() -> None:
    """So the stage behind the exchange has one schema, and cannot tell."""
    batch = make_batch(np.random.default_rng(3), 200, keys=5)
    partition = np.zeros(200, np.int32)
    (out,) = Combine(SCHEMA, ("i", "f", "s"), CALLS).process(produced(batch, partition), tick(1))
    single = [Combine(SCHEMA, ("i", "f", "s"), CALLS).process(produced(batch.slice(n, 1), partition[:1]), tick(1))[0] for n in range(200)]
    assert out.count == 200
    assert bits(out.batch) == bits(pa.Table.from_batches([rows.batch for rows in single]).combine_chunks().to_batches()[0])


# ---------------------------------------------------------------- what is hot


def test_while_there_is_room_every_key_is_combined() -> None:
    keys = np.random.default_rng(1).integers(0, 900, 20_000)
    assert len(set(groups_of(keys))) == len(set(keys.tolist()))


def test_a_hot_key_holds_its_place_against_any_number_of_rare_ones() -> None:
    rng = np.random.default_rng(2)
    keys = rng.integers(1, 1 << 60, 200_000)
    keys[rng.random(200_000) < 0.01] = 0
    groups = np.array(groups_of(keys, most=256))
    hot = keys == 0
    assert len(set(groups[hot].tolist())) <= 0.01 * hot.sum(), "hot rows are hardly combined"
    assert len(set(groups[~hot].tolist())) == (~hot).sum(), "keys that come once have groups of their own"


def test_keys_that_fill_a_window_hold_it_together() -> None:
    """A rare key costs the weakest of them a vote, not its place."""
    rng = np.random.default_rng(6)
    keys = np.where(rng.random(20_000) < 0.1, rng.integers(10, 1 << 60, 20_000), rng.integers(0, WINDOW, 20_000))
    groups = np.array(groups_of(keys, most=WINDOW))
    assert len(set(groups[keys < WINDOW].tolist())) < 100


def test_keys_that_were_hot_make_room_for_one_that_is() -> None:
    rng = np.random.default_rng(3)
    before, after = rng.integers(0, WINDOW, 10_000), rng.integers(10, 1 << 60, 50_000)
    after[rng.random(50_000) < 0.6] = WINDOW
    groups = np.array(groups_of(np.concatenate([before, after]), most=WINDOW))[10_000:]
    assert len(set(groups[after == WINDOW].tolist())) < 2_000, "the new hot key does not hold a place"


def test_votes_end_at_their_most() -> None:
    """A key with more votes than a place can count stays itself, and its place stays another key's tag away from the next."""
    keys = [7] * (3 * MOST_VOTES) + list(range(100, 100 + 50)) + [7] * 10
    groups = np.array(groups_of(keys, most=WINDOW))
    assert set(groups[np.array(keys) == 7].tolist()) == {0}


def test_what_is_hot_is_told_per_partition() -> None:
    """The groups of a partition's rows do not depend on the rows of another."""
    rng = np.random.default_rng(4)
    keys, partition = rng.zipf(1.3, 5_000).astype(np.int64), rng.integers(0, 5, 5_000)
    together = np.array(groups_of(keys, most=8, partition=partition))
    for owner in range(5):
        mine = together[partition == owner]
        _, as_ordinals = np.unique(mine, return_inverse=True)
        assert as_ordinals.tolist() == groups_of(keys[partition == owner], most=8)


def test_keys_with_one_hash_are_told_apart() -> None:
    hashes, checks = np.full(64, 12345, np.uint64), np.arange(64, dtype=np.uint64) % np.uint64(3)
    ordinals, rows = np.empty(64, np.int64), np.empty(64, np.int64)
    groups = group_hot(frozen(hashes), frozen(checks), frozen(NO_EXTRA), frozen(np.zeros(64, np.int32)), PLACES, ordinals, rows)
    assert (groups, ordinals.tolist()) == (3, (np.arange(64) % 3).tolist())


def test_windows_with_one_tag_are_told_apart() -> None:
    """Two windows of one key of which the table keeps the same bits."""
    first: dict[int, int] = {}
    for start in range(1, 100_000):
        twin = first.setdefault(int(index_hash(np.uint64(12345), np.int64(start))) >> 40, start)
        if twin != start:
            break
    hashes, starts = np.full(2, 12345, np.uint64), np.array([twin, start])
    ordinals, rows = np.empty(2, np.int64), np.empty(2, np.int64)
    groups = group_hot(frozen(hashes), frozen(hashes), frozen(starts), frozen(np.zeros(2, np.int32)), WINDOW, ordinals, rows)
    assert (twin != start, groups, ordinals.tolist()) == (True, 2, [0, 1])


def test_no_group_begins_with_anything_but_the_template() -> None:
    template = np.array([0, 5, -1], np.int64)
    empty = fold_groups(
        template, 3, np.arange(3), np.empty((0, 4), np.int64), frozen(np.empty((0, 3), np.int64)), frozen(np.empty((0, 3), np.uint8))
    )
    assert empty.tolist() == [[0] * 3, [5] * 3, [-1] * 3]


def test_few_hot_rows_reach_the_consumer() -> None:
    """What the whole is for: of a key with a tenth of all rows, a row per partition and epoch is sent."""
    rng = np.random.default_rng(5)
    keys = np.where(rng.random(50_000) < 0.1, 0, rng.integers(1, 1 << 40, 50_000))
    schema = pa.schema([("k", pa.int64())])
    rows = Rows(pa.RecordBatch.from_arrays([pa.array(keys)], schema=schema), rng.integers(0, 4, 50_000).astype(np.int32), None)
    (out,) = Combine(schema, ("k",), COUNT).process(rows, tick(1))
    sent = np.asarray(out.batch.column("k")) == 0
    assert sent.sum() == 4
    assert np.asarray(out.batch.column("rows(*)"))[sent].sum() == (keys == 0).sum()
