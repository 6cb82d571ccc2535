"""More functions of dates and timestamps: made of numbers, moved by calendar units, compared in them, shown in another zone."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import calendar, times
from evenflow.query.sql import operators as op
from evenflow.query.sql.arguments import an_int
from evenflow.query.sql.casts import cast
from evenflow.query.sql.moments import offset_at, offset_s
from evenflow.query.sql.node import InvalidValue, Node, lift, literal, measured, rowwise
from evenflow.query.sql.shapes import nulls, over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import (
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    LONG,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    integral,
    name_of,
    numeric,
    stringy,
    timestampy,
)
from evenflow.stream.arrays import Int64s

_DAY_US: Final = 86_400_000_000
_LONG: Final = 2**63
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def _moment(a: Node, what: str) -> Node:
    """A timestamp with or without a zone; a date is its midnight."""
    if timestampy(a.type):
        return a
    if a.type in (DATE, NULL) or stringy(a.type):
        return cast(a, TIMESTAMP)
    raise TypeMismatch(f"{what} needs a timestamp, but {a.text} is {name_of(a.type)}; cast it")


def _day(a: Node, what: str) -> Node:
    if a.type in (DATE, NULL) or timestampy(a.type) or stringy(a.type):
        return cast(a, DATE)
    raise TypeMismatch(f"{what} needs a date, but {a.text} is {name_of(a.type)}; cast it")


def _as_moment(micros: Node, type_: pa.DataType) -> Node:
    plain = op.cast_raw(micros, TIMESTAMP_NTZ)
    return plain if type_ == TIMESTAMP_NTZ else op.cast_raw(plain, type_)


# Made


def _make_date(year: Node, month: Node, day: Node) -> Node:
    def one(y: int, m: int, d: int) -> int:
        found = calendar.days_of(y, m, d)
        if found is None or not -(2**31) <= found < 2**31 or abs(y) > 999_999_999:
            raise InvalidValue(f"there is no date of the year {y}, the month {m} and the day {d}")
        return found

    days = rowwise(one, INT, *(an_int(each, "make_date") for each in (year, month, day)), raises=True)
    return op.cast_raw(days, DATE)


def _make_timestamp(name: str, type_: pa.DataType, tried: bool, *given: Node) -> Node:
    """Of year, month, day, hour, minute, second, and perhaps the zone that they are of; or of a date. A second of 60 is the next minute."""
    if len(given) == 1:
        if given[0].type not in (DATE, NULL):
            raise TypeMismatch(f"{name} of one argument needs a date, but {given[0].text} is {name_of(given[0].type)}; cast it")
        return cast(given[0], type_)
    if len(given) < 4 and given[1].type == TIME:
        return _at_time(name, type_, tried, *given)
    if len(given) < 6:
        raise ExpressionError(
            f"{name} takes a date, a date and a time of a day such as TIME '12:30:00', or 6 or 7 arguments from the year to the second"
        )
    if len(given) == 7 and type_ == TIMESTAMP_NTZ:
        raise ExpressionError(f"{name} has no zone")
    whole = [an_int(each, name) for each in given[:5]]
    if not numeric(given[5].type) and given[5].type != NULL:
        raise TypeMismatch(f"{name} needs a number of seconds, but {given[5].text} is {name_of(given[5].type)}; cast it")
    second = cast(given[5], pa.decimal128(16, 6))
    zone = []
    if len(given) == 7:
        if not stringy(given[6].type) and given[6].type != NULL:
            raise TypeMismatch(f"{name} needs a zone as a string, but {given[6].text} is {name_of(given[6].type)}")
        zone = [cast(given[6], STRING)]

    def one(*parts: Any) -> int | None:
        try:
            return _micros(*parts)
        except InvalidValue:
            if tried:
                return None
            raise

    return _as_moment(rowwise(one, LONG, *whole, second, *zone, raises=not tried or second.raises), type_)


def _at_time(name: str, type_: pa.DataType, tried: bool, date: Node, time: Node, zone: Node | None = None) -> Node:
    """Of a date, a time of the day, and perhaps the zone that they are of."""
    if date.type not in (DATE, NULL):
        raise TypeMismatch(f"{name} needs a date before the time, but {date.text} is {name_of(date.type)}; cast it")
    if zone is not None and type_ == TIMESTAMP_NTZ:
        raise ExpressionError(f"{name} has no zone")
    after = times.micros_of_day(time)

    def one(days: int, place: str | None = None) -> int | None:
        micros = days * _DAY_US + after
        offset = 0 if place is None else offset_s(place, micros // 1_000_000)
        if offset is not None and -_LONG <= micros - offset * 1_000_000 < _LONG:
            return micros - offset * 1_000_000
        if offset is None:
            raise InvalidValue(f"there is no zone {place!r}")
        if tried:
            return None
        raise InvalidValue(f"{days} days since 1970 are beyond the last timestamp")

    zones = [] if zone is None else [cast(zone, STRING)]
    return _as_moment(rowwise(one, LONG, op.cast_raw(cast(date, DATE), INT), *zones, raises=not tried or bool(zones)), type_)


def _micros(year: int, month: int, day: int, hour: int, minute: int, second: Decimal, zone: str | None = None) -> int:
    days = calendar.days_of(year, month, day)
    micros = (int(second * 1_000_000) + 2**31) % 2**32 - 2**31  # As in Spark, which has 32 bits for them.
    if days is None or not (0 <= hour < 24 and 0 <= minute < 60 and (0 <= micros < 60_000_000 or micros == 60_000_000)):
        raise InvalidValue(f"there is no time {year}-{month}-{day} {hour}:{minute}:{second}")
    found = ((days * 24 + hour) * 60 + minute) * 60_000_000 + micros
    if zone is not None:
        offset = offset_s(zone, found // 1_000_000)
        if offset is None:
            raise InvalidValue(f"there is no zone {zone!r}")
        found -= offset * 1_000_000
    if not -_LONG <= found < _LONG:
        raise InvalidValue(f"{year}-{month}-{day} is beyond the last timestamp, or before the first one")
    return found


_PARTS: Final = (("day", _DAY_US), ("hour", 3_600_000_000), ("minute", 60_000_000))


def _make_interval(*given: Node) -> Node:
    """make_dt_interval: days, hours, minutes, seconds; what is left out is 0."""
    nodes = [an_int(each, "make_dt_interval") for each in given[:3]]
    if len(given) > 3:
        if not numeric(given[3].type) and given[3].type != NULL:
            raise TypeMismatch(f"make_dt_interval needs a number of seconds, but {given[3].text} is {name_of(given[3].type)}")
        nodes.append(cast(given[3], pa.decimal128(18, 6)))

    def one(*parts: Any) -> int:
        found: int = sum(part * us for part, (_, us) in zip(parts, _PARTS)) + (int(parts[3] * 1_000_000) if len(parts) > 3 else 0)
        if not -_LONG <= found < _LONG:
            raise ArithmeticOverflow("make_dt_interval: the interval is longer than any can be")
        return found

    if not nodes:
        return measured(literal(pa.scalar(0, INTERVAL)), "second")
    return op.cast_raw(rowwise(one, LONG, *nodes, raises=True), INTERVAL, "second")


def _from_unix_date(a: Node) -> Node:
    return op.cast_raw(an_int(a, "date_from_unix_date"), DATE)


# Names of days and months

_DAYS: Final = pa.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
_NAMES: Final = pa.array(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
_SHORT: Final = {name: at for at, names in enumerate((
    ("MO", "MON", "MONDAY"), ("TU", "TUE", "TUESDAY"), ("WE", "WED", "WEDNESDAY"), ("TH", "THU", "THURSDAY"), ("FR", "FRI", "FRIDAY"),
    ("SA", "SAT", "SATURDAY"), ("SU", "SUN", "SUNDAY"),
)) for name in names}  # fmt: skip


def _name(names: pa.Array, field: str, first: int, what: str, a: Node) -> Node:
    number = times.FUNCTIONS[field].build(_day(a, what))
    return lift(over_arrays(lambda v: names.take(pc.subtract(v, pa.scalar(first, INT)))), STRING, number)


def _next_day(a: Node, name: Node) -> Node:
    if not stringy(name.type) and name.type != NULL:
        raise TypeMismatch(f"next_day needs the name of a day, but {name.text} is {name_of(name.type)}")

    def one(days: int, wanted: str) -> int:
        at = _SHORT.get(wanted.upper())
        if at is None:
            raise InvalidValue(f"{wanted!r} is no day of the week")
        apart = ((at + 4) % 7 - 1 - days + 2**31) % 2**32 - 2**31
        return (days + 1 + apart % 7 + 2**31) % 2**32 - 2**31

    return op.cast_raw(rowwise(one, INT, op.cast_raw(_day(a, "next_day"), INT), cast(name, STRING), raises=True), DATE)


# Months and what is longer


def _fields(micros: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Months since 1970, day of the month from 0, the last day of that month, and microseconds of the day."""
    days, rest = np.divmod(micros, _DAY_US)
    return *_of_days(days), rest


