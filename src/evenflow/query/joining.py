"""Joins as they are drawn and checked: what `stream.join(...)` says, and what a join box makes of its inputs.

kind        params
join        join: Join; two inputs, left and right
table_join  join: Join, table: pyarrow.Table or RefreshedTable
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.check import Outcome, StreamType, known, naming
from evenflow.query.duration import duration_us
from evenflow.query.given import box_name, names_of
from evenflow.query.join import (
    Join,
    check_bounds,
    check_keys,
    compile_condition,
    joined_time,
    out_columns,
    parse_how,
    split_condition,
)
from evenflow.query.tables import RefreshedTable, refreshed_tables, table_of

if TYPE_CHECKING:
    from evenflow.query.builder import Stream

TABLE_BYTES: Final = 2**28
"""A table that is joined is sent to every site, and must not be larger."""


# ---------------------------------------------------------------- what a box makes of its inputs


def join_outcome(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    """Of a join of two streams. Raises QueryError, UnknownColumn or TypeMismatch, naming the box."""
    join: Join = params["join"]
    left, right = inputs
    with naming(name):
        schema = _joined(name, join, left.schema, right.schema)
        check_bounds(join, left.event_time, right.event_time)
        time = joined_time(join, out_columns(join, left.schema, right.schema), left.event_time, right.event_time)
    schemas = (schema, left.schema, right.schema)
    if time is None:
        return Outcome(schemas)
    column, lag_us = time
    return Outcome(schemas, column, max(left.watermark_delay_us or 0, right.watermark_delay_us or 0) + lag_us)


def table_join_outcome(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    """Of a join of a stream with a table. Raises QueryError, UnknownColumn or TypeMismatch, naming the box."""
    join: Join = params["join"]
    table: pa.Table | RefreshedTable = params["table"]
    (given,) = inputs
    if join.keeps_right:
        raise QueryError(
            f"box {name!r}: a {join.how} join would put out rows of the table that no row of the stream has matched, but the stream may "
            "bring one for ever; use how='inner', 'left', 'semi' or 'anti'"
        )
    if isinstance(table, pa.Table) and table.nbytes > TABLE_BYTES:
        raise QueryError(
            f"box {name!r}: the table has {table.nbytes:,} bytes and is sent to every site; leave out columns and rows until it has "
            f"{TABLE_BYTES:,}, or join with it as a stream"
        )
    with naming(name):
        schema = _joined(name, join, given.schema, table.schema)
    time = given.event_time
    return Outcome((schema,), time, None if time is None else given.watermark_delay_us)


def _joined(name: str, join: Join, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """The columns that come out, if the join is possible."""
    if not join.left_keys or len(join.left_keys) != len(join.right_keys):
        raise QueryError(f"box {name!r} joins by no key; name columns that must be equal: on=['id'], or 'l.id = r.id' in the condition")
    for schema, keys in ((left, join.left_keys), (right, join.right_keys)):
        for key in keys:
            if pa.types.is_nested(known(name, key, schema).type):
                raise TypeMismatch(f"box {name!r}: {key!r} is {schema.field(key).type} and cannot be a key; use a column of a plain type")
    check_keys(join, left, right)
    if join.condition is not None:
        compile_condition(join.condition, left, right)
    return pa.schema([column.field for column in out_columns(join, left, right)])


# ---------------------------------------------------------------- drawing


def draw_join(
    left: Stream, right: Any, on: str | Sequence[str] | None, how: str, condition: str | None,
    within: str | timedelta | None, suffix: str | None, unbounded: bool, name: str | None,
) -> Stream:  # fmt: skip
    """See `Stream.join`."""
    box = left.flow.free("join") if name is None else box_name(name, "join")
    with naming(box):
        names = _names(box, on)
        join = Join(parse_how(how), names, names, names, suffix=suffix, unbounded=unbounded)
    if isinstance(right, type(left)):
        with naming(box):
            join = _timed(join, left.type, right.type, condition, within)
        return left.flow.add("join", {"join": join}, (left, right), name, "join")
    if within is not None or unbounded:
        raise QueryError(f"box {box!r}: a table has no event time and is held whole; leave out within and unbounded")
    table = right if isinstance(right, RefreshedTable) else table_of(box, right)
    if isinstance(table, RefreshedTable) and any(
        other.name == table.name and other is not table for other in refreshed_tables(left.flow.network)
    ):
        raise QueryError(f"box {box!r}: two tables are called {table.name!r}; give one of them another name")
    with naming(box):
        join = _split(join, condition, left.schema, table.schema, None, None)
    return left.flow.add("table_join", {"join": join, "table": table}, (left,), name, "join")


def _names(box: str, on: str | Sequence[str] | None) -> tuple[str, ...]:
    for column in () if on is None or isinstance(on, str) else on if isinstance(on, list | tuple) else (on,):
        if not isinstance(column, str):
            raise QueryError(f"`on` has names of columns that both sides have, not {column!r:.60}; write condition='l.a = r.b'")
    return () if on is None else names_of(box, "on", on)


def _timed(join: Join, left: StreamType, right: StreamType, condition: str | None, within: str | timedelta | None) -> Join:
    """The join with its bounds in event time."""
    join = _split(join, condition, left.schema, right.schema, left.event_time, right.event_time)
    lows, highs = [join.low_us], [join.high_us]
    if within is not None:
        span_us = duration_us(within)
        if left.event_time is None or right.event_time is None:
            raise QueryError("`within` is about event time; declare .with_watermark('ts', '10 seconds') on both streams")
        lows, highs = [*lows, -span_us], [*highs, span_us]
    if any(pair == (left.event_time, right.event_time) for pair in zip(join.left_keys, join.right_keys, strict=True)):
        lows, highs = [*lows, 0], [*highs, 0]
    low_us = max((low for low in lows if low is not None), default=None)
    return replace(join, low_us=low_us, high_us=min((high for high in highs if high is not None), default=None))


def _split(join: Join, condition: str | None, left: pa.Schema, right: pa.Schema, left_time: str | None, right_time: str | None) -> Join:
    if condition is None:
        return join
    if not isinstance(condition, str):
        raise QueryError(f"the condition {condition!r} is not a string; write an expression such as 'l.price > r.least'")
    found = split_condition(condition, left, right, left_time, right_time)
    left_keys = (*join.left_keys, *(key for key, _ in found.keys))
    right_keys = (*join.right_keys, *(key for _, key in found.keys))
    return replace(join, left_keys=left_keys, right_keys=right_keys, low_us=found.low_us, high_us=found.high_us, condition=found.rest)
