"""Operators whose state is rows by key: which of equal rows is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from evenflow.kernels.hash import hash_columns
from evenflow.operator.changes.pairs import PairUp
from evenflow.operator.changes.rank import Rank
from evenflow.operator.changes.regroup import Regroup
from evenflow.operator.operator import Operator
from evenflow.query.aggregates import AggCall
from evenflow.query.changed_pairs import BACK, LEFT, Pairs
from evenflow.query.ranked import Place, Ranked
from evenflow.query.regrouped import Regrouped
from evenflow.stream.change import CHANGE_FIELD, INSERT, all_say
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

STRUCTURE = pa.struct([("v", pa.float64())])
CHANGES = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("p", STRUCTURE), CHANGE_FIELD])
COLUMNS = "k bigint, v double, p struct<v: double>"
SIDES = pa.schema([
    ("key__0", pa.int64()), (LEFT, pa.bool_()), (BACK, pa.bool_()),
    ("l0__", pa.int64()), ("l1__", pa.float64()), ("l2__", STRUCTURE), ("r0__", pa.int64()),
])  # fmt: skip


def ranked() -> Operator:
    return Rank(CHANGES, ("k",), Ranked(COLUMNS, (("v", False),), (Place("at", "row_number"),), ("at", 1, 1)))


def regrouped() -> Operator:
    calls = (AggCall("one", "first", "v", pa.float64()), AggCall("least", "min", "p", STRUCTURE))
    return Regroup(CHANGES, ("k",), Regrouped(calls, ("k",), COLUMNS))


def paired() -> Operator:
    columns = ((name, None) for name in ("k", "v", "p"))
    return PairUp(SIDES, ("key__0",), Pairs(f"{COLUMNS}, _change string", COLUMNS, "k bigint", "left", 1, None, tuple(columns)))


def changes(zeros: list[float]) -> pa.RecordBatch:
    parts = pa.array([{"v": zero} for zero in zeros], STRUCTURE)
    return pa.record_batch([pa.array([1] * len(zeros)), pa.array(zeros), parts, all_say(INSERT, len(zeros))], schema=CHANGES)


def lefts(zeros: list[float]) -> pa.RecordBatch:
    rows = changes(zeros)
    flags = [pa.array([flag] * len(zeros)) for flag in (True, False)]
    return pa.record_batch([rows["k"], *flags, rows["k"], rows["v"], rows["p"], pa.nulls(len(zeros), pa.int64())], schema=SIDES)


@pytest.mark.parametrize(("make", "rows"), [(ranked, changes), (regrouped, changes), (paired, lefts)])
def test_which_of_equal_rows_is_kept_does_not_go_by_what_came_first(
    make: Callable[[], Operator], rows: Callable[[list[float]], pa.RecordBatch]
) -> None:
    found = []
    for zeros in ([0.0, -0.0, 1.0], [-0.0, 0.0, 1.0], [1.0, 0.0, -0.0]):
        batch = rows(zeros)
        made = make().process(
            Rows(batch, np.zeros(3, np.int32), hash_columns(batch, batch.schema.names[:1])), Tick(1, 1, NO_WATERMARK, NO_WATERMARK)
        )[0]
        texts = sorted(str(row) for row in made.batch.to_pylist())
        found.append(texts)
    assert found[0] == found[1] == found[2]
    assert "-0.0" in str(found[0])
