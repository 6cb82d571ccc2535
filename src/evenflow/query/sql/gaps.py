"""Gaps of session windows that are computed from the row: when a session of that row alone is over."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import operators as op
from evenflow.query.sql.node import Node, rowwise
from evenflow.query.sql.signature import Signature
from evenflow.query.sql.types import INTERVAL, NULL, STRING, name_of, stringy, timestampy

_UNITS_US: Final = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000,
    "week": 604_800_000_000, "month": None, "year": None,
}  # fmt: skip
_PART: Final = re.compile(rf"([+-]?)\s*(\d*)(?:\.(\d{{0,9}}))?\s+({'|'.join(_UNITS_US)})s?(?:\s+|$)")
_MOST: Final = 2**63


@lru_cache(1024)
def span_of_text(text: str) -> int | None:
    """Microseconds of '5 minutes' or 'interval 1 hour -30 seconds' as Spark casts a string to an interval; None where that gives null.

    Raises ExpressionError for months and years, which have no fixed length.
    """
    rest, span, at, months = text.strip().lower(), 0, 0, 0
    if (prefix := re.match(r"interval\s+", rest)) is not None:
        rest = rest[prefix.end() :]
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[2] or part[3]) or (part[3] is not None and part[4] != "second"):
            return None
        sign, unit_us, whole = -1 if part[1] == "-" else 1, _UNITS_US[part[4]], int(part[2] or 0)
        if unit_us is None:
            months += whole
        else:
            span += sign * (whole * unit_us + int((part[3] or "").ljust(9, "0")) // 1_000)
        at = part.end()
    if months:
        raise ExpressionError(f"the gap {text!r:.60} of a session has no fixed length; write days instead of months and years")
    return span if rest and -_MOST <= span < _MOST else None


def _session_end(time: Node, gap: Node) -> Node:
    """When the session of a row alone is over: its time and its gap, a text or an interval. Not for texts of users."""
    if not timestampy(time.type):
        raise TypeMismatch(f"a session is over a timestamp, but {time.text} is {name_of(time.type)}")
    if stringy(gap.type) or gap.type == NULL:
        spans = rowwise(span_of_text, INTERVAL, op.cast_raw(gap, STRING) if gap.type == NULL else gap, raises=True)
    elif gap.type == INTERVAL:
        spans = gap
    else:
        raise TypeMismatch(f"the gap of a session is a text such as '5 minutes' or an interval, but {gap.text} is {name_of(gap.type)}")
    return op.cast_raw(op.arithmetic("+", time, spans), time.type)


FUNCTIONS: Final = {"_session_end": Signature(_session_end, 2, 2)}
