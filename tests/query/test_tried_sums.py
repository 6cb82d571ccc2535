"""try_sum and try_avg of decimals are null where their sum has no room, and no error: each answer here is batch Spark's."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import ArithmeticOverflow, QueryError
from evenflow.testing import run, source

LARGE = Decimal("9" * 38)
ROWS = pa.table({
    "k": ["a", "a", "b", "c"],
    "n": pa.array([1, 2, 3, 4], pa.int32()),
    "x": pa.array([LARGE, LARGE, Decimal(5), None], pa.decimal128(38, 0)),
    "s": pa.array([Decimal("1.50"), Decimal("2.25"), None, Decimal("4.00")], pa.decimal128(20, 2)),
})  # fmt: skip


def asked(text: str) -> list[tuple[Any, ...]]:
    flow = ef.Dataflow("q")
    ef.sql(text, {"h": flow.source(source(ROWS.schema), name="h")}, output_mode="changelog").to(ef.sinks.memory("out"), name="out")
    rows = run(flow, {"h": ROWS}, epoch_rows=4, sites=1).table("out").drop_columns("_change").to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT try_sum(x) AS t, try_avg(x) AS a FROM h", [(None, None)]),
        (
            "SELECT k, try_sum(x) AS t, try_avg(x) AS a FROM h GROUP BY k",
            [("a", None, None), ("b", Decimal(5), Decimal("5.0000")), ("c", None, None)],
        ),
        (
            "SELECT k, try_sum(x) FILTER (WHERE n > 0) AS t, try_avg(x) FILTER (WHERE n < 4) AS a, try_sum(x) + 1 AS o FROM h GROUP BY k",
            [("a", None, None, None), ("b", Decimal(5), Decimal("5.0000"), Decimal(6)), ("c", None, None, None)],
        ),
        ("SELECT k FROM h GROUP BY k HAVING try_avg(x) IS NULL", [("a",), ("c",)]),
        ("SELECT try_sum(s) AS t, try_avg(s) AS a FROM h", [(Decimal("7.75"), Decimal("2.583333"))]),
        ("SELECT try_sum(n) AS t, try_avg(n) AS a, try_avg(CAST(n AS double)) AS d FROM h", [(10, 2.5, 2.5)]),
        ("SELECT n, try_sum(s) OVER (ORDER BY n) AS t FROM h WHERE n < 3", [(1, Decimal("1.50")), (2, Decimal("3.75"))]),
    ],
)
def test_as_spark(text: str, wanted: list[tuple[Any, ...]]) -> None:
    assert asked(text) == wanted


@pytest.mark.parametrize("call", ["sum(x)", "avg(x)"])
def test_plain_sums_and_averages_are_errors(call: str) -> None:
    with pytest.raises(ArithmeticOverflow):
        asked(f"SELECT k, {call} AS t FROM h GROUP BY k")


@pytest.mark.parametrize("call", ["try_sum(x)", "try_avg(x)", "try_avg(x) FILTER (WHERE n > 1)"])
def test_over_rows_what_may_overflow_is_refused(call: str) -> None:
    with pytest.raises(QueryError, match=r"try_sum and try_avg OVER rows are not of decimal\(38,0\)"):
        asked(f"SELECT k, {call} OVER (PARTITION BY k) AS t FROM h")
