"""What judges of several kinds ask of columns, keys, windows and expressions. Each error names the box and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import EvenflowError, ExpressionError, OptionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.aggregates import OwnSessions, SessionWindow, TimeWindow
from evenflow.query.duration import duration_text
from evenflow.query.expression import compile_expression
from evenflow.query.faults import about
from evenflow.query.kinds.kind import StreamType
from evenflow.stream.schema import ddl_of, has_map, parse_ddl

MOST_WINDOWS: Final = 100_000
"""That a row may be in at once: it is taken into account for each of them."""


def known(name: str, column: str, schema: pa.Schema) -> pa.Field:
    """The field, or UnknownColumn with the names there are and the one that was probably meant."""
    if column not in schema.names:
        close = difflib.get_close_matches(str(column), schema.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else "name one of these"
        raise UnknownColumn(f"box {name!r}: there is no column {column!r}; the input has {', '.join(schema.names)}; {hint}")
    return schema.field(column)


def check_flag(name: str, parameter: str, given: Any) -> None:
    """Raise QueryError unless it is true or false."""
    if not isinstance(given, bool):
        raise QueryError(f"box {name!r}: {parameter} is true or false, not {given!r:.60}").about(parameter)


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
    frames = getattr(processor, "batch", None)
    if frames in ("pandas", "polars") and find_spec(frames) is None:
        raise QueryError(
            f"box {name!r}: {type(processor).__name__} takes frames of {frames}, which is not installed: "
            f"pip install 'evenflow[{frames}]', here and on the executors"
        )
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
        named = kind(f"box {name!r}: {error}")
        raise (named.of(error) if isinstance(error, QueryError) else named) from error


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


def check_changing_window(name: str, window: TimeWindow | SessionWindow) -> None:
    """Raise QueryError unless windows can be put out more than once as this one says."""
    if isinstance(window, SessionWindow):
        _check_changing_session(name, window)
    if window.mode not in ("append", "update", "changelog"):
        raise QueryError(
            f"box {name!r}: the mode of its windows is {window.mode!r}; it must be 'append', 'update', 'changelog' or 'complete'"
        )
    if isinstance(window.lateness_us, bool) or not isinstance(window.lateness_us, int) or window.lateness_us < 0:
        raise QueryError(f"box {name!r}: the allowed lateness is {window.lateness_us!r}; it must be zero or more microseconds")


def _check_changing_session(name: str, window: SessionWindow) -> None:
    if window.mode not in ("append", "changelog"):
        why = "rows join sessions that have come, so its newest rows are not the result"
        raise QueryError(f"box {name!r}: sessions have no {window.mode} mode: {why}; use 'append', 'changelog' or 'complete'")
    if window.mode == "append" and window.lateness_us:
        raise QueryError(f"box {name!r}: a session comes once, so there is no lateness after it; use mode='changelog'")
    if window.mode != "append" and isinstance(window, OwnSessions):
        raise QueryError(f"box {name!r}: sessions with a gap of each row's own come once, when they are over; use append mode")


def check_row_window(name: str, history: int, slide: int) -> None:
    """Raise QueryError unless the window holds rows and leaves out none."""
    if not isinstance(history, int) or not isinstance(slide, int) or history < 1 or slide < 1:
        raise QueryError(f"box {name!r}: a row window needs at least 1 row of history and a slide of at least 1; got {history} and {slide}")
    if slide > history:
        raise QueryError(
            f"box {name!r}: the window slides by {slide} rows but holds {history}, so rows would be lost; slide by {history} or fewer"
        )


def check_order(name: str, order: Any, tie_break: Sequence[str] | None, given: StreamType) -> None:
    """Raise QueryError unless the box can have its rows in the order that it asks for."""
    with about("order"):
        if order not in (None, "event_time", "arrival"):
            raise QueryError(f"box {name!r}: order is {order!r}; it must be 'event_time' or 'arrival'")
        if order == "event_time" and given.event_time is None:
            raise QueryError(
                f"box {name!r}: order='event_time' needs a watermark; add .with_watermark('ts', '10 seconds') before, "
                "or use order='arrival'"
            )
    for item, column in enumerate(tie_break or ()):
        with about("tie_break", item):
            known(name, column, given.schema)


def check_keys(name: str, keys: Iterable[str], schema: pa.Schema, *, least: int, parameter: str = "keys") -> None:
    """Raise QueryError, UnknownColumn or TypeMismatch unless the columns can be a key."""
    keys = tuple(keys)
    with about(parameter):
        if len(keys) < least:
            raise QueryError(f"box {name!r} has no key; name at least one column")
        check_distinct(name, keys, "name each key column once")
    for item, key in enumerate(keys):
        with about(parameter, item):
            check_key_type(name, key, known(name, key, schema).type)


def check_key_type(name: str, key: str, type_: pa.DataType) -> None:
    """Raise TypeMismatch unless values of the type can be told apart: all but maps, as in Spark."""
    if has_map(type_):
        raise TypeMismatch(
            f"box {name!r}: {key!r} is {type_} and cannot be a key, as in Spark; use its values of some keys, or map_entries of it"
        )


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


def check_count(name: str, what: str, count: Any, least: int, most: int | None = None) -> None:
    """Raise QueryError unless it is a whole number between the two."""
    if isinstance(count, bool) or not isinstance(count, int) or count < least or (most is not None and count > most):
        upper = "" if most is None else f" and at most {most:,}"
        raise QueryError(f"box {name!r}: {what} is {count!r}; it must be a whole number, at least {least}{upper}")


def check_plain(name: str, field: pa.Field, purpose: str) -> None:
    """Raise TypeMismatch for a column with parts. purpose: what it is for, as a verb."""
    if pa.types.is_nested(field.type):
        raise TypeMismatch(f"box {name!r}: {field.name!r} is {field.type} and cannot {purpose}; use a column of a plain type")
