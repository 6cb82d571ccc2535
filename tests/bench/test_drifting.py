"""The rows of the skew benchmark: the same for every reader, Zipf distributed, drifting."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.bench.drifting import DriftingRows, Popularity
from evenflow.bench.spark_skew import DriftingStreamReader
from evenflow.errors import QueryError

POPULARITY = Popularity(keys=64, exponent=1.0, drift_rows=1000)


def test_every_reader_sees_the_same_rows() -> None:
    """Sites read a partition each, Structured Streaming spans of all rows: together they are the same."""
    seen: dict[int, int] = {}
    source = DriftingRows(POPULARITY, rows=5000)
    for partition in range(4):
        reader = source.open(partition, 4)
        while (batch := reader.read(0, 700)) is not None:
            assert batch.schema == source.schema
            seen |= dict(zip(batch["number"].to_pylist(), batch["key"].to_pylist()))
    rival = DriftingStreamReader(POPULARITY, 4, 0, 2500, now_us=lambda: 0)
    start, theirs = rival.initialOffset(), {}
    for _ in range(2):
        end = rival.latestOffset(start)
        for partition in rival.partitions(start, end):
            for batch in rival.read(partition):
                theirs |= dict(zip(batch["number"].to_pylist(), batch["key"].to_pylist()))
        start = end
    assert sorted(seen) == list(range(5000)) and seen == theirs


def test_a_reader_that_goes_on_for_another_has_the_same_rows() -> None:
    source = DriftingRows(POPULARITY)
    first, second = source.open(1, 4), source.open(1, 4)
    first.read(0, 300)
    second.skip(300)
    assert first.read(0, 50) == second.read(0, 50)


def test_keys_are_as_popular_as_they_should_be_and_rise_in_rank() -> None:
    keys = POPULARITY.keys_of(np.arange(1000 * 400))
    shares = np.zeros(64)
    for turn in range(400):  # Seen from the rank: in turn t, rank r is that of key r + t.
        shares += np.bincount((keys[turn * 1000 : (turn + 1) * 1000] - turn) % 64, minlength=64)
    shares /= len(keys)
    assert shares == pytest.approx([POPULARITY.share(rank) for rank in range(64)], rel=0.1)
    assert POPULARITY.share(0) == pytest.approx(2 * POPULARITY.share(1))


def test_the_default_drift_leaves_every_key_movable() -> None:
    """One key is never more than the slowest executor could do while all are as busy as they can be."""
    from evenflow.bench.slowed import RowCost

    cost = RowCost()
    assert Popularity().share(0) * cost.capacity(4) < 1e6 / cost.at_us(cost.slow_executor)


def test_rows_of_a_rate_are_due_in_time_on_both_sides() -> None:
    reader = DriftingRows(POPULARITY, rate=1000, count=2).open(1, 2)
    assert reader.read(5_000_000, 10) is None  # Row 1 is due a millisecond later.
    ours = reader.read(5_010_000, 10)
    assert ours is not None and ours["due_us"].to_pylist() == [5_001_000, 5_003_000, 5_005_000, 5_007_000, 5_009_000]
    now = [5_000_000]
    rival = DriftingStreamReader(POPULARITY, 2, 1000, 0, now_us=lambda: now[0])
    start = rival.initialOffset()
    now[0] += 10_000
    end = rival.latestOffset(start)
    theirs = [batch["due_us"].to_pylist() for partition in rival.partitions(start, end) for batch in rival.read(partition)]
    assert theirs == [[5_000_000, 5_002_000, 5_004_000, 5_006_000, 5_008_000], [5_001_000, 5_003_000, 5_005_000, 5_007_000, 5_009_000]]
    assert rival.latestOffset(None) == end  # As releases of Spark ask that do not say where the last batch ended.


@pytest.mark.parametrize("wrong", [{"keys": 0}, {"exponent": -0.1}, {"drift_rows": 0}])
def test_popularities_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(QueryError, match="drifting keys"):
        Popularity(**wrong)


def test_a_rate_that_makes_no_sense() -> None:
    with pytest.raises(QueryError, match="rate is 0; give a whole number"):
        DriftingRows(POPULARITY, rate=0)
