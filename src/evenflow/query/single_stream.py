"""The boxes on one stream besides those that every query has: what they make of their input, and which step runs them.

`check` asks JUDGES, the planner asks `keyed_step` and `calls_user_code`.

    kind        params
    dedup       keys, within: bool, order, tie_break
    top         keys, window: TimeWindow, count, by: ((column, descending), ...), order and tie_break: None
    resample    keys, step_us, columns, how: "linear" or "previous", gap_us: int or None, order: "event_time", tie_break
    pattern     keys, pattern, define: ((variable, condition), ...), measures: ((name, expression), ...), within_us,
                skip: "past last row" or "to next row", order: "event_time", tie_break
    bsort       keys, column, size, order: "arrival", tie_break: None
    sort        keys, order: "event_time", tie_break
    complete    every_us, by: ((column, descending), ...), limit: int or None, keys: (), order and tie_break: None
    explode     column, into, position: name or None, outer: bool
    flat_map    function, output: DDL
    case        conditions: (expression or function, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.aggregates import exploded_schema, resampled_schema, top_schema
from evenflow.query.changelog import check_complete
from evenflow.query.check import (
    Outcome,
    StreamType,
    check_distinct,
    check_keys,
    check_order,
    check_printable,
    check_time_window,
    expression_field,
    known,
    naming,
)
from evenflow.query.columns import is_user_code
from evenflow.query.matching import LONGEST_WITHIN_US, MATCH_END, MATCH_START, PAST_LAST_ROW, TO_NEXT_ROW, match_schema, understood
from evenflow.query.network import Box
from evenflow.stream.schema import parse_ddl

Judge = Callable[[str, Mapping[str, Any], Sequence[StreamType]], Outcome]

LARGEST_BUFFER: Final = 65_536
"""Rows of a bsort's buffer, at most: each key that has rows in an epoch reads and writes its own."""


# ---------------------------------------------------------------- by key


