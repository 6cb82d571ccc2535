"""Every kind of step has its operator, built from exactly the parameters that the planner gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import QueryError
from evenflow.operator.catalogue import build
from evenflow.plan.layout import Port, Step
from evenflow.processor import Processor
from evenflow.query.aggregates import AggCall, RowWindow, TimeWindow
from evenflow.query.join import Join

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("x", pa.int64())])
JOIN = Join("left", ("k",), ("k",), ("k",), low_us=0, high_us=1, suffix="_r")
CALLS = (AggCall("n", "count", None, pa.int64()), AggCall("total", "sum", "x", pa.int64()))


class Passes(Processor):
    output = "k string"


def step(kind: str, **params: Any) -> Step:
    return Step("box", kind, params, SCHEMA, Port(-1))


def aggregate(window: Any, **more: Any) -> Step:
    return step("aggregate", keys=("k",), calls=CALLS, window=window, **{"partial": False, "time": None, **more})


@pytest.mark.parametrize(
    ("made", "name", "columns"),
    [
        (step("filter", condition="x > 0"), "Filter", ["ts", "k", "x"]),
        (step("select", columns=(("y", "x + 1"),)), "Select", ["y"]),
        (step("watermark", time="ts", delay_us=1), "Watermark", ["ts", "k", "x"]),
        (step("order", time="ts", tie_break=("k",)), "Order", ["ts", "k", "x"]),
        (step("process", keys=("k",), processor=Passes(), time="ts", verify=None), "Process", ["k"]),
        (step("combine", keys=("k",), calls=CALLS, window=None), "Combine", None),
        (aggregate(None), "Aggregate", ["k", "n", "total"]),
        (aggregate(TimeWindow("ts", 10, 10)), "TimeWindowAggregate", ["k", "window_start", "window_end", "n", "total"]),
        (aggregate(RowWindow(10, 2), time="ts"), "RowWindowAggregate", ["k", "ts", "n", "total"]),
        (step("join", join=JOIN, right=SCHEMA, left_time="ts", right_time="ts"), "StreamJoin", ["k", "ts", "x", "ts_r", "x_r"]),
        (step("table_join", join=JOIN, table=SCHEMA.empty_table()), "TableJoin", ["k", "ts", "x", "ts_r", "x_r"]),
        (aggregate(RowWindow(10, 2)), "RowWindowAggregate", ["k", "n", "total"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_builds(made: Step, name: str, columns: list[str] | None) -> None:
    operator = build(made)
    assert type(operator).__name__ == name
    if columns is not None:
        assert operator.schemas[0].names == columns


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(QueryError, match="'box' is of the kind 'joins'"):
        build(step("joins"))
