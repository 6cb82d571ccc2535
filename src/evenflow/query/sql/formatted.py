"""Dates and timestamps in texts of a pattern, written and read, by the letters of Java's patterns that Spark documents. All in UTC.

A pattern is cut into its parts when the expression is built. Writing is then a chain of kernels over whole columns; reading is one regular
expression per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ExpressionError
from evenflow.query.sql.calendar import days_of, floor_divided
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import Node, Value, lift, literal
from evenflow.query.sql.types import INT, LONG, STRING

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_HALVES: Final = ("AM", "PM")
_MOST: Final = {"y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "H": 2, "h": 2, "k": 2, "K": 2, "m": 2, "s": 2, "S": 6, "E": 4, "a": 1, "X": 3}
_READ: Final = "yMdHhmsSa"
_PARTS: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])", re.DOTALL)
_LONG: Final = 2**63


@dataclass(frozen=True, slots=True)
class Part:
    """Of a pattern: a letter that is written so often, or a text as it is."""

    letter: str
    count: int = 0
    text: str = ""


@lru_cache(maxsize=256)
def parts_of(pattern: str, what: str) -> tuple[Part, ...]:
    """The parts of a pattern. ExpressionError for a letter that is not among them, or that is written too often."""
    found, at = list[Part](), 0
    while at < len(pattern):
        match = _PARTS.match(pattern, at)
        if match is None:
            raise ExpressionError(f"{what}: a quote of the pattern {pattern!r} is not closed")
        quoted, letter, plain = match.groups()
        if letter is None:
            found.append(Part("", 0, plain if plain is not None else quoted.replace("''", "'") or "'"))
        elif (count := len(match.group())) > _MOST.get(letter, 0):
            raise ExpressionError(
                f"{what}: {match.group()!r} of the pattern {pattern!r} is not written here; letters are {', '.join(_MOST)}, "
                f"{letter!r} at most {_MOST.get(letter, 0)} times"
            )
        else:
            found.append(Part(letter, count))
        at = match.end()
    return tuple(found)


# Written


def written(pattern: str, time: Node, fields: Callable[[str, Node], Node], micros: Node, what: str) -> Node:
    """A time as text. fields: of a time, by their names. micros: since 1970."""
    parts = parts_of(pattern, what)
    if any(part.text in "[]{}#" and part.text for part in parts):
        raise ExpressionError(f"{what}: brackets and braces of the pattern {pattern!r} are for reading only")
    pieces = [literal(pa.scalar(part.text, STRING)) if not part.letter else _piece(part, time, fields, micros) for part in parts]
    there = lift(lambda v: pc.if_else(pc.is_valid(v), "", pa.scalar(None, STRING)), STRING, micros)  # Null where the time is.
    return lift(lambda *texts: pc.binary_join_element_wise(*texts, ""), STRING, *pieces, there)


def _piece(part: Part, time: Node, fields: Callable[[str, Node], Node], micros: Node) -> Node:
    letter, count = part.letter, part.count
    if letter == "X":
        return literal(pa.scalar("Z", STRING))
    if letter == "S":
        fraction = _padded(lift(lambda v: pc.subtract(v, pc.multiply(floor_divided(v, 1_000_000), 1_000_000)), LONG, micros), 6)
        return lift(lambda v: pc.utf8_slice_codeunits(v, 0, count), STRING, fraction)
    if letter == "y":
        return _year(fields("year", time), count)
    if letter in "ML" and count > 2:
        return _named([name[: 3 if count == 3 else None] for name in MONTHS], fields("month", time), 1)
    if letter == "E":
        return _named([name[: 3 if count < 4 else None] for name in DAYS], fields("weekday", time), 0)
    hour = fields("hour", time)
    if letter == "a":
        return _named(_HALVES, lift(lambda v: pc.divide(v, pa.scalar(12, INT)), INT, hour), 0)
    if letter in "hkK":
        return _padded(lift(_clock(letter), INT, hour), count)
    name = {"M": "month", "L": "month", "d": "day", "D": "dayofyear", "H": "hour", "m": "minute", "s": "second"}[letter]
    return _padded(fields(name, time), count)


def _clock(letter: str) -> Callable[[Value], Value]:
    """Hours of half a day (h, K) or of a day that ends at 24 (k)."""

    def kernel(hour: Value) -> Value:
        if letter == "k":
            return pc.if_else(pc.equal(hour, 0), pa.scalar(24, INT), hour)
        half = pc.if_else(pc.greater_equal(hour, 12), pc.subtract(hour, 12), hour).cast(INT)
        return half if letter == "K" else pc.if_else(pc.equal(half, 0), pa.scalar(12, INT), half)

    return kernel


def _padded(number: Node, width: int) -> Node:
    return lift(lambda v: pc.utf8_lpad(v, width=width, padding="0"), STRING, cast(number, STRING))


def _named(names: Sequence[str], number: Node, first: int) -> Node:
    values = pa.array(names, STRING)

    def kernel(given: Value) -> Value:
        at = pc.subtract(given, first)
        return values.take(at) if isinstance(at, pa.Array) else values.take(pa.array([at.as_py()], INT))[0]

    return lift(kernel, STRING, number)


def _year(year: Node, count: int) -> Node:
    """Two digits are those of the century. Four and more have a sign where there are more digits than that."""
    if count == 2:
        return _padded(lift(_century, INT, year), 2)
    digits = _padded(lift(lambda v: pc.abs(v), INT, year), count)
    most = 10**count - 1 if count >= 4 else 2**31 - 1

    def signed(number: Value, text: Value) -> Value:
        sign = pc.if_else(pc.less(number, 0), "-", pc.if_else(pc.greater(number, most), "+", ""))
        return pc.binary_join_element_wise(sign, text, "")

    return lift(signed, STRING, year, digits)


def _century(year: Value) -> Value:
    digits = pc.abs(year)
    return pc.subtract(digits, pc.multiply(pc.divide(digits, pa.scalar(100, INT)), pa.scalar(100, INT)))


# Read


@lru_cache(maxsize=256)
def reader(pattern: str, what: str) -> Callable[[str], int | None]:
    """What reads a text of a pattern as microseconds since 1970; None if it is not one."""
    parts = parts_of(pattern, what)
    text, letters = "", list[str]()
    for at, part in enumerate(parts):
        if not part.letter:
            text += {"[": "(?:", "]": ")?"}.get(part.text) or re.escape(part.text)
            continue
        if part.letter not in _READ or part.letter in letters:
            raise ExpressionError(f"{what}: {part.letter * part.count!r} of the pattern {pattern!r} is not read here, or is there twice")
        letters.append(part.letter)
        text += f"(?P<{part.letter}>{_digits(part)})" + ("(?!)" if _leaves_no_fraction(parts[at:]) else "")
    if "h" in letters and "a" not in letters or "a" in letters and "h" not in letters:
        raise ExpressionError(f"{what}: the pattern {pattern!r} needs both 'h' and 'a', or 'H'")
    try:
        expression = re.compile(text, re.IGNORECASE | re.ASCII)
    except re.error:
        raise ExpressionError(f"{what}: the brackets of the pattern {pattern!r} do not fit together") from None
    return lambda given: _moment(expression, given)


def _digits(part: Part) -> str:
    letter, count = part.letter, part.count
    if letter == "y":
        return "[0-9]{2}" if count == 2 else f"[+-]?[0-9]{{{count},10}}"
    if letter == "M" and count > 2:
        return "|".join(name[: 3 if count == 3 else None] for name in MONTHS)
    if letter == "a":
        return "AM|PM"
    if letter == "S":
        return f"[0-9]{{1,{count}}}+"  # As many as there are: Java gives none back.
    return f"[0-9]{{{count}}}" if count > 1 else "[0-9]{1,19}"


def _leaves_no_fraction(parts: Sequence[Part]) -> bool:
    """Whether the first part is a number of any width, and the fraction stands behind it with nothing but numbers of two digits between.
    Java's takes all digits but theirs then, as in yyyyMMddHHmmssSSS."""
    first, *rest = parts
    if first.letter not in "yMdHhms" or first.count == 2 or first.letter == "M" and first.count > 2:
        return False
    behind = next((part for part in rest if part.letter not in tuple("yMdHhms") or part.count != 2), None)
    return behind is not None and behind.letter == "S"