def _dedup(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given = inputs[0]
    check_keys(name, params["keys"], given.schema, least=1)
    check_order(name, params, given)
    if not isinstance(params["within"], bool):
        raise QueryError(f"box {name!r}: within_watermark is {params['within']!r}; it must be True or False")
    if params["within"] and given.event_time is None:
        raise QueryError(
            f"box {name!r}: within_watermark needs event time; add .with_watermark('ts', '10 seconds') before, or leave it out "
            "to remember keys for ever"
        )
    return Outcome((given.schema, given.schema), given.event_time, given.watermark_delay_us)


def _top(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, window = inputs[0], params["window"]
    check_keys(name, params["keys"], given.schema, least=0)
    check_time_window(name, window.size_us, window.slide_us, window.column, given)
    if not window.final:
        raise QueryError(f"box {name!r}: the rows of top come once; leave out mode and allowed_lateness of its window")
    _check_count(name, "top", params["count"], 1)
    if not params["by"]:
        raise QueryError(f"box {name!r}: top of what order? name a column, such as order_by='length desc'")
    for column, descending in params["by"]:
        _check_plain(name, known(name, column, given.schema), "order rows")
        if not isinstance(descending, bool):
            raise QueryError(f"box {name!r}: {column!r} is ordered {descending!r}; write '{column} desc' or '{column} asc'")
    schema = top_schema(given.schema, params["keys"], window)
    check_distinct(name, schema.names, "top adds window_start, window_end and rank: rename the input's column in a select before")
    return Outcome((schema, given.schema), "window_end", given.watermark_delay_us)


def _resample(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, columns, how, gap_us = inputs[0], params["columns"], params["how"], params["gap_us"]
    check_keys(name, params["keys"], given.schema, least=0)
    check_order(name, params, given)
    if given.event_time is None or params["order"] != "event_time":
        raise QueryError(f"box {name!r}: resample needs event time; add .with_watermark('ts', '10 seconds') before")
    if how not in ("linear", "previous"):
        raise QueryError(f"box {name!r}: how is {how!r}; it must be 'linear' or 'previous'")
    if not columns:
        raise QueryError(f"box {name!r} resamples no column; name at least one")
    _check_count(name, "a step of resample in microseconds", params["step_us"], 1)
    if gap_us is not None:
        _check_count(name, "max_gap in microseconds", gap_us, 1)
    for column in columns:
        kind = known(name, column, given.schema).type
        if how == "linear" and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise TypeMismatch(f"box {name!r}: {column!r} is {kind} and has no values in between; use how='previous', or cast it to double")
    schema = resampled_schema(given.schema, params["keys"], given.event_time, columns, linear=how == "linear")
    check_distinct(name, schema.names, "name neither keys nor the event time, and each column once")
    if gap_us is None:
        # A value may be as old as a key has been silent, so no watermark holds for what comes out.
        return Outcome((schema, given.schema))
    return Outcome((schema, given.schema), given.event_time, (given.watermark_delay_us or 0) + gap_us)


def _pattern(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, within_us = inputs[0], params["within_us"]
    check_keys(name, params["keys"], given.schema, least=0)
    check_order(name, params, given)
    if given.event_time is None or params["order"] != "event_time":
        raise QueryError(f"box {name!r}: a pattern needs event time; add .with_watermark('ts', '10 seconds') before")
    if params["skip"] not in (PAST_LAST_ROW, TO_NEXT_ROW):
        raise QueryError(f"box {name!r}: skip is {params['skip']!r}; it must be {PAST_LAST_ROW!r} or {TO_NEXT_ROW!r}")
    if isinstance(within_us, bool) or not isinstance(within_us, int) or not 0 < within_us <= LONGEST_WITHIN_US:
        raise QueryError(f"box {name!r}: within is {within_us!r} microseconds; say how long a match may take, such as '10 minutes'")
    with naming(name):
        matching = understood(given.schema, params["pattern"], params["define"], params["measures"])
    schema = match_schema(matching, params["keys"], given.event_time)
    check_distinct(name, schema.names, f"{MATCH_START} and {MATCH_END} are the bounds of the match: rename the other in measures or before")
    check_printable(name, schema)
    return Outcome((schema, given.schema), MATCH_END, (given.watermark_delay_us or 0) + within_us)


def _bsort(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given = inputs[0]
    check_keys(name, params["keys"], given.schema, least=0)
    check_order(name, params, given)
    _check_plain(name, known(name, params["column"], given.schema), "order rows")
    _check_count(name, "the buffer of bsort", params["size"], 1, LARGEST_BUFFER)
    return Outcome((given.schema,))  # Rows are held back by number, not by time, so no watermark holds for them.


def _sort(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given = inputs[0]
    check_keys(name, params["keys"], given.schema, least=0)
    check_order(name, params, given)
    if given.event_time is None or params["order"] != "event_time":
        raise QueryError(f"box {name!r}: sort needs event time; add .with_watermark('ts', '10 seconds') before, or use bsort(...)")
    return Outcome((given.schema, given.schema), given.event_time, given.watermark_delay_us)


def _complete(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    schema = check_complete(name, inputs[0].schema)
    _check_count(name, "every in microseconds", params["every_us"], 1)
    if params["limit"] is not None:
        _check_count(name, "the limit of a table", params["limit"], 1)
    for column, _ in params["by"]:
        known(name, column, schema)
    return Outcome((schema, inputs[0].schema))


# ---------------------------------------------------------------- row by row


def _explode(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, column = inputs[0], params["column"]
    kind = known(name, column, given.schema).type
    if not pa.types.is_list(kind):
        raise TypeMismatch(f"box {name!r}: {column!r} is {kind}, not a list; explode a column such as collect_list or split gives")
    schema = exploded_schema(given.schema, column, params["into"], params["position"])
    check_distinct(name, schema.names, "call the element something else with into='...'")
    check_printable(name, schema)
    return Outcome((schema,), given.event_time, given.watermark_delay_us)


def _flat_map(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, output = inputs[0], params["output"]
    if not callable(params["function"]):
        raise QueryError(f"box {name!r}: flat_map takes a function of a batch, not {params['function']!r}")
    if not isinstance(output, str) or not output.strip():
        raise QueryError(f"box {name!r} does not say what it puts out; add output='app string, dur double'")
    with naming(name):
        schema = parse_ddl(output)
    time = given.event_time
    keeps = time is not None and time in schema.names and pa.types.is_timestamp(schema.field(time).type)
    return Outcome((schema,), time if keeps else None, given.watermark_delay_us if keeps else None)


def _case(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, conditions = inputs[0], params["conditions"]
    if not conditions:
        raise QueryError(f"box {name!r} has no condition; write .case('x > 1', 'x < 0')")
    for condition in conditions:
        kind = expression_field(name, "condition", condition, given.schema).type
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise TypeMismatch(f"box {name!r}: the condition {condition!r} is {kind}, not boolean; write a comparison such as x > 0")
    return Outcome((given.schema,) * (len(conditions) + 1), given.event_time, given.watermark_delay_us)


JUDGES: Final[Mapping[str, Judge]] = {
    "dedup": _dedup, "top": _top, "resample": _resample, "pattern": _pattern, "bsort": _bsort, "sort": _sort, "complete": _complete,
    "explode": _explode, "flat_map": _flat_map, "case": _case,
}  # fmt: skip


def _check_count(name: str, what: str, count: Any, least: int, most: int | None = None) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < least or (most is not None and count > most):
        upper = "" if most is None else f" and at most {most:,}"
        raise QueryError(f"box {name!r}: {what} is {count!r}; it must be a whole number, at least {least}{upper}")


def _check_plain(name: str, field: pa.Field, purpose: str) -> None:
    if pa.types.is_nested(field.type):
        raise TypeMismatch(f"box {name!r}: {field.name!r} is {field.type} and cannot {purpose}; use a column of a plain type")


# ---------------------------------------------------------------- how they run


@dataclass(frozen=True, slots=True)
class KeyedStep:
    """How a box with state per key runs.

    cares: its result depends on the order of a key's rows. keeps_key: it puts the key columns out as they were, and what is behind it
    may stay. lag_us: how far the event time of its rows may be behind the watermark.
    """

    params: Mapping[str, Any]
    cares: bool
    keeps_key: bool = True
    lag_us: int = 0


def keyed_step(box: Box, given: StreamType) -> KeyedStep:
    """The step of a box with state per key. given: its input."""
    return _KEYED_STEPS[box.kind](box, given)


def _dedup_step(box: Box, given: StreamType) -> KeyedStep:
    keys, time = tuple(box.params["keys"]), dedup_time(box.params, given.event_time)
    delay_us = given.watermark_delay_us or 0 if box.params["within"] else 0
    return KeyedStep({"keys": keys, "time": time, "delay_us": delay_us}, cares=set(keys) != set(given.schema.names))


def dedup_time(params: Mapping[str, Any], event_time: str | None) -> str | None:
    """The column by which a dedup box forgets keys, or None: it remembers them for ever."""
    return event_time if params["within"] or event_time in params["keys"] else None


def _top_step(box: Box, given: StreamType) -> KeyedStep:
    by = tuple((column, descending) for column, descending in box.params["by"])
    return KeyedStep(
        {"keys": tuple(box.params["keys"]), "window": box.params["window"], "count": box.params["count"], "by": by}, cares=False
    )


def _resample_step(box: Box, given: StreamType) -> KeyedStep:
    keys, columns, gap_us = tuple(box.params["keys"]), tuple(box.params["columns"]), box.params["gap_us"]
    params = {"keys": keys, "time": given.event_time, "step_us": box.params["step_us"], "columns": columns}
    # What comes out may be older than the watermark here, so what goes by that may not stay in the same segment.
    return KeyedStep({**params, "how": box.params["how"], "gap_us": gap_us}, cares=True, keeps_key=False, lag_us=gap_us or 0)


def _pattern_step(box: Box, given: StreamType) -> KeyedStep:
    params = {name: box.params[name] for name in ("pattern", "within_us", "skip")}
    written = {name: tuple((one, text) for one, text in box.params[name]) for name in ("define", "measures")}
    params |= {**written, "keys": tuple(box.params["keys"]), "time": given.event_time}
    # A match is put out when nothing better can come, so it is behind the watermark by as much as it may take.
    return KeyedStep(params, cares=True, keeps_key=False, lag_us=box.params["within_us"])


def _bsort_step(box: Box, given: StreamType) -> KeyedStep:
    return KeyedStep({"keys": tuple(box.params["keys"]), "column": box.params["column"], "size": box.params["size"]}, cares=True)


def _complete_step(box: Box, given: StreamType) -> KeyedStep:
    by = tuple((column, descending) for column, descending in box.params["by"])
    params = {"every_us": box.params["every_us"], "by": by, "limit": box.params["limit"]}
    return KeyedStep(params, cares=False, keeps_key=False)


_KEYED_STEPS: Final = {
    "dedup": _dedup_step, "top": _top_step, "resample": _resample_step, "pattern": _pattern_step, "bsort": _bsort_step,
    "complete": _complete_step,
}  # fmt: skip


def calls_user_code(kind: str, params: Mapping[str, Any]) -> bool:
    """Whether a rowwise box calls functions that the user wrote."""
    return kind == "flat_map" or any(is_user_code(condition) for condition in params.get("conditions", ()))
