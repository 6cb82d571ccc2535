"""Totals of a changelog that cannot be subtracted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow.kernels.hash import hash_columns
from evenflow.operator.changes.regroup import Regroup
from evenflow.query.aggregates import AggCall
from evenflow.query.regrouped import Regrouped
from evenflow.stream.change import CHANGE_FIELD, INSERT, all_say
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows


@pytest.mark.parametrize(("key", "value"), [("k", "v"), ("k", "_group"), ("_group", "__group")])
def test_columns_may_have_any_name(key: str, value: str) -> None:
    schema = pa.schema([(key, pa.int64()), (value, pa.int64()), CHANGE_FIELD])
    described = Regrouped((AggCall("most", "max", value, pa.int64()),), (key,), f"{key} bigint, {value} bigint")
    operator = Regroup(schema, (key,), described)
    batch = pa.record_batch([pa.array([1, 1, 2]), pa.array([5, 6, 7]), all_say(INSERT, 3)], schema=schema)
    made = operator.process(Rows(batch, np.zeros(3, np.int32), hash_columns(batch, [key])), Tick(1, 1, NO_WATERMARK, NO_WATERMARK))[0]
    assert sorted((row[key], row["most"]) for row in made.batch.to_pylist()) == [(1, 6), (2, 7)]