def _moment(expression: re.Pattern[str], text: str) -> int | None:
    match = expression.fullmatch(text)
    if match is None:
        return None
    found: dict[str, Any] = {letter: value for letter, value in match.groupdict().items() if value is not None}
    year = _read_year(found.get("y", "1970"))
    month = found.get("M", "1")
    if not month.isdigit():
        month = 1 + [name[:3].lower() for name in MONTHS].index(month[:3].lower())
    hour = int(found.get("H", 0))
    if "h" in found:
        if not 1 <= int(found["h"]) <= 12:
            return None
        hour = int(found["h"]) % 12 + (12 if found["a"].upper() == "PM" else 0)
    minute, second = int(found.get("m", 0)), int(found.get("s", 0))
    days = None if year is None else days_of(year, int(month), int(found.get("d", 1)))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = ((days * 24 + hour) * 3_600 + minute * 60 + second) * 1_000_000 + int(found.get("S", "").ljust(6, "0"))
    return micros if -_LONG <= micros < _LONG else None


def _read_year(text: str) -> int | None:
    digits = text.lstrip("+-")
    if len(digits) == 2 and text == digits:
        return 2000 + int(digits)
    if (len(digits) > 4) != text.startswith("+") and not text.startswith("-"):
        return None  # More than four digits have a sign, and a plus has more than four digits.
    return int(text)


__all__ = ["DAYS", "MONTHS", "parts_of", "reader", "written"]
