"""What is said of windows that come more than once, and of sessions with a gap of each row's own, when they are drawn."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.aggregates import FOREVER_US
from evenflow.query.duration import duration_us
from evenflow.query.expression import compile_expression
from evenflow.query.kinds.judging import naming


def lateness_of(mode: str, allowed: str | timedelta | None) -> int:
    """Microseconds for which a window is kept beyond its end. Raises QueryError for no length of time."""
    forever = mode == "complete" or allowed == "forever"
    return FOREVER_US if forever else 0 if allowed is None else duration_us(allowed)


def check_comes_once(name: str, mode: str, allowed: str | timedelta | None) -> None:
    """Raise QueryError unless sessions with a gap of each row's own are wanted once."""
    if mode != "append" or allowed is not None:
        raise QueryError(f"box {name!r}: sessions with a gap of each row's own come once, when they are over; leave mode and lateness out")


def check_gap(name: str, gap: Any, error: QueryError) -> None:
    """Raise the QueryError for what cannot be an expression either. error: why it is no length of time."""
    if not isinstance(gap, str) or re.match(r"\s*($|[-+]?[\d.])", gap):
        raise QueryError(f"box {name!r}: {error}") from error


def end_of_own(name: str, gap: str, of: str, schema: pa.Schema, error: QueryError) -> tuple[str, str]:
    """(a free column for the time at which a row's own session is over, the expression of it). gap, of: expressions, the gap and the
    row's time. error: why the gap is no length of time for all rows. Raises QueryError."""
    ends = f"_session_end({of}, {gap})"
    try:
        with naming(name):
            compile_expression(ends, schema)
    except QueryError as wrong:
        if re.fullmatch(r"[\w ]+", gap):  # "ten minutes"
            raise QueryError(f"box {name!r}: {error}, or an expression that gives one") from wrong
        raise
    until = "_session_end"
    while until in schema.names:
        until += "_"
    return until, ends