def _of_days(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Months since 1970, day of the month from 0, and the last day of that month."""
    moved = np.mod(days, calendar.CYCLE_DAYS)
    date = moved.astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    day = (date - month.astype("datetime64[D]")).astype(np.int64)
    last = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.int64) - 1
    whole = month.astype(np.int64) + (days - moved) // calendar.CYCLE_DAYS * (12 * calendar.CYCLE_YEARS)
    return whole, day, last


def months_apart(unit: str, start: Node, end: Node) -> Node:
    """Whole months, quarters or years from one time to another, towards zero, as Java counts them."""

    def kernel(first: pa.Array, last: pa.Array) -> pa.Array:
        (m1, d1, _, r1), (m2, d2, _, r2) = (_fields(times.ints_of(v)) for v in (first, last))
        one, other = m1 * 32 + d1, m2 * 32 + d2
        moved = np.where((other > one) & (r2 < r1), -1, np.where((other < one) & (r2 > r1), 1, 0))
        m2, d2, _ = _of_days(times.ints_of(last) // _DAY_US + moved)  # A day that is not whole does not count.
        apart = m2 * 32 + d2 - one
        by = 32 * _MONTHS[unit]
        return pa.array(np.sign(apart) * (np.abs(apart) // by), LONG, mask=nulls(first) | nulls(last))

    return lift(over_arrays(kernel), LONG, op.micros(start), op.micros(end))


def later_by(unit: str, count: Node, a: Node) -> Node:
    """A time some units later: months on the last day of a month that has no such day."""
    if not integral(count.type) and count.type != NULL:
        raise TypeMismatch(f"timestampadd needs a whole number, but {count.text} is {name_of(count.type)}; cast it")
    a = _moment(a, "timestampadd")
    if unit not in _MONTHS:
        span = times.SPANS[unit]
        total = lift(lambda n: pc.multiply_checked(n, pa.scalar(span, LONG)), LONG, cast(count, LONG), raises=True)
        return op.arithmetic("+", a, op.cast_raw(total, INTERVAL, "second"))
    by = _MONTHS[unit]

    def one(micros: int, n: int) -> int:
        if abs(n) > 10**8:
            raise ArithmeticOverflow("a timestamp lies beyond the last one or before the first one")
        days, rest = divmod(micros, _DAY_US)
        found = int(calendar.months_later(np.array([days]), np.array([n * by]))[0]) * _DAY_US + rest
        if not -_LONG <= found < _LONG:
            raise ArithmeticOverflow("a timestamp lies beyond the last one or before the first one")
        return found

    return _as_moment(rowwise(one, LONG, op.micros(a), cast(count, LONG), raises=True), a.type)


def _unit_of(node: Node, what: str) -> str:
    name = str(constant_of(node, f"the unit of {what}")).lower().removesuffix("s")
    name = {"dayofyear": "day"}.get(name, name)
    if name not in _MONTHS and name not in times.SPANS:
        raise ExpressionError(f"{what}: the unit must be one of {', '.join([*_MONTHS, *times.SPANS])}, not {name!r}")
    return name


def _timestampadd(unit: Node, count: Node, a: Node) -> Node:
    return later_by(_unit_of(unit, "timestampadd"), count, a)


def _timestampdiff(unit: Node, start: Node, end: Node) -> Node:
    name = _unit_of(unit, "timestampdiff")
    start, end = _moment(start, "timestampdiff"), _moment(end, "timestampdiff")
    return months_apart(name, start, end) if name in _MONTHS else times.apart(name, start, end)


def _months_between(a: Node, b: Node, rounded: Node | None = None) -> Node:
    """Months with a fraction of 31 days; none between equal days of a month, and between last days of months."""
    off = True if rounded is None else constant_of(rounded, "whether months_between is rounded")
    if not isinstance(off, bool):
        raise TypeMismatch("months_between: the third argument is true or false")

    def kernel(first: pa.Array, last: pa.Array) -> pa.Array:
        (m1, d1, e1, r1), (m2, d2, e2, r2) = (_fields(times.ints_of(v)) for v in (first, last))
        seconds = (d1 - d2) * 86_400 + r1 // 1_000_000 - r2 // 1_000_000
        months = (m1 - m2).astype(np.float64)
        found = months + seconds / (31 * 86_400.0)
        if off:
            found = np.floor(found * 1e8 + 0.5) / 1e8
        whole = (d1 == d2) | ((d1 == e1) & (d2 == e2))
        early = np.logical_or(*(times.ints_of(v) < -(_LONG // _DAY_US) * _DAY_US for v in (first, last)))
        if (early & ~whole & ~nulls(first) & ~nulls(last)).any():
            raise ArithmeticOverflow("months_between: the day begins before the first timestamp")
        return pa.array(np.where(whole, months, found), DOUBLE, mask=nulls(first) | nulls(last))

    nodes = [op.micros(cast(_moment(each, "months_between"), TIMESTAMP)) for each in (a, b)]
    return lift(over_arrays(kernel), DOUBLE, *nodes, raises=True)


# Zones


def _zoned(forward: bool, name: str, a: Node, zone: Node) -> Node:
    """from_utc_timestamp shows a time of UTC as a zone's clocks do; to_utc_timestamp is the other way round."""
    if not stringy(zone.type) and zone.type != NULL:
        raise TypeMismatch(f"{name} needs a zone as a string, but {zone.text} is {name_of(zone.type)}")
    if a.type not in (DATE, NULL, TIMESTAMP) and not stringy(a.type):
        raise TypeMismatch(f"{name} needs a timestamp, but {a.text} is {name_of(a.type)}; cast it")

    def one(micros: int, where: str) -> int:
        offset = (offset_at if forward else offset_s)(where, micros // 1_000_000)
        return _moved(micros, offset, where, 1 if forward else -1)

    return _as_moment(rowwise(one, LONG, op.micros(cast(a, TIMESTAMP)), cast(zone, STRING), raises=True), TIMESTAMP)


def _moved(micros: int, offset: int | None, zone: str, sign: int) -> int:
    if offset is None:
        raise InvalidValue(f"there is no zone {zone!r}")
    found = micros + sign * offset * 1_000_000
    if not -_LONG <= found < _LONG:
        raise ArithmeticOverflow("a timestamp lies beyond the last one or before the first one")
    return found


def _convert_timezone(*given: Node) -> Node:
    """Of a time without a zone: what clocks of another zone show then. Without a zone of its own it is UTC's."""
    *zones, a = given
    if a.type not in (TIMESTAMP_NTZ, NULL):
        raise TypeMismatch(f"convert_timezone needs a timestamp without a zone, but {a.text} is {name_of(a.type)}; cast it")
    for zone in zones:
        if not stringy(zone.type) and zone.type != NULL:
            raise TypeMismatch(f"convert_timezone needs a zone as a string, but {zone.text} is {name_of(zone.type)}")

    def one(*values: Any) -> int:
        *names, micros = values
        if len(names) == 2:
            micros = _moved(micros, offset_s(names[0], micros // 1_000_000), names[0], -1)
        return _moved(micros, offset_at(names[-1], micros // 1_000_000), names[-1], 1)

    micros = op.micros(cast(a, TIMESTAMP_NTZ))
    return _as_moment(rowwise(one, LONG, *(cast(zone, STRING) for zone in zones), micros, raises=True), TIMESTAMP_NTZ)


# Read


def _to(type_: pa.DataType, name: str, a: Node, form: Node | None = None) -> Node:
    """to_timestamp_ltz and to_timestamp_ntz."""
    if form is not None and not stringy(form.type):
        raise TypeMismatch(f"the format of {name} must be a string, not {form.text}")
    if not stringy(a.type) and a.type not in (DATE, NULL) and not timestampy(a.type):
        raise TypeMismatch(f"{name} needs a string, a date or a timestamp, but {a.text} is {name_of(a.type)}; cast it")
    if type_ == TIMESTAMP_NTZ and form is not None:
        return _as_moment(op.micros(times.FUNCTIONS["to_timestamp"].build(a, form)), TIMESTAMP_NTZ)
    return cast(a, type_) if form is None else times.FUNCTIONS["to_timestamp"].build(a, form)


def _try_to(type_: pa.DataType, name: str, a: Node, form: Node | None = None) -> Node:
    """Null for a text that is none."""
    if form is not None and not stringy(form.type):
        raise TypeMismatch(f"the format of {name} must be a string, not {form.text}")
    if not stringy(a.type) and a.type not in (DATE, NULL) and not timestampy(a.type):
        raise TypeMismatch(f"{name} needs a string, a date or a timestamp, but {a.text} is {name_of(a.type)}; cast it")
    if a.type == DATE and (form is not None or type_ != DATE):
        return cast(cast(a, TIMESTAMP), type_)  # In Spark only the reading of a text is tried.
    if form is None:
        return cast(a, type_, try_=True)
    found = times.read(a, form, name, tried=True)
    return cast(a if found is None else found, type_)


def _made(name: str, type_: pa.DataType, most: int) -> dict[str, Signature]:
    """Only make_timestamp is of a date alone, too."""
    least = 1 if name == "make_timestamp" else 2
    return {f"{word}{name}": Signature(partial(_make_timestamp, f"{word}{name}", type_, word != ""), least, most) for word in ("", "try_")}


FUNCTIONS: Final[dict[str, Signature]] = {
    "make_date": Signature(_make_date, 3, 3),
    **_made("make_timestamp", TIMESTAMP, 7),
    **_made("make_timestamp_ltz", TIMESTAMP, 7),
    **_made("make_timestamp_ntz", TIMESTAMP_NTZ, 6),
    "make_dt_interval": Signature(_make_interval, 0, 4),
    "date_from_unix_date": Signature(_from_unix_date, 1, 1),
    "dayname": Signature(partial(_name, _DAYS, "weekday", 0, "dayname"), 1, 1),
    "monthname": Signature(partial(_name, _NAMES, "month", 1, "monthname"), 1, 1),
    "next_day": Signature(_next_day, 2, 2),
    "months_between": Signature(_months_between, 2, 3),
    "from_utc_timestamp": Signature(partial(_zoned, True, "from_utc_timestamp"), 2, 2),
    "to_utc_timestamp": Signature(partial(_zoned, False, "to_utc_timestamp"), 2, 2),
    "convert_timezone": Signature(_convert_timezone, 2, 3),
    "to_timestamp_ltz": Signature(partial(_to, TIMESTAMP, "to_timestamp_ltz"), 1, 2),
    "to_timestamp_ntz": Signature(partial(_to, TIMESTAMP_NTZ, "to_timestamp_ntz"), 1, 2),
    "try_to_timestamp": Signature(partial(_try_to, TIMESTAMP, "try_to_timestamp"), 1, 2),
    "try_to_date": Signature(partial(_try_to, DATE, "try_to_date"), 1, 2),
    "_timestampadd": Signature(_timestampadd, 3, 3),
    "_timestampdiff": Signature(_timestampdiff, 3, 3),
}
