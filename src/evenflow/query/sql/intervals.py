"""INTERVAL literals: day-time intervals as microseconds."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError
from evenflow.query.sql.node import UNITS, Node, literal, measured
from evenflow.query.sql.types import INTERVAL, MONTHS

UNITS_US: Final = {
    "MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000, "WEEK": 604_800_000_000,
}  # fmt: skip
_CALENDAR: Final = {"YEAR": 12, "MONTH": 1}
_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


def interval(tree: exp.Interval) -> Node:
    """The constant of an INTERVAL literal: microseconds, or months where it is of years and months."""
    text, unit = tree.this.name if tree.this is not None else "", tree.args.get("unit")
    if isinstance(tree.this, exp.Neg):
        text = "-" + tree.this.this.name
    shown = tree.sql(dialect="spark")
    months = _months(text, unit, shown)
    if months is not None:
        return literal(pa.scalar(pa.MonthDayNano([months, 0, 0]), MONTHS))
    if isinstance(unit, exp.IntervalSpan):
        micros, names = _span(text, unit.this.name.upper(), unit.expression.name.upper(), shown), [unit.expression.name]
    elif unit is not None:
        micros, names = _single(text, unit.name.upper(), shown), [unit.name]
    else:
        parts = re.findall(r"([+-]?[\d.]+)\s+([A-Za-z]+)", text)
        if not parts:
            raise ExpressionError(f"{shown!r}: an interval needs a unit, such as INTERVAL '10' SECONDS")
        micros, names = sum(_single(number, name.upper(), shown) for number, name in parts), [name for _, name in parts]
    return measured(literal(pa.scalar(micros, INTERVAL)), max(map(last_unit, names), key=UNITS.index))


def last_unit(name: str) -> str:
    """The unit of `UNITS` that Spark has in the type of an interval of such units."""
    name = name.lower().removesuffix("s")
    return {"week": "day", "millisecond": "second", "microsecond": "second"}.get(name, name)


def _months(text: str, unit: exp.Expr | None, shown: str) -> int | None:
    """How many months; None if it is of days and what is shorter."""
    if isinstance(unit, exp.IntervalSpan):
        if (unit.this.name.upper(), unit.expression.name.upper()) != ("YEAR", "MONTH"):
            return None
        found = re.fullmatch(r"\s*([+-]?)(\d+)-(\d+)\s*", text)
        if found is None or int(found[3]) > 11:
            raise ExpressionError(f"{shown!r}: {text!r} is not written as 'years-months'")
        return (-1 if found[1] == "-" else 1) * (12 * int(found[2]) + int(found[3]))
    pairs = [(text.strip(), unit.name)] if unit is not None else re.findall(r"([+-]?[\d.]+)\s+([A-Za-z]+)", text)
    if not pairs or any(name.upper().removesuffix("S") not in _CALENDAR for _, name in pairs):
        return None
    try:
        return sum(int(number) * _CALENDAR[name.upper().removesuffix("S")] for number, name in pairs)
    except ValueError:
        raise ExpressionError(f"{shown!r}: {text!r} is no whole number of them") from None


def _single(text: str, unit: str, shown: str) -> int:
    unit = unit.removesuffix("S")
    if unit not in UNITS_US:
        raise ExpressionError(
            f"{shown!r}: the unit must be one of {', '.join(UNITS_US).lower()}, or year and month, which stand alone: "
            "months and days are added one after the other, ts + INTERVAL '1' MONTH + INTERVAL '2' DAYS"
        )
    if unit != "SECOND" and "." in text:
        raise ExpressionError(f"{shown!r}: {text!r} is no whole number of {unit.lower()}s, and only seconds have a fraction")
    try:
        return int(Decimal(text.strip()) * UNITS_US[unit])
    except (InvalidOperation, ValueError, OverflowError):
        raise ExpressionError(f"{shown!r}: {text!r} is not a number of {unit.lower()}s") from None


def _span(text: str, first: str, last: str, shown: str) -> int:
    """'1 02:03:04.5' DAY TO SECOND and its shorter forms."""
    first, last = first.removesuffix("S"), last.removesuffix("S")
    if first not in _FIELDS or last not in _FIELDS:
        raise ExpressionError(f"{shown!r}: only intervals of days to seconds have a fixed length")
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    numbers = re.split(r"[ :]", text.strip().lstrip("+-"))
    if len(numbers) != len(fields):
        raise ExpressionError(f"{shown!r}: {text!r} does not have the fields {first} TO {last}")
    total = sum(_single(number, field, shown) for number, field in zip(numbers, fields))
    return -total if text.strip().startswith("-") else total
