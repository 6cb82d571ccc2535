"""Dates and timestamps from text, as Spark reads them in a UTC session."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evenflow.query.sql.calendar import days_of
from evenflow.query.sql.types import DATE

_DATE: Final = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_CLOCK: Final = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?"
_STAMP: Final = re.compile(rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_CLOCK})?)?)?", re.DOTALL)
_STRICT_DATE: Final = r"([+-]?)([0-9]{4,10})-([0-9]{2})-([0-9]{2})"
_STRICT: Final = {
    "yyyy-MM-dd": re.compile(_STRICT_DATE),
    "yyyy-MM-dd HH:mm:ss": re.compile(rf"{_STRICT_DATE} ([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})"),
    "yyyy-MM-dd'T'HH:mm:ss": re.compile(rf"{_STRICT_DATE}T([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})"),
}
FORMATS: Final = tuple(_STRICT)
_OFFSET: Final = re.compile(r"([+-])([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{2}))?|([0-9]{2})([0-9]{2})?)?")
_SHORT: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
    "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Java's short names of zones."""
_DAY_S: Final = 86_400
_BLANK: Final = "".join(map(chr, range(33)))
_INT: Final = 2**31
_LONG: Final = 2**63


def parse_date(text: str) -> int | None:
    """Days since 1970 of '2024', '2024-3', '2024-03-05' or the date of a timestamp; None if it is not one."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    sign, year, month, day = match.groups()
    return _day(sign, year, month, day)


def _day(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    days = days_of(int(sign + year), int(month or 1), int(day or 1))
    return days if days is not None and -_INT <= days < _INT else None


def of_text(type_: Any) -> Callable[[str], int | None]:
    """What reads a value of a date or a time that is a text of JSON or CSV, blanks around it or not; None if it is none. As whole numbers.
    A time without a zone is no text with one, which a cast would take."""
    if type_ == DATE:
        return lambda text: parse_date(text.strip(_BLANK))
    return lambda text: parse_timestamp(text.strip(_BLANK), zoned=type_.tz is not None)


def parse_timestamp(text: str, *, local: bool = False, zoned: bool = True) -> int | None:
    """Microseconds since 1970 in UTC of an ISO timestamp with or without a zone; None if it is not one.

    `local`: what its clock shows, whatever its zone. `zoned`: whether it may have one. A time without a date, which would mean today's,
    is None too.
    """
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = match.groups()
    days, clock = _day(sign, year, month, day), _clock(hour, minute, second)
    if days is None or clock is None:
        return None
    micros = (days * _DAY_S + clock) * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])
    if zone is not None:
        offset = offset_s(zone.strip(), micros // 1_000_000) if zoned else None
        if offset is None:
            return None
        micros -= 0 if local else offset * 1_000_000
    return micros if -_LONG <= micros < _LONG else None


def parse_formatted(form: str, text: str) -> int | None:
    """Microseconds since 1970 of a text of exactly one of FORMATS; None if it is not one."""
    match = _STRICT[form].fullmatch(text)
    if match is None:
        return None
    sign, year, month, day, *rest = match.groups()
    if (len(year) > 4) != (sign == "+") and sign != "-":
        return None  # More than four digits have a sign, and a plus has more than four digits.
    days, clock = days_of(int(sign + year), int(month), int(day)), _clock(*(rest or (None, None, None)))
    if days is None or clock is None:
        return None
    micros = (days * _DAY_S + clock) * 1_000_000
    return micros if -_LONG <= micros < _LONG else None


def _clock(hour: str | None, minute: str | None, second: str | None) -> int | None:
    """Seconds of the day."""
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    return h * 3_600 + m * 60 + s if h < 24 and m < 60 and s < 60 else None


def offset_s(zone: str, local_s: int) -> int | None:
    """How far a zone is ahead of UTC at a time that its clocks show; None if there is no such zone. As Java's ZoneId.of."""
    zone = _SHORT.get(zone, zone)
    for prefix in ("UTC", "GMT", "UT"):
        if zone.startswith(prefix):
            rest = zone[len(prefix) :]
            if rest in ("", "0") or rest[0] in "+-":
                return 0 if rest in ("", "0") and not (rest == "0" and prefix != "GMT") else _fixed_s(rest)
    if zone == "Z":
        return 0
    return _fixed_s(zone) if zone[:1] in ("+", "-") else _region_s(zone, local_s)


def offset_at(zone: str, utc_s: int) -> int | None:
    """How far a zone is ahead of UTC at a point in time; None if there is no such zone."""
    found = _region(_SHORT.get(zone, zone))
    if found is None:
        return offset_s(zone, utc_s)
    while utc_s >= 253_370_000_000:
        utc_s -= _CYCLE_S
    while utc_s < -62_100_000_000:
        utc_s += _CYCLE_S
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=utc_s)
    offset = moment.astimezone(found).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _fixed_s(text: str) -> int | None:
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    sign, hours, minutes, seconds, packed, packed_seconds = match.groups()
    h, m, s = int(hours), int(minutes or packed or 0), int(seconds or packed_seconds or 0)
    if packed and len(hours) == 1 or m > 59 or s > 59:
        return None
    offset = h * 3_600 + m * 60 + s
    return None if offset > 18 * 3_600 else -offset if sign == "-" else offset


@lru_cache(maxsize=256)
def _region(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if re.fullmatch(r"[A-Za-z][A-Za-z0-9~/._+-]+", name) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


_CYCLE_S: Final = 146_097 * _DAY_S


def _region_s(name: str, local_s: int) -> int | None:
    zone = _region(name)
    if zone is None:
        return None
    # Python's years end before Java's: beyond them, the rule of a year 400 years earlier or later holds.
    shown = local_s
    while shown >= 253_370_000_000:
        shown -= _CYCLE_S
    while shown < -62_100_000_000:
        shown += _CYCLE_S
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=shown)
    before, after = (moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert before is not None and after is not None
    # In a gap Java goes on by the gap's length, which is what the offset before it means; in an overlap it takes the earlier offset.
    return int(before.total_seconds())
