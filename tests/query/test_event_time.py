"""Windows that come more than once and sources that are idle, as they are drawn: what comes behind them, JSON, SQL, mistakes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.planner import layout

TABLE = pa.table({"ts": pa.array([], pa.timestamp("us")), "k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})


def start(**more: Any) -> ef.Stream:
    return ef.Dataflow("times").source(ef.sources.memory(TABLE), name="in").with_watermark("ts", "1 second", **more)


@pytest.mark.parametrize("more", [{"mode": "update"}, {"allowed_lateness": "1 minute"}])
def test_windows_that_come_more_than_once_have_no_event_time(more: dict[str, Any]) -> None:
    made = start().group_by("k").window("10 seconds", **more).agg(n="count(*)")
    assert made.event_time is None and made.late().columns == ["ts", "k", "v"]
    with pytest.raises(QueryError, match="needs event time"):
        made.group_by("k").window("1 minute")
    assert start().group_by("k").window("10 seconds").agg(n="count(*)").event_time == "window_end"


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda s: s.window("1 minute", mode="always").agg(n="count(*)"), "the mode of its windows is 'always'; it must be"),
        (lambda s: s.window("1 minute", allowed_lateness="1 hour").top(3, order_by="v"), "the rows of top come once"),
        (lambda s: s.window("1 minute", allowed_lateness="soon").agg(n="count(*)"), "soon"),
    ],
)
def test_mistakes_of_windows(draw: Any, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        draw(start().group_by("k"))


@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_ordered_functions_can_take_rows_as_they_come_or_sort_those_of_a_window(order: Any) -> None:
    made = start().group_by("k").window("1 minute", mode="update").agg(last="last(v)", order=order)
    assert made.box.params["order"] == order
    made.to(ef.sinks.discard())
    kinds = [step.kind for segment in layout(made.flow.network, sites=2).segments for step in segment.steps]
    assert "order" not in kinds


def test_partial_results_are_computed_before_the_exchange_in_update_mode_too() -> None:
    made = start().group_by("k").window("1 minute", mode="update").agg(n="count(*)").to(ef.sinks.discard())
    steps = [step.kind for segment in layout(made.flow.network, sites=2).segments for step in segment.steps]
    assert "combine" in steps


def test_it_survives_json_and_is_told() -> None:
    made = start(idle="30 seconds").group_by("k").window("1 minute", mode="update", allowed_lateness="5 seconds").agg(n="count(*)")
    flow = made.to(ef.sinks.discard()).flow
    again = ef.Dataflow.from_json(flow.to_json())
    assert again.to_json() == flow.to_json()
    assert "idle after 30 s" in flow.to_text() and "update mode, rows up to 5 s late" in flow.to_text()


@pytest.mark.parametrize("idle", ["0 seconds", "never"])
def test_a_source_is_idle_after_some_time(idle: str) -> None:
    with pytest.raises(QueryError, match="box 'watermark'"):
        start(idle=idle)


def test_a_view_says_when_its_source_is_idle() -> None:
    text = "CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '10', event_time 'dateTime', idle '5 seconds'); SELECT price FROM bid"
    watermark = next(box for box in ef.sql(text).flow.network if box.kind == "watermark")
    assert (watermark.params["delay_us"], watermark.params["idle_us"]) == (0, 5_000_000)
    with pytest.raises(QueryError, match="delay and idle are about the watermark"):
        ef.sql("CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '10', idle '5 seconds'); SELECT price FROM bid")
