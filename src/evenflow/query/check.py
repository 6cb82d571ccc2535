"""What each kind of box makes of the columns it is given, and what is wrong with it if it makes nothing.

`outcome` is the only judge: the builder asks it for every box it draws, and a network that was loaded from JSON is asked again
box by box. Every error names the box and says what to do.

    | kind | params |
    | --- | --- |
    | source | source: evenflow.sources.Source |
    | filter | condition: expression or function |
    | select | columns: ((name, expression or function), ...); event_time: the column that carries time on, if not the same |
    | union | - |
    | watermark | column, delay_us, idle_us |
    | key_by | columns: (name, ...) |
    | process | keys, processor, order, tie_break, verify |
    | aggregate | keys, calls: (AggCall, ...), window: TimeWindow, SessionWindow, RowWindow or None, order, tie_break, combine, mode |
    | sink | sink: evenflow.sinks.Sink |

The other kinds are where they are judged: `joining`, `single_stream`, `latest`. combine: bool. mode: "changelog", or left out.
order: "event_time" (behind the watermark), "arrival", or None where order does not matter. tie_break: columns that order rows of
equal time, or None for all the others. on_error: "skip" in any of GUARDED adds a port for the rows on which the box raises.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import EvenflowError, ExpressionError, OptionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.plan.layout import FROM_COLUMN, HASH_COLUMN, KEY_GROUPS, TO_COLUMN
from evenflow.query.aggregates import AggCall, RowWindow, SessionWindow, TimeWindow, result_type
from evenflow.query.duration import duration_text
from evenflow.query.expression import compile_expression
from evenflow.query.network import GUARDED, LATE_PORT, Box, Kind, Network, is_aside
from evenflow.query.timing import check_timers
from evenflow.query.user.aggregator import stored_type
from evenflow.stream.change import CHANGE_FIELD
from evenflow.stream.schema import ddl_of, dead_letter_schema, parse_ddl

MOST_WINDOWS: Final = 100_000
"""That a row may be in at once: it is taken into account for each of them."""


@dataclass(frozen=True, slots=True)
class StreamType:
    """What an arrow carries: columns, and the event-time column if there is a watermark on it."""

    schema: pa.Schema
    event_time: str | None = None
    watermark_delay_us: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a box puts out: a schema per port, and the event time of port 0."""

    schemas: tuple[pa.Schema, ...]
    event_time: str | None = None
    watermark_delay_us: int | None = None


def stream_type(box: Box, port: int) -> StreamType:
    """Type of the stream that leaves `box` at `port`. Rows that were put aside have no watermark: late ones have missed it."""
    if not is_aside(box, port):
        return StreamType(box.schemas[port], box.event_time, box.watermark_delay_us)
    return StreamType(box.schemas[port])


def check_network(network: Network) -> None:
    """Judge every box again and compare with what it claims. Raises QueryError for the first that is wrong."""
    for box in network:
        inputs = [stream_type(network.box(up), port) for up, port in box.inputs]
        found = outcome(box.name, box.kind, box.params, inputs)
        claimed = Outcome(box.schemas, box.event_time, box.watermark_delay_us)
        if found != claimed:
            raise QueryError(
                f"box {box.name!r} claims the columns {_ports(claimed)} and gives {_ports(found)}; "
                "correct the saved schemas or build it anew"
            )


