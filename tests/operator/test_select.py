"""Select: exact columns, types that hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import TypeMismatch, UnknownColumn
from evenflow.operator.select import Select
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

SCHEMA = pa.schema([pa.field("x", pa.int64(), nullable=False), ("s", pa.string())])
TICK = Tick(1, 1, NO_WATERMARK, NO_WATERMARK)


def rows_of(xs: list[int]) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(xs, pa.int64()), pa.array([str(x) for x in xs], pa.string())], schema=SCHEMA)
    return Rows(batch, np.arange(len(xs), dtype=np.int32) % 3, np.arange(len(xs), dtype=np.uint64))


@given(st.lists(st.integers(-(2**40), 2**40)))
def test_computes_columns_in_the_order_given(xs: list[int]) -> None:
    select = Select((("t", "s"), ("y", "x + 1"), ("x", "x"), ("z", lambda batch: pc.multiply(batch["x"], 2))), SCHEMA)
    rows = rows_of(xs)
    made = select.process(rows, TICK)[0]
    assert made.batch.schema.equals(select.schemas[0])
    assert made.batch.schema.names == ["t", "y", "x", "z"]
    assert not made.batch.schema.field("x").nullable
    assert [tuple(row.values()) for row in made.batch.to_pylist()] == [(str(x), x + 1, x, 2 * x) for x in xs]
    assert made.partition is rows.partition
    assert made.hash is rows.hash


def test_a_type_may_be_told_or_asked_for() -> None:
    class Half:
        type = pa.float64()

        def __call__(self, batch: pa.RecordBatch) -> Any:
            assert batch.num_rows
            return batch["x"].to_numpy() / 2

    select = Select((("h", Half()), ("n", lambda batch: [0] * 0 or batch["x"])), SCHEMA)
    assert select.schemas[0] == pa.schema([("h", pa.float64()), ("n", pa.int64())])
    assert select.process(rows_of([]), TICK)[0].batch.schema == select.schemas[0]
    assert select.process(rows_of([3]), TICK)[0].batch.to_pylist() == [{"h": 1.5, "n": 3}]


def test_a_function_that_breaks_its_word_names_box_and_column() -> None:
    def fickle(batch: pa.RecordBatch) -> Any:
        return pa.array(["a"] * batch.num_rows) if batch.num_rows else pa.array([], pa.int64())

    with pytest.raises(TypeMismatch, match="'cut'.*'f' returned string, but int64"):
        Select((("f", fickle),), SCHEMA, "cut").process(rows_of([1]), TICK)
    with pytest.raises(TypeMismatch, match="'cut'.*'f' returned 0 values for 1 rows"):
        Select((("f", lambda batch: batch["x"][:0]),), SCHEMA, "cut").process(rows_of([1]), TICK)
    nulls = Select((("f", lambda batch: batch["x"] if not batch.num_rows else [None] * batch.num_rows),), SCHEMA)
    assert nulls.process(rows_of([1]), TICK)[0].batch.column(0) == pa.array([None], pa.int64())


def test_says_how_to_give_a_type_when_it_cannot_be_told() -> None:
    with pytest.raises(TypeMismatch, match=r"(?s)'cut'.*ZeroDivisionError.*attribute `type`"):
        Select((("f", lambda batch: 1 / batch.num_rows),), SCHEMA, "cut")
    with pytest.raises(TypeMismatch, match="no type.*attribute `type`"):
        Select((("f", lambda batch: []),), SCHEMA, "cut")
    with pytest.raises(UnknownColumn):
        Select((("f", "nowhere"),), SCHEMA)
