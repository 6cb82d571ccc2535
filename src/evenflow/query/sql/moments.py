"""Dates and timestamps from text, as Spark reads them in a UTC session."""

from __future__ import annotations

import datetime
import re
from typing import Final

_DATE: Final = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?$", re.DOTALL)
_CLOCK: Final = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
_ZONE: Final = r"(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)"
_STAMP: Final = re.compile(rf"(\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T](?:{_CLOCK})?\s*{_ZONE}?)?)?)?$")
_EPOCH: Final = datetime.date(1970, 1, 1)


def parse_date(text: str) -> datetime.date | None:
    """'2024', '2024-3', '2024-03-05' or the date of a timestamp; None if it is not one."""
    match = _DATE.match(text.strip())
    if match is None:
        return None
    year, month, day = match.groups()
    try:
        return datetime.date(int(year), int(month or 1), int(day or 1))
    except ValueError:
        return None


def parse_timestamp(text: str) -> int | None:
    """Microseconds since 1970 in UTC of an ISO timestamp with or without a zone offset; None if it is not one."""
    match = _STAMP.match(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        days = (datetime.date(int(year), int(month or 1), int(day or 1)) - _EPOCH).days
        clock = datetime.time(int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        return None
    micros = int((fraction or "").ljust(6, "0")[:6])
    seconds = days * 86_400 + clock.hour * 3_600 + clock.minute * 60 + clock.second - _offset_s(zone)
    return seconds * 1_000_000 + micros


def _offset_s(zone: str | None) -> int:
    if zone is None or zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    return (-1 if zone[0] == "-" else 1) * (hours * 3_600 + minutes * 60)
