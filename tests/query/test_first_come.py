"""`to(sink, unordered=True)`: who may ask for it, what it says in words, and that it goes wherever a dataflow goes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.exchange.routing import wire_schema
from evenflow.plan.layout import FROM_COLUMN
from evenflow.query.export import to_python
from evenflow.query.planner import layout
from evenflow.query.structure import structure
from evenflow.sinks.sink import Sink

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def flow_to(sink: Sink, unordered: Any) -> ef.Dataflow:
    flow = ef.Dataflow("first")
    flow.source(ef.sources.memory([], schema=ROWS), name="in").group_by("k").agg(n="count(*)").to(sink, unordered=unordered, name="out")
    return flow


def test_it_is_in_all_that_draws_and_comes_back() -> None:
    flow = flow_to(ef.sinks.memory("kept"), True)
    assert ef.Dataflow.from_json(flow.to_json()).network == flow.network
    assert "first come, first served" in flow.to_text() and "unordered=True, name='out'" in to_python(flow.network).replace('"', "'")
    plain = flow_to(ef.sinks.memory("kept"), False)
    assert "unordered" not in plain.to_json() and "first come" not in plain.to_text()


def test_rows_say_whose_they_are_and_a_location_of_before_goes_on() -> None:
    """A program without it is described as ever, so that what is journalled goes on; one with it is another one."""
    plain, asked = (layout(flow_to(ef.sinks.memory("kept"), given).network, sites=2) for given in (False, True))
    assert [s.unordered for s in plain.segments] == [False] * 3 and [s.unordered for s in asked.segments] == [False, False, True]
    assert FROM_COLUMN in wire_schema(asked.arcs[-1], asked).names
    assert "unordered" not in str(structure(plain)) and structure(plain) != structure(asked)


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        (ef.sinks.parquet("/tmp/somewhere"), "a parquet sink commits whole epochs"),
        (ef.sinks.kafka("localhost:9092", "topic"), "a kafka sink hands on whole epochs"),
        (ef.sinks.stream(0), "a stream sink hands on whole epochs"),
        (ef.sinks.spark(), "a spark sink is read by whole epochs"),
        (ef.sinks.discard(), "a discard sink puts nothing out"),
    ],
    ids=lambda given: given.kind if isinstance(given, Sink) else "",
)
def test_sinks_of_whole_epochs_refuse_it_and_say_what_to_do(sink: Sink, why: str) -> None:
    with pytest.raises(QueryError, match=f"box 'out': {why}.*leave unordered out, or use sinks.callback"):
        flow_to(sink, True)
    flow_to(ef.sinks.console(), True)


def test_a_value_that_is_none_is_refused() -> None:
    with pytest.raises(QueryError, match="unordered is 'yes'; give True"):
        flow_to(ef.sinks.memory("kept"), "yes")
