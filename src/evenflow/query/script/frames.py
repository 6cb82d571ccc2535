"""Frames of OVER: ROWS and RANGE, and how far they go."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import pyarrow as pa
from sqlglot import exp

from evenflow.query.duration import duration_us
from evenflow.query.expression import compile_expression
from evenflow.query.ranked import SHORT
from evenflow.query.script.lowering import Lower
from evenflow.query.script.relation import Relation
from evenflow.query.sql.intervals import interval
from evenflow.query.sql.months import months_of
from evenflow.query.sql.parser import length_of, to_sql
from evenflow.query.sql.types import MONTHS, name_of

_DAY_US: Final = 86_400_000_000
_NUMBER: Final = re.compile(r"\d+(\.\d*)?|\.\d+")

Bounds = tuple[float | None, float | None, bool, bool, bool]
"""(low, high, peers, span, months), see `query.ranked.Place`."""


def framed_by(lower: Lower, relation: Relation, window: exp.Window) -> Bounds:
    """The frame that is said, or that Spark takes where none is."""
    spec = window.args.get("spec")
    if spec is None:
        return (None, 0, True, False, False) if window.args.get("order") is not None else (None, None, False, False, False)
    by_value = str(spec.args.get("kind")).upper() == "RANGE"
    sides = [_side(spec, side) for side in ("start", "end")]
    span = by_value and any(isinstance(value, exp.Expr) for value, _ in sides)
    lengths = [_months(lower, value) for value, _ in sides]
    months = span and any(length is not None for length in lengths)
    if months and any(isinstance(value, exp.Expr) and length is None for (value, _), length in zip(sides, lengths, strict=True)):
        lower.script.fail(window, "a frame by months on the one side and by days or less on the other is not available, nor is it in Spark")
    distance = _distance(lower, relation, window, months) if span else _rows(lower, window)
    low, high = [sign * distance(value) if isinstance(value, exp.Expr) else None if value == "UNBOUNDED" else 0 for value, sign in sides]
    if low is not None and high is not None and low > high:
        lower.script.fail(window, "a frame that ends before it begins; write the earlier bound first")
    return low, high, by_value and not span, span, months


def _side(spec: exp.WindowSpec, side: str) -> tuple[exp.Expr | str, int]:
    """(a distance, "UNBOUNDED" or "CURRENT ROW"; -1 before the row, 1 behind it)."""
    value, direction = spec.args.get(side), str(spec.args.get(f"{side}_side") or "").upper()
    text = value if isinstance(value, str) else value.sql() if value is not None else "CURRENT ROW"
    sign = -1 if direction == "PRECEDING" else 1
    if not isinstance(value, exp.Expr) or text.upper() in ("UNBOUNDED", "CURRENT ROW"):
        return text.upper(), sign
    return value, sign


def _months(lower: Lower, value: exp.Expr | str) -> int | None:
    """How many months a distance is; None if it is none of them."""
    if not isinstance(value, exp.Interval):
        return None
    with lower.script.at(value):
        length = interval(value)
        return months_of(length) if length.type == MONTHS else None


def _rows(lower: Lower, window: exp.Window) -> Callable[[exp.Expr], float]:
    def rows(value: exp.Expr) -> float:
        if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdigit():
            lower.script.fail(window, "a frame of ROWS goes on for a whole number of rows")
        return int(value.this)

    return rows


def _distance(lower: Lower, relation: Relation, window: exp.Window, months: bool) -> Callable[[exp.Expr], float]:
    """How far a bound of RANGE is, in units of what the rows are ordered by, or in months."""
    order = window.args.get("order")
    parts = list[exp.Expr](order.expressions if order is not None else [])
    if len(parts) != 1 or bool(parts[0].args.get("nulls_first")) == bool(parts[0].args.get("desc")):
        lower.script.fail(window, "RANGE with distances goes by one expression of ORDER BY, with nulls where Spark has them")
    by = lower.rewritten(relation, parts[0].this)
    with lower.script.at(parts[0].this):
        kind = compile_expression(to_sql(by), relation.stream.schema).type
    timed = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    short = pa.types.is_decimal(kind) and kind.precision <= SHORT
    if not (timed or short or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        such = f"decimals of at most {SHORT} digits; cast it to one of them" if pa.types.is_decimal(kind) else "numbers and times"
        lower.script.fail(window, f"RANGE with distances is over {such}, not over {name_of(kind)}")
    if months and not timed:
        lower.script.fail(window, f"RANGE over {name_of(kind)} does not go on for months; write a number")

    def distance(value: exp.Expr) -> float:
        if months and (count := _months(lower, value)) is not None:
            if count < 0:
                lower.script.fail(
                    window, "a bound of RANGE is a distance of 0 or more; write FOLLOWING for PRECEDING, or the other way round"
                )
            return count
        length = length_of(value) if timed and isinstance(value, exp.Interval) else None
        if length is not None:
            with lower.script.at(value):
                span_us = duration_us(length)
            if pa.types.is_date(kind) and span_us % _DAY_US:
                lower.script.fail(window, "a frame over dates goes on for whole days")
            return span_us // _DAY_US if pa.types.is_date(kind) else span_us
        number = value.this if isinstance(value, exp.Literal) and not value.is_string else ""
        if short and _NUMBER.fullmatch(number):
            return int(Decimal(number).scaleb(kind.scale).quantize(Decimal(1), ROUND_HALF_UP))  # Of the column's type, as in Spark.
        if pa.types.is_timestamp(kind) or not (number.isdigit() or (number and pa.types.is_floating(kind))):
            what = "INTERVAL '10' MINUTES" if timed else "3"
            lower.script.fail(window, f"a bound of RANGE over {name_of(kind)} is a distance of 0 or more, such as {what} PRECEDING")
        return float(number) if pa.types.is_floating(kind) else int(number)

    return distance


__all__ = ["Bounds", "framed_by"]
