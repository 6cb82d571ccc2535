"""Filter and its three-valued logic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import TypeMismatch, UnknownColumn
from evenflow.operator.filter import Filter
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([("x", pa.int64()), ("b", pa.bool_())])
TICK = Tick(1, 1, NO_WATERMARK, NO_WATERMARK)


def rows_of(xs: list[int | None]) -> Rows:
    n = len(xs)
    batch = pa.RecordBatch.from_arrays([pa.array(xs, pa.int64()), pa.array([x is not None for x in xs], pa.bool_())], schema=SCHEMA)
    return Rows(batch, np.arange(n, dtype=np.int32) % 3, np.arange(n, dtype=np.uint64) * 7)


@given(st.lists(st.one_of(st.none(), st.integers(-3, 3))))
def test_keeps_rows_that_are_true_with_their_partition_and_hash(xs: list[int | None]) -> None:
    for condition in ("x > 0", lambda batch: pc.greater(batch["x"], 0)):
        kept = Filter(condition, SCHEMA).process(rows_of(xs), TICK)[0]
        want = [i for i, x in enumerate(xs) if x is not None and x > 0]
        assert kept.batch.column(0).to_pylist() == [xs[i] for i in want]
        assert kept.partition.tolist() == [i % 3 for i in want]
        assert kept.hash is not None
        assert kept.hash.tolist() == [7 * i for i in want]


@pytest.mark.parametrize(
    "answer", [np.array([True, False, True]), [True, None, True], pd.Series([True, False, True]), pl.Series([True, None, True])]
)
def test_a_function_may_answer_with_any_column(answer: Any) -> None:
    assert Filter(lambda batch: answer, SCHEMA).process(rows_of([1, 2, 3]), TICK)[0].batch.column(0).to_pylist() == [1, 3]


@pytest.mark.parametrize(
    ("answer", "says"),
    [([True], "1 values for 3 rows"), (np.arange(3), "int64, not boolean"), (True, "bool, not a column"), ("yes", "str, not a column")],
)
def test_a_wrong_answer_names_the_box(answer: Any, says: str) -> None:
    with pytest.raises(TypeMismatch, match=says) as caught:
        Filter(lambda batch: answer, SCHEMA, "only_tcp").process(rows_of([1, 2, 3]), TICK)
    assert "'only_tcp'" in str(caught.value)


def test_wrong_expressions_are_found_when_built() -> None:
    with pytest.raises(TypeMismatch, match="'only_tcp'.*'x [+] 1' is int64, not boolean"):
        Filter("x + 1", SCHEMA, "only_tcp")
    with pytest.raises(UnknownColumn):
        Filter("y > 1", SCHEMA)


def test_what_a_function_raises_comes_through() -> None:
    def fails(batch: pa.RecordBatch) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Filter(fails, SCHEMA).process(rows_of([1]), TICK)


def test_no_rows_ask_nobody() -> None:
    def never(batch: pa.RecordBatch) -> Any:
        raise AssertionError

    assert Filter(never, SCHEMA).process(rows_of([]), TICK)[0].count == 0
