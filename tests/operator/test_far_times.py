"""Times in structures and lists beyond those of Python, which has the years 1 to 9999: no operator ends the run for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.operator.aggregate_cases import make_rows

from evenflow.operator.changes.rank import Rank
from evenflow.operator.complete import Complete
from evenflow.operator.order import Order
from evenflow.operator.top import Top
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.operator.user.gathered import MOST_WORDS, Gathered
from evenflow.operator.user.kept_fields import KeptFields
from evenflow.operator.user.process import Process
from evenflow.operator.user.spanned import Spanned
from evenflow.query import spanned
from evenflow.query.aggregates import AggCall, TimeWindow
from evenflow.query.latest import Latest
from evenflow.query.ranked import Place, Ranked
from evenflow.stream.change import CHANGE_FIELD, INSERT, all_say
from evenflow.stream.epoch import END_OF_STREAM, NO_WATERMARK, Tick
from evenflow.stream.schema import ddl_of, type_name
from evenflow.stream.values import plain_values

KEYS, MOST, EPOCHS = ("k",), 2**63 - 1, 3
FAR = [MOST, 253402300800000000, -MOST, 5]
"""Microseconds: the last ones, the year 10000, the first ones, and a time that Python has."""
Factory = Callable[[pa.Schema], Any]


def schema_of(time: pa.DataType) -> pa.Schema:
    """time: of the times inside."""
    inside = [("since", time), ("until", pa.list_(time))]
    return pa.schema(
        [("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.int64()), ("valid", pa.struct(inside)), ("all", pa.list_(time))]
    )


def epoch_of(number: int, schema: pa.Schema) -> pa.RecordBatch:
    times = [FAR[(at + number) % len(FAR)] for at in range(8)]
    columns = [
        pa.array([at % 2 for at in range(8)]),
        pa.array([10 * number + at // 4 for at in range(8)]).view(pa.timestamp("us")),
        pa.array([at // 3 for at in range(8)]),
        pa.array(
            [None if at == 6 else {"since": time, "until": [time, None]} for at, time in enumerate(times)], schema.field("valid").type
        ),
        pa.array([[time, None] for time in times], schema.field("all").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_changes(schema: pa.Schema) -> pa.Schema:
    return schema.append(CHANGE_FIELD)


def gathered(schema: pa.Schema, more: int) -> Gathered:
    """The rows of a key and epoch are in two parts, which come in two epochs. more: further columns, with which fields are lists."""
    wide = [(f"m{at}", pa.int32()) for at in range(more)]
    columns = pa.schema([("k", pa.int64()), schema.field("valid"), schema.field("all"), ("x", pa.int64()), *wide])
    parts = ("k", "valid", "all"), ("k", "x", *(name for name, _ in wide))
    given = columns.append(pa.field("part", pa.int32()))
    return Gathered(given, KEYS, spanned.Gathered(ddl_of(columns), "part", parts))


def over(schema: pa.Schema, *places: Place) -> Spanned:
    return Spanned(schema, KEYS, spanned.Spanned(ddl_of(schema), "ts", places, ("valid", "all")))


def calls(schema: pa.Schema) -> list[AggCall]:
    valid, every = schema.field("valid").type, schema.field("all").type
    return [AggCall("most", "max", "valid", valid), AggCall("all_of", "collect_list", "all", pa.list_(every))]


def latest(schema: pa.Schema) -> Process:
    """The rows of the first epoch are right ones, the others left ones."""
    valid, every = schema.field("valid").type, schema.field("all").type
    kept = ("right_0__", "was", type_name(valid)), ("right_1__", "all_of", type_name(every))
    given = pa.schema([schema.field("k"), ("left__", pa.bool_()), ("gone__", pa.bool_()), ("right_0__", valid), ("right_1__", every)])
    output = ddl_of(pa.schema([schema.field("k"), ("was", valid), ("all_of", every)]))
    return Process(KEYS, Latest(output, kept, True), given, verify=True)


def given_to(operator: Any, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """The rows of an epoch as the operator takes them; of those that want parts, the first part and then the other."""
    if isinstance(operator, Complete | Rank):
        return batch.append_column(CHANGE_FIELD, all_say(INSERT, batch.num_rows))
    if not isinstance(operator, Gathered | Process) or isinstance(operator, Spanned):
        return batch
    some = batch.slice(0, 2)
    if isinstance(operator, Gathered):
        given = operator.schemas[1]
        part = pa.array([(number + 1) % 2] * 2, pa.int32())
        found = {**dict(zip(some.schema.names, some.columns, strict=True)), "part": part}
        return pa.RecordBatch.from_arrays([found.get(name, pa.array([1, 2], pa.int32())) for name in given.names], schema=given)
    left = pa.array([number > 1, number > 1])
    columns = [some["k"], left, pa.array([False, False]), some["valid"], some["all"]]
    return pa.RecordBatch.from_arrays(columns, schema=operator.schemas[1])


OPERATORS: dict[str, Factory] = {
    "order": lambda schema: Order("ts", ("valid", "all"), schema),
    "top": lambda schema: Top(schema, KEYS, TimeWindow("ts", 10, 10), 3, [("x", True)]),
    "complete": lambda schema: Complete(with_changes(schema), every_us=1, by=[("x", True)]),
    "rank": lambda schema: Rank(
        with_changes(schema), KEYS, Ranked(ddl_of(schema), (("valid", False),), (Place("n", "row_number"), Place("was", "lag", "all", -1)))
    ),
    "changelog": lambda schema: Aggregate(schema, KEYS, calls(schema), changes=True),
    "rows before": lambda schema: over(schema, Place("was", "lag", "valid", -1), Place("least", "min", "all", -2, 0)),
    "rows ahead": lambda schema: over(schema, Place("next", "lead", "valid", 1), Place("all_of", "first_value", "all", -1, 1)),
    "so far": lambda schema: over(
        schema, Place("most", "max", "valid", None, 0), Place("first", "first_value", "all", None, 0), Place("at", "rank")
    ),
    "parts": lambda schema: gathered(schema, 0),
    "parts of wide rows": lambda schema: gathered(schema, MOST_WORDS + 1),
    "latest": latest,
}


def outcome(factory: Factory, time: pa.DataType) -> list[Any]:
    """Plain values of what comes out, and of what is shown of the state, of an operator whose partitions move after each epoch."""
    schema, found = schema_of(time), list[Any]()
    operator, before = factory(schema), NO_WATERMARK
    for number in range(1, EPOCHS + 1):
        batch = given_to(operator, epoch_of(number, schema), number)
        after = END_OF_STREAM if number == EPOCHS else 10 * number
        out = operator.process(make_rows(batch, KEYS, 1), Tick(number, number, before, after))
        found.append([plain_values(column) for column in out[0].batch.columns])
        moved, before = factory(schema), after
        if (snapshot := operator.capture(0)) is not None:
            state = snapshot.to_bytes()
            moved.install(0, state)
            if isinstance(operator, Process):
                looked = KeptFields(operator.schemas[1], KEYS, operator.fields)
                looked.install(0, state)
                found.append([plain_values(column) for column in looked.show(0).columns])
        operator = moved
    assert str(MOST) in repr(found)
    return found


@pytest.mark.parametrize("time", [pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_times_inside_are_as_good_as_their_numbers(name: str, time: pa.DataType) -> None:
    assert outcome(OPERATORS[name], time) == outcome(OPERATORS[name], pa.int64())
