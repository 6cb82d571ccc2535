"""Spans of time as people write them, "10 seconds" or "1 hour 30 minutes", in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from evenflow.errors import QueryError

UNIT_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
LONGEST_US: Final = 36_500_000 * UNIT_US["day"]
"""A hundred thousand years: the end of such a window is a timestamp, whenever it begins."""
MAX_DIGITS: Final = 30
_SHORT: Final = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "d": "day",
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?")


def duration_us(text: str | timedelta) -> int:
    """Microseconds of "10 seconds", "1 hour 30 minutes", "500 ms" or a timedelta; at least 0, QueryError otherwise."""
    if isinstance(text, timedelta):
        span = text // timedelta(microseconds=1)
        if span < 0:
            raise QueryError(f"{text} is negative; give a span of zero or more")
        if span > LONGEST_US:
            raise _too_long(text)
        return span
    if not isinstance(text, str):
        raise QueryError(f"{text!r:.60} is no span of time; write a number and a unit, such as '10 seconds', or give a timedelta")
    whole = str(text).strip().lower().removeprefix("interval ")
    at, span = 0, 0
    while at < len(whole):
        match = _PART.match(whole, at)
        unit = match and (_SHORT.get(match[2]) or match[2].removesuffix("s"))
        if match is None or unit not in UNIT_US:
            raise QueryError(f"{text!r} is not a span of time; write a number and a unit, such as '10 seconds' or '1 hour 30 minutes'")
        if len(match[1]) > MAX_DIGITS:
            raise _too_long(text)
        span += round(float(match[1]) * UNIT_US[unit]) if "." in match[1] else int(match[1]) * UNIT_US[unit]
        at = match.end()
    if not whole:
        raise QueryError("an empty span of time; write a number and a unit, such as '10 seconds'")
    if span > LONGEST_US:
        raise _too_long(text)
    return span


def offset_us(text: str | timedelta) -> int:
    """As `duration_us`, and below 0 where a minus sign stands before it."""
    if isinstance(text, timedelta) and text < timedelta(0):
        return -duration_us(-text)
    shown = text.strip() if isinstance(text, str) else text
    if isinstance(shown, str) and shown.startswith("-"):
        return -duration_us(shown[1:])
    return duration_us(shown)


def _too_long(text: object) -> QueryError:
    shown = str(text)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return QueryError(f"{shown!r} is longer than {LONGEST_US // UNIT_US['day']:,} days, which is the most; give a shorter span of time")


def duration_text(span_us: int) -> str:
    """The shortest way to write it with one unit: 90_000_000 is "90 s", 3_600_000_000 "1 h"."""
    for short, unit in (("d", "day"), ("h", "hour"), ("min", "minute"), ("s", "second"), ("ms", "millisecond")):
        if span_us and span_us % UNIT_US[unit] == 0:
            return f"{span_us // UNIT_US[unit]} {short}"
    return "0 s" if span_us == 0 else f"{span_us} us"