def outcome(name: str, kind: Kind, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    """What a box of that kind gives on those inputs. Raises QueryError or a subclass of it, naming the box."""
    from evenflow.query.changelog import check_input  # It asks what is asked here.

    try:
        check_input(name, kind, inputs)
        found = _judge(kind)(name, params, inputs)
        _check_free(name, found)
        return found if "on_error" not in params else _with_dead_letters(name, kind, params["on_error"], inputs, found)
    except KeyError as missing:
        raise QueryError(f"box {name!r} ({kind}): parameter {missing} is missing") from missing


def _check_free(name: str, found: Outcome) -> None:
    for taken in (HASH_COLUMN, FROM_COLUMN, TO_COLUMN):
        if any(taken in schema.names for schema in found.schemas):
            raise QueryError(f"box {name!r}: a column cannot be called {taken!r}, since rows travel with one of that name: rename it")


def _with_dead_letters(name: str, kind: Kind, policy: Any, inputs: Sequence[StreamType], found: Outcome) -> Outcome:
    """One more port, with the rows of the input on which the box raises, and why."""
    if kind not in GUARDED:
        raise QueryError(
            f"box {name!r} ({kind}) has no rows to put aside; on_error belongs to {', '.join(sorted(GUARDED))}: compute what may fail "
            "in a with_columns before"
        )
    if policy != "skip":
        raise QueryError(f"box {name!r}: on_error is {policy!r}; it must be 'fail' or 'skip'")
    return replace(found, schemas=(*found.schemas, dead_letter_schema(inputs[0].schema)))


# ---------------------------------------------------------------- one judge per kind


def _source(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    schema = params["source"].schema
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise QueryError(f"box {name!r}: the source has no columns; give it a schema")
    check_distinct(name, schema.names, "give the source's columns different names")
    check_printable(name, schema)
    return Outcome((schema,))


def _filter(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, condition = inputs[0], params["condition"]
    type_ = expression_field(name, "condition", condition, given.schema).type
    if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
        raise TypeMismatch(f"box {name!r}: the condition {_shown(condition)} is {type_}, not boolean; write a comparison such as x > 0")
    return Outcome((given.schema,), given.event_time, given.watermark_delay_us)


def _select(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, columns = inputs[0], params["columns"]
    if not columns:
        raise QueryError(f"box {name!r} selects no columns; name at least one")
    check_distinct(name, [column for column, _ in columns], "rename one with 'expression as name'")
    schema = pa.schema([expression_field(name, column, made, given.schema) for column, made in columns])
    check_printable(name, schema)
    time = params.get("event_time")
    if time is not None and not pa.types.is_timestamp(known(name, time, schema).type):
        raise TypeMismatch(f"box {name!r}: event time {time!r} is not a timestamp; name a column that is")
    if time is None and given.event_time is not None and (given.event_time, given.event_time) in tuple(columns):
        time = given.event_time
    return Outcome((schema,), time, None if time is None else given.watermark_delay_us)


def _union(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    first = inputs[0]
    for other in inputs[1:]:
        if [(f.name, f.type) for f in other.schema] != [(f.name, f.type) for f in first.schema]:
            raise TypeMismatch(
                f"box {name!r} joins streams of different columns, ({ddl_of(first.schema)}) and ({ddl_of(other.schema)}); "
                "make them equal in names, types and order with .select(...)"
            )
    nullable = [any(given.schema.field(i).nullable for given in inputs) for i in range(len(first.schema))]
    schema = pa.schema([f.with_nullable(n) for f, n in zip(first.schema, nullable, strict=True)])
    times = {given.event_time for given in inputs}
    if len(times) > 1:
        return Outcome((schema,))  # One of them knows no time, so nobody can say how far both have come.
    delays = [given.watermark_delay_us for given in inputs if given.watermark_delay_us is not None]
    return Outcome((schema,), first.event_time, max(delays, default=None))


def _join(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    from evenflow.query.joining import join_outcome  # It asks what is asked here.

    return join_outcome(name, params, inputs)


def _table_join(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    from evenflow.query.joining import table_join_outcome

    return table_join_outcome(name, params, inputs)


def _watermark(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, column, delay_us = inputs[0], params["column"], params["delay_us"]
    type_ = known(name, column, given.schema).type
    if not (pa.types.is_timestamp(type_) and type_.unit == "us"):
        raise TypeMismatch(
            f"box {name!r}: the watermark column {column!r} is {type_}; it must be a timestamp[us], cast it in a select before"
        )
    if not isinstance(delay_us, int) or delay_us < 0:
        raise QueryError(f"box {name!r}: the watermark's delay is {delay_us!r}; it must be zero or more microseconds")
    idle_us = params.get("idle_us")
    if idle_us is not None and (not isinstance(idle_us, int) or idle_us < 1):
        raise QueryError(f"box {name!r}: a source is idle after {idle_us!r}; it must be more than zero microseconds, or None for never")
    if given.event_time is not None:
        raise QueryError(f"box {name!r}: the stream has a watermark on {given.event_time!r} already; declare it once")
    return Outcome((given.schema,), column, delay_us)


def _repartition(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given, count = inputs[0], params["partitions"]
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= KEY_GROUPS):
        raise QueryError(f"box {name!r}: a number of partitions is a whole number from 1 to {KEY_GROUPS}, or left out, not {count!r}")
    return Outcome((given.schema,), given.event_time, given.watermark_delay_us)


def _key_by(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given = inputs[0]
    check_keys(name, params["columns"], given.schema, least=1)
    return Outcome((given.schema,), given.event_time, given.watermark_delay_us)


def _process(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    given = inputs[0]
    if not params["keys"]:
        raise QueryError(f"box {name!r} processes rows without a key; write .key_by('column', ...).process(...)")
    check_keys(name, params["keys"], given.schema, least=1)
    check_order(name, params, given)
    schema = processor_schema(name, params["processor"])
    check_timers(name, params["processor"], given, params["order"])
    time = given.event_time
    keeps = time is not None and time in schema.names and pa.types.is_timestamp(schema.field(time).type)
    return Outcome((schema, given.schema), time if keeps else None, given.watermark_delay_us if keeps else None)


def _aggregate(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    from evenflow.query.changelog import check_aggregate, puts_out_changes

    given, window, keys = inputs[0], params["window"], params["keys"]
    check_keys(name, keys, given.schema, least=0)
    calls: Sequence[AggCall] = params["calls"]
    if not calls:
        raise QueryError(f"box {name!r} aggregates nothing; write .agg(total='sum(x)')")
    for call in calls:
        _call(name, call, given.schema)
    check_order(name, params, given)
    check_aggregate(name, params, given)
    if params["order"] is None and (isinstance(window, RowWindow) or any(call.ordered for call in calls)):
        raise QueryError(f"box {name!r} depends on the order of its rows; set its order to 'event_time' or 'arrival'")
    fields = [given.schema.field(key) for key in keys]
    time = None
    unmerged = next((call.function for call in calls if call.made is not None and call.ordered), None)
    if isinstance(window, SessionWindow) and unmerged is not None:
        raise QueryError(f"box {name!r}: sessions grow together, and {unmerged} has no merge(one, other) for their states; add it")
    if isinstance(window, SessionWindow) and params["order"] == "arrival":
        raise QueryError(f"box {name!r}: a session has its rows in order of event time; leave out order='arrival'")
    if isinstance(window, TimeWindow | SessionWindow):
        size_us, slide_us = (window.size_us, window.slide_us) if isinstance(window, TimeWindow) else (window.gap_us, window.gap_us)
        check_time_window(name, size_us, slide_us, window.column, given)
        stamp = given.schema.field(window.column).type
        fields += [pa.field("window_start", stamp), pa.field("window_end", stamp)]
        time = "window_end"
        if isinstance(window, TimeWindow) and not window.final:
            check_changing_window(name, window)
            time = None  # A window comes several times, also when its end is long past.
    elif isinstance(window, RowWindow):
        check_row_window(name, window.history, window.slide)
        if given.event_time is not None:
            fields.append(given.schema.field(given.event_time))
            time = given.event_time
    fields += [pa.field(call.name, call.type) for call in calls] + ([CHANGE_FIELD] if puts_out_changes(params) else [])
    check_distinct(name, [f.name for f in fields], "give the result of .agg(...) another name")
    return Outcome((pa.schema(fields), given.schema), time, None if time is None else given.watermark_delay_us)


def _sink(name: str, params: Mapping[str, Any], inputs: Sequence[StreamType]) -> Outcome:
    sink = params["sink"]
    if getattr(sink, "where", None) not in ("none", "driver", "site", "spark"):
        raise QueryError(f"box {name!r}: {sink!r} is not a sink; use one of evenflow.sinks, such as evenflow.sinks.console()")
    with naming(name):
        sink.check(inputs[0].schema)
    return Outcome(())


_JUDGES: Final = {
    "source": _source, "filter": _filter, "select": _select, "union": _union, "watermark": _watermark, "key_by": _key_by,
    "repartition": _repartition,
    "process": _process, "aggregate": _aggregate, "join": _join, "table_join": _table_join, "sink": _sink,
}  # fmt: skip


def _judge(kind: Kind) -> Callable[[str, Mapping[str, Any], Sequence[StreamType]], Outcome]:
    from evenflow.query.single_stream import JUDGES  # It asks what is asked here.

    return _JUDGES[kind] if kind in _JUDGES else JUDGES[kind]


# ---------------------------------------------------------------- what several of them ask


def known(name: str, column: str, schema: pa.Schema) -> pa.Field:
    """The field, or UnknownColumn with the names there are and the one that was probably meant."""
    if column not in schema.names:
        close = difflib.get_close_matches(str(column), schema.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else "name one of these"
        raise UnknownColumn(f"box {name!r}: there is no column {column!r}; the input has {', '.join(schema.names)}; {hint}")
    return schema.field(column)


def expression_field(name: str, column: str, made: Any, schema: pa.Schema) -> pa.Field:
    """Name and type of the column that an expression, or a function of batches, gives on rows of `schema`."""
    if isinstance(made, str):
        if made in schema.names:
            return schema.field(made).with_name(column)
        with naming(name):
            return pa.field(column, compile_expression(made, schema).type)
    if not callable(made):
        raise QueryError(f"box {name!r}: {made!r} is neither an expression string nor a function of a batch")
    return pa.field(column, getattr(made, "type", None) or _function_type(name, column, made, schema))


def _function_type(name: str, column: str, made: Callable[[pa.RecordBatch], Any], schema: pa.Schema) -> pa.DataType:
    """Type of the column that a user's function returns: that of what it makes of no rows."""
    what = f"box {name!r}: the function of {column!r}"
    hint = "return a typed array for it, or give the function an attribute `type` with its pyarrow type"
    try:
        value = made(pa.RecordBatch.from_pylist([], schema=schema))
        value = value.to_arrow() if hasattr(value, "to_arrow") else value
        type_ = value.type if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array(value).type
    except Exception as error:  # It is the user's function.
        raise TypeMismatch(f"{what} failed on an empty batch ({type(error).__name__}: {error}); {hint}") from error
    if pa.types.is_null(type_):
        raise TypeMismatch(f"{what} returned no type for an empty batch; {hint}")
    return type_


def processor_schema(name: str, processor: Any) -> pa.Schema:
    """What the processor says that it puts out, or QueryError."""
    declared = getattr(processor, "output", None)
    if isinstance(declared, pa.Schema):
        return declared
    if not isinstance(declared, str) or not declared.strip():
        raise QueryError(f"box {name!r}: {type(processor).__name__} does not say what it puts out; set output = 'app string, dur double'")
    with naming(name):
        return parse_ddl(declared)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """An error from inside that does not name the box yet gets the name put before it."""
    try:
        yield
    except EvenflowError as error:
        if repr(name) in str(error):
            raise
        kind = type(error) if isinstance(error, UnknownColumn | TypeMismatch | ExpressionError | OptionError) else QueryError
        raise kind(f"box {name!r}: {error}") from error


def _call(name: str, call: AggCall, schema: pa.Schema) -> None:
    types = [known(name, column, schema).type for column in call.columns]
    with naming(name):
        found = result_type(call.function, types[0] if types else None) if call.made is None else stored_type(call.made)
    if found != call.type:
        raise TypeMismatch(f"box {name!r}: {call.function}({call.column or '*'}) is {found}, but {call.name!r} is declared {call.type}")


def check_time_window(name: str, size_us: int, slide_us: int, column: str | None, given: StreamType) -> None:
    """Raise QueryError unless such a window over `column` makes sense on that stream."""
    if given.event_time is None:
        raise QueryError(
            f"box {name!r}: a window over time needs event time; say which column it is and how late rows may come "
            f"with .with_watermark({column or 'ts'!r}, '10 seconds') before the group_by"
        )
    if column != given.event_time:
        raise QueryError(f"box {name!r}: the window is over {column!r}, but the watermark is on {given.event_time!r}; use the same column")
    if size_us <= 0 or slide_us <= 0:
        raise QueryError(f"box {name!r}: the window's size and slide must be longer than zero")
    if slide_us > size_us:
        size, slide = duration_text(size_us), duration_text(slide_us)
        raise QueryError(
            f"box {name!r}: the window slides by {slide} but is only {size} long, so rows between would be lost; slide by {size} or less"
        )
    if size_us > slide_us * MOST_WINDOWS:
        raise QueryError(
            f"box {name!r}: each row would be in {-(-size_us // slide_us):,} windows, and {MOST_WINDOWS:,} are the most; "
            "give a longer slide"
        )


def check_changing_window(name: str, window: TimeWindow) -> None:
    """Raise QueryError unless windows can be put out more than once as this one says."""
    if window.mode not in ("append", "update", "changelog"):
        raise QueryError(
            f"box {name!r}: the mode of its windows is {window.mode!r}; it must be 'append', 'update', 'changelog' or 'complete'"
        )
    if isinstance(window.lateness_us, bool) or not isinstance(window.lateness_us, int) or window.lateness_us < 0:
        raise QueryError(f"box {name!r}: the allowed lateness is {window.lateness_us!r}; it must be zero or more microseconds")


def check_row_window(name: str, history: int, slide: int) -> None:
    """Raise QueryError unless the window holds rows and leaves out none."""
    if not isinstance(history, int) or not isinstance(slide, int) or history < 1 or slide < 1:
        raise QueryError(f"box {name!r}: a row window needs at least 1 row of history and a slide of at least 1; got {history} and {slide}")
    if slide > history:
        raise QueryError(
            f"box {name!r}: the window slides by {slide} rows but holds {history}, so rows would be lost; slide by {history} or fewer"
        )


def check_order(name: str, params: Mapping[str, Any], given: StreamType) -> None:
    """Raise QueryError unless the box can have its rows in the order that it asks for."""
    order, tie_break = params["order"], params["tie_break"]
    if order not in (None, "event_time", "arrival"):
        raise QueryError(f"box {name!r}: order is {order!r}; it must be 'event_time' or 'arrival'")
    if order == "event_time" and given.event_time is None:
        raise QueryError(
            f"box {name!r}: order='event_time' needs a watermark; add .with_watermark('ts', '10 seconds') before, or use order='arrival'"
        )
    for column in tie_break or ():
        known(name, column, given.schema)


def check_keys(name: str, keys: Iterable[str], schema: pa.Schema, *, least: int) -> None:
    """Raise QueryError, UnknownColumn or TypeMismatch unless the columns can be a key."""
    keys = tuple(keys)
    if len(keys) < least:
        raise QueryError(f"box {name!r} has no key; name at least one column")
    check_distinct(name, keys, "name each key column once")
    for key in keys:
        type_ = known(name, key, schema).type
        if pa.types.is_nested(type_):
            raise TypeMismatch(f"box {name!r}: {key!r} is {type_} and cannot be a key; use a column of a plain type")


def check_distinct(name: str, columns: Sequence[str], remedy: str) -> None:
    """Raise QueryError if a name is there twice. remedy: what to do about it."""
    twice = [column for i, column in enumerate(columns) if column in columns[:i]]
    if twice:
        raise QueryError(f"box {name!r} has two columns called {twice[0]!r}; {remedy}")


def check_printable(name: str, schema: pa.Schema) -> None:
    """Only types that Evenflow has: those that have a name in DDL."""
    try:
        ddl_of(schema)
    except QueryError as error:
        raise TypeMismatch(f"box {name!r}: {error}") from error


def _shown(expression: Any) -> str:
    return repr(expression) if isinstance(expression, str) else getattr(expression, "__name__", repr(expression))


def _ports(found: Outcome) -> str:
    text = " / ".join(f"({ddl_of(schema)})" for schema in found.schemas) or "none"
    return f"{text} with event time {found.event_time!r}"


__all__ = ["LATE_PORT", "Outcome", "StreamType", "check_network", "known", "outcome", "stream_type"]
