"""Steps are made again of what is written down of them, as far as that goes, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.plan.layout import Keyed, Port, Step
from evenflow.query.aggregates import AggCall, OwnSessions, RowWindow, SessionWindow, TimeWindow
from evenflow.query.footprint import footprint
from evenflow.query.join import Join
from evenflow.query.recorded import AGGREGATOR, NotRecorded, step_of, type_of, value_of

TYPES = (
    pa.int8(), pa.uint32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.large_string(), pa.date32(),
    pa.null(), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.decimal128(10, 2), pa.decimal128(38, -3), pa.binary(5),
    pa.list_(pa.int64()), pa.list_(pa.field("element", pa.string(), False)), pa.list_(pa.list_(pa.decimal128(3, 1))),
    pa.map_(pa.string(), pa.list_(pa.int32())), pa.dictionary(pa.int32(), pa.string()),
    pa.struct([("a", pa.int32()), ("b c", pa.list_(pa.bool_()))]),
)  # fmt: skip


class Longest(ef.Aggregator):
    output, state = "string", "string"

    def zero(self) -> Any:
        return ""


def written(value: Any) -> Any:
    return json.loads(json.dumps(footprint(value)))


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_is_what_it_was(kind: pa.DataType) -> None:
    assert type_of(str(kind)) == kind and value_of(written(kind)) == kind


@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, "text", -0.5, ("a", ("b",)), {"a": 1}, pa.schema([("k", pa.int64()), pa.field("s", pa.string(), False)]),
        AggCall("n", "sum", "x", pa.int64()), TimeWindow("ts", 60, 20, "update", 5), SessionWindow("ts", 3), RowWindow(4, 2), Keyed(("k",)),
        OwnSessions("ts", ends="e"),
        Join("left", ("k",), ("r",), ("k",), -5, 7, "l.x > r.y", "_r"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_is_what_it_was(value: Any) -> None:
    assert value_of(written(value)) == value


def step(params: dict[str, Any]) -> Any:
    made = Step("box", "aggregate", params, pa.schema([("k", pa.int64())]), Port(-1))
    return {"box": made.box, "kind": made.kind, "params": {n: written(v) for n, v in params.items()}, "columns": written(made.schema)}


def test_of_a_users_aggregator_the_state_is_known() -> None:
    call = AggCall("longest", "longest", None, pa.string(), Longest(), ("s",))
    [found] = step_of(step({"keys": ("k",), "calls": (call,)})).params["calls"]
    assert (found.name, found.function, found.made, found.type) == ("longest", AGGREGATOR, None, pa.string())
    with pytest.raises(NotRecorded, match="depends on its code"):
        step_of(step({"keys": ("k",), "calls": (call,), "tie_break": ()}))


@pytest.mark.parametrize(
    "said",
    [
        {"object": {"class": "os.system"}, "state": {"command": "true"}},
        {"object": {"class": "evenflow.query.aggregates.AggCall", "code": "00"}},
        {"object": {"class": "evenflow.query.aggregates.TimeWindow"}, "state": {"nothing": 1}},
        {"function": "f", "code": "00"},
        {"type": "no such"},
        {"type": "list<item"},
        {"bytes": "00"},
        1.5,
    ],
    ids=str,
)
def test_nothing_else_is_made(said: Any) -> None:
    with pytest.raises(NotRecorded):
        step_of({"box": "b", "kind": "aggregate", "params": {"x": said}, "columns": {"schema": []}})
    with pytest.raises(NotRecorded):
        step_of({"box": "b", "kind": "aggregate"})
