"""Replicas that disagree are named: box, partition, sites and epochs (E3)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenflow.coordinator.comparison import Comparison
from evenflow.plan.layout import Layout, Port, Segment, Step
from evenflow.site.facts import Digests

SCHEMA = pa.schema([("k", pa.int64())])
STEPS = (
    Step("tidy", "filter", {}, SCHEMA, Port(-1)),
    Step("guess", "process", {}, SCHEMA, Port(0), user_code=True),
    Step("count", "aggregate", {}, SCHEMA, Port(1)),
)


def layout_of(*steps: Step) -> Layout:
    return Layout("t", (Segment(0, "mid", "inner", 6, (), (), steps, False, None, None, SCHEMA),), (), {}, {})


def said(epoch: int, values: dict[int, int]) -> Digests:
    return Digests(0, epoch, tuple(values), np.array(list(values.values()), np.uint64).tobytes())


def test_the_box_with_user_code_the_partition_the_sites_and_the_epochs_are_named() -> None:
    comparison = Comparison(layout_of(*STEPS))
    assert comparison.take(3, said(128, {0: 1, 4: 2**64 - 1})) is None
    error = comparison.take(5, said(128, {4: 2**64 - 2}))
    assert error is not None and (error.box, error.epoch) == ("guess", 128)
    assert "partition 4 of segment 'mid'" in str(error) and "sites 3 and 5" in str(error) and "between 65 and 128" in str(error)


def test_without_user_code_the_last_box_is_named() -> None:
    comparison = Comparison(layout_of(STEPS[0], STEPS[2]))
    comparison.take(0, said(64, {0: 1}))
    error = comparison.take(1, said(64, {0: 2}))
    assert error is not None and error.box == "count" and "between 1 and 64" in str(error)


def test_partitions_are_compared_one_by_one_whoever_has_which() -> None:
    comparison = Comparison(layout_of(*STEPS))
    assert comparison.take(0, said(64, {0: 10, 1: 11})) is None
    assert comparison.take(1, said(64, {2: 12, 3: 13})) is None
    assert comparison.take(2, said(64, {1: 11, 2: 12})) is None
    assert comparison.take(3, said(64, {3: 0})) is not None


def test_epochs_are_compared_with_themselves_only_and_old_ones_are_forgotten() -> None:
    comparison = Comparison(layout_of(*STEPS))
    for epoch in range(64, 64 * 12, 64):
        assert comparison.take(0, said(epoch, {0: epoch})) is None
    assert comparison.take(1, said(64, {0: 1})) is None, "nobody knows any more; a replica that lags so far has been dropped"
    assert comparison.take(1, said(64 * 11, {0: 1})) is not None
