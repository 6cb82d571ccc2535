"""The state of many keys when their key groups change hands between the partitions of a site (E1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from evenflow.kernels.hash import hash_columns, partition_of
from evenflow.operator.changes.regroup import Regroup
from evenflow.operator.dedup import Dedup
from evenflow.operator.operator import Operator
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.plan.layout import KEY_GROUPS
from evenflow.query.aggregates import AggCall
from evenflow.query.regrouped import Regrouped
from evenflow.site.hosted import Hosted
from evenflow.stream.change import CHANGE_FIELD, INSERT, all_say
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows
from tests.site.cluster import TOTALS, totals

KEYS = 24_000
"""Some 6,000 in each of four partitions: more than are given back in one piece."""
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
COUNT = [AggCall("n", "count", None, pa.int64())]
OPERATORS: dict[str, Callable[[], Operator]] = {
    "aggregate": lambda: Aggregate(SCHEMA, ["k"], COUNT),
    "dedup": lambda: Dedup(SCHEMA, ["k"]),
    "regroup": lambda: Regroup(SCHEMA.append(CHANGE_FIELD), ("k",), Regrouped(tuple(COUNT), ("k",), "k BIGINT")),
}


def ranges(*owners: int) -> np.ndarray:
    """int32 (G,): key groups in equal ranges of these partitions."""
    return np.repeat(np.array(owners, np.int32), KEY_GROUPS // len(owners))


def epoch(operator: Operator, groups: np.ndarray, number: int) -> pa.RecordBatch:
    """What comes out of an epoch with a row of each key, by key."""
    keys = np.arange(KEYS)
    batch = pa.record_batch([pa.array(keys), pa.array(keys + number), all_say(INSERT, KEYS)], schema=SCHEMA.append(CHANGE_FIELD))
    if not isinstance(operator, Regroup):
        batch = batch.select(SCHEMA.names)
    hashes = hash_columns(batch, ["k"])
    out = operator.process(Rows(batch, partition_of(hashes, groups), hashes), Tick(number, number, NO_WATERMARK, NO_WATERMARK))[0]
    return out.batch.sort_by([(column, "ascending") for column in out.batch.schema.names])


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    ("before", "after"), [((0, 1, 2, 3), (0, 2)), ((0, 2), (0, 1, 2, 3)), ((3, 1), (3, 0, 1, 2))], ids=["joined", "split", "lower numbers"]
)
def test_key_groups_that_change_hands_take_their_keys_along(name: str, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Goal: nothing is found twice, or lost, where a partition that is gone, or is another one now, had the same keys.

    Method: as a site does it, against an instance whose ranges stay as they are; and a copy that is taken a little later."""
    layout = totals(partitions=4)
    hosted = Hosted.of(layout.segments[TOTALS], layout, (0, 1, 2, 3), groups=ranges(*before))
    changed, kept, copy = OPERATORS[name](), OPERATORS[name](), OPERATORS[name]()
    hosted.operators[:] = [changed]
    hosted.__post_init__()
    assert epoch(changed, ranges(*before), 1) == epoch(kept, ranges(*before), 1)
    hosted.divide(ranges(*after))
    assert epoch(changed, ranges(*after), 2) == epoch(kept, ranges(*before), 2)
    for partition in range(4):
        if (snapshot := changed.capture(partition)) is not None:
            copy.install(partition, snapshot.to_bytes())
    expected = epoch(kept, ranges(*before), 3)
    assert epoch(copy, ranges(*after), 3) == expected == epoch(changed, ranges(*after), 3)


def test_what_left_a_while_ago_is_not_found_where_its_key_groups_come_without_state() -> None:
    """Goal: also where nothing is installed: all that the partitions have by now was left behind by an earlier stay of one of them."""
    layout = totals(partitions=4)
    hosted = Hosted.of(layout.segments[TOTALS], layout, (0, 1, 2, 3), groups=ranges(0, 1, 2, 3))
    operator, kept = Aggregate(SCHEMA, ["k"], COUNT), Aggregate(SCHEMA, ["k"], COUNT)
    hosted.operators[:] = [operator]
    hosted.__post_init__()
    epoch(operator, ranges(0, 1, 2, 3), 1)
    hosted.leave((0, 1, 2, 3))
    hosted.partitions = (0, 1, 2, 3)
    hosted.divide(ranges(0, 2))
    assert epoch(operator, ranges(0, 2), 2) == epoch(kept, ranges(0, 2), 2)
