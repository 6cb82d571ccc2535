"""Totals of the rows so far are, to the last bit, what the aggregate makes of these rows alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evenflow.errors import ArithmeticOverflow
from evenflow.operator.changes.framed import framed
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.totals.so_far import FUNCTIONS, LONG_ROWS, can_be_so_far, so_far
from evenflow.query.aggregates import AggCall, result_type
from evenflow.stream.epoch import NO_WATERMARK, Tick
from evenflow.stream.rows import Rows

RANDOM = np.random.default_rng(3)
COUNT = 240
START = np.repeat([0, 1, 5, 30, 80], [1, 4, 25, 50, COUNT - 80])
FLOATS = np.where(
    RANDOM.random(COUNT) < 0.2, RANDOM.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1e308], COUNT), RANDOM.normal(0, 1e3, COUNT)
)
FLOATS[80:200] = RANDOM.normal(0, 1, 120)
WHOLE = RANDOM.integers(-(2**40), 2**40, COUNT)


def with_nulls(values: pa.Array, share: float = 0.3) -> pa.Array:
    return pa.array(values.to_pylist(), values.type, mask=RANDOM.random(len(values)) < share)


COLUMNS = {
    "floats": with_nulls(pa.array(FLOATS)),
    "single floats": pa.array(np.float32(RANDOM.normal(0, 1, COUNT))),
    "whole": with_nulls(pa.array(WHOLE)),
    "large": pa.array(RANDOM.choice([2**62, -(2**62) - 1], COUNT)[np.argsort(RANDOM.random(COUNT))] // 64),
    "small": with_nulls(pa.array(RANDOM.integers(-9, 9, COUNT), pa.int16())),
    "times": with_nulls(pa.array(WHOLE, pa.timestamp("us"))),
    "booleans": with_nulls(pa.array(WHOLE % 3 == 0)),
    "nulls alone": pa.nulls(COUNT, pa.float64()),
    "words": with_nulls(pa.array([f"w{value % 9}" for value in WHOLE])),
    "no words": pa.nulls(COUNT, pa.string()),
    "decimals": with_nulls(pa.array(WHOLE, pa.int64()).cast(pa.decimal128(30, 0))),
    "structures": with_nulls(pa.array([{"a": int(value) % 4, "b": f"{value % 3}"} for value in WHOLE])),
}


def alone(function: str, values: pa.Array, kind: pa.DataType, of: np.ndarray) -> list[object]:
    """Of each row, the aggregate of what is so far, made by `Aggregate`."""
    row = np.concatenate([np.arange(begin, at + 1) for at, begin in enumerate(START)])
    which = np.repeat(np.arange(COUNT), np.arange(COUNT) - START + 1)
    taken = pa.array([v if there else None for v, there in zip(values.to_pylist(), of, strict=True)], values.type).take(pa.array(row))
    totals = Aggregate(pa.schema([("at", pa.int64()), ("x", values.type)]), ("at",), [AggCall("y", function, "x", kind)])
    batch = pa.RecordBatch.from_arrays([pa.array(which), taken], names=["at", "x"])
    (found,) = totals.process(Rows(batch, np.zeros(row.size, np.int32), None), Tick(0, 0, NO_WATERMARK, NO_WATERMARK))
    return found.batch.column("y").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_it_is_what_the_aggregate_makes_of_the_rows(name: str, some: bool) -> None:
    values, tried = COLUMNS[name], 0
    of = RANDOM.random(COUNT) < 0.6 if some else np.ones(COUNT, np.bool_)
    for function in sorted(FUNCTIONS - {"first", "last"}):
        if can_be_so_far(function, values.type):
            kind = result_type(function, values.type)
            found = so_far(function, values, START, kind, of if some else None)
            assert found.type == kind
            assert [repr(value) for value in found.to_pylist()] == [repr(value) for value in alone(function, values, kind, of)], function
            tried += 1
    assert tried >= 1 and (START[-1] == START).sum() > LONG_ROWS


@pytest.mark.parametrize("name", COLUMNS)
def test_first_and_last_are_of_the_rows_that_count(name: str) -> None:
    values, of = COLUMNS[name].to_pylist(), RANDOM.random(COUNT) < 0.4
    for function, place in (("first", 0), ("last", -1)):
        found = so_far(function, COLUMNS[name], START, COLUMNS[name].type, of).to_pylist()
        for at, value in enumerate(found):
            rows = [row for row in range(START[at], at + 1) if of[row]]
            assert repr(value) == repr(values[rows[place]] if rows else None)


def test_an_average_is_rounded_as_the_aggregate_rounds_it() -> None:
    """The total first: 2^53 + 1 is no double. And no total is too great for an average."""
    values = pa.array([2**53, 1, 0, 2**63 - 1, 2**63 - 1, 2**63 - 1, None, -5, 2**63 - 1])
    start, every = np.array([0, 0, 0, 3, 3, 3, 3, 3, 8]), np.ones(9, np.bool_)
    totals = Aggregate(pa.schema([("at", pa.int64()), ("x", pa.int64())]), ("at",), [AggCall("y", "avg", "x", pa.float64())])
    row = np.concatenate([np.arange(begin, at + 1) for at, begin in enumerate(start)])
    batch = pa.RecordBatch.from_arrays([pa.array(np.repeat(np.arange(9), np.arange(9) - start + 1)), values.take(row)], names=["at", "x"])
    (found,) = totals.process(Rows(batch, np.zeros(row.size, np.int32), None), Tick(0, 0, NO_WATERMARK, NO_WATERMARK))
    wanted = found.batch.column("y").to_pylist()
    assert wanted[:3] == [2.0**53, 2.0**52, 2.0**53 / 3] != [2.0**53, 2.0**52, (2**53 + 1) / 3]
    assert so_far("avg", values, start, pa.float64(), every).to_pylist() == wanted
    assert framed("avg", values, start, np.arange(1, 10), pa.float64()).to_pylist() == wanted


def test_a_sum_that_leaves_bigint_says_so() -> None:
    values = pa.array([2**62, 2**62, 1])
    with pytest.raises(ArithmeticOverflow, match="bigint"):
        so_far("sum", values, np.zeros(3, np.int64), pa.int64())
    assert so_far("sum", values, np.array([0, 1, 1]), pa.int64()).to_pylist() == [2**62, 2**62, 2**62 + 1]
    assert so_far("count", None, np.array([0, 0, 2]), pa.int64()).to_pylist() == [1, 2, 1]
    assert so_far("max", pa.array([], pa.int64()), np.empty(0, np.int64), pa.int64()).to_pylist() == []
