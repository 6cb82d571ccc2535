"""Functions of dates and timestamps. All are in UTC; a timestamp without a zone is taken as UTC."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import calendar, formatted
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast
from evenflow.query.sql.moments import FORMATS, parse_formatted
from evenflow.query.sql.months import months_of
from evenflow.query.sql.node import InvalidValue, Node, Value, call, lift, literal, rowwise, spread
from evenflow.query.sql.shapes import nulls, over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import (
    DATE,
    INT,
    INTERVAL,
    LONG,
    MONTHS,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    bounds,
    decimal,
    integral,
    name_of,
    numeric,
    stringy,
    timestampy,
)
from evenflow.stream.arrays import Int64s

_ISO_TIME: Final = "yyyy-MM-dd HH:mm:ss"


def _date(a: Node, what: str) -> Node:
    if a.type in (DATE, NULL) or stringy(a.type) or timestampy(a.type):
        return cast(a, DATE)
    raise TypeMismatch(f"{what} needs a date, but {a.text} is {name_of(a.type)}")


def _stamp(a: Node, what: str) -> Node:
    """The timestamp as its own type; what is not one becomes a timestamp in UTC."""
    if timestampy(a.type):
        return a
    if a.type in (DATE, NULL) or stringy(a.type):
        return cast(a, TIMESTAMP)
    raise TypeMismatch(f"{what} needs a timestamp, but {a.text} is {name_of(a.type)}")


def _plain(a: Node) -> Node:
    """Without a zone, so that Arrow's field kernels do not look one up."""
    return op.cast_raw(op.cast_raw(a, LONG), TIMESTAMP_NTZ) if timestampy(a.type) and a.type.tz else a


def _field(name: str, kernel: Callable[[Value], Value], of: Callable[[Node, str], Node], a: Node) -> Node:
    return lift(lambda v: calendar.field(v, kernel, years=name == "year"), INT, _plain(of(a, name)))


def _field_of(name: str, of: Callable[[Node, str], Node], kernel: Callable[[Value], Value] | None = None) -> Signature:
    return Signature(partial(_field, name, kernel or call(name), of), 1, 1)


_FIELDS: Final = {
    "year": _field_of("year", _date),
    "quarter": _field_of("quarter", _date),
    "month": _field_of("month", _date),
    "day": _field_of("day", _date),
    "dayofmonth": _field_of("day", _date),
    "dayofyear": _field_of("day_of_year", _date),
    "dayofweek": _field_of("dayofweek", _date, lambda v: pc.add(pc.day_of_week(v, count_from_zero=False, week_start=7), 0)),
    "weekday": _field_of("weekday", _date, lambda v: pc.day_of_week(v, count_from_zero=True, week_start=1)),
    "weekofyear": _field_of("iso_week", _date),
    "hour": _field_of("hour", _stamp),
    "minute": _field_of("minute", _stamp),
    "second": _field_of("second", _stamp),
}
_EXTRACT: Final = {
    "week": "weekofyear", "doy": "dayofyear", "dow": "dayofweek", "months": "month", "days": "day", "hours": "hour", "minutes": "minute",
    "seconds": "second", "sec": "second", "secs": "second", "min": "minute", "mins": "minute", "hr": "hour", "hrs": "hour", "d": "day",
    "years": "year", "yr": "year", "qtr": "quarter", "mon": "month",
}  # fmt: skip


def _extract(unit: Node, a: Node) -> Node:
    """EXTRACT(unit FROM a) and date_part(unit, a)."""
    given = str(constant_of(unit, "the unit of extract")).lower()
    name = _EXTRACT.get(given, given)
    if a.type in (INTERVAL, MONTHS):
        return _of_interval(name, a)
    if name not in _FIELDS:
        raise ExpressionError(f"extract cannot give {given!r}; it gives {', '.join(_FIELDS)}")
    return _seconds(np.mod, op.micros(_stamp(a, "extract"))) if name == "second" else _FIELDS[name].build(a)


def _seconds(rest_of: Callable[[Int64s, int], Int64s], micros: Node) -> Node:
    """Seconds of a minute with six digits behind the point. rest_of: np.mod, or np.fmod, which is below zero where the time is."""
    return lift(over_arrays(lambda v: _as_decimal(rest_of(ints_of(v), 60_000_000), nulls(v))), _SECONDS, micros)


def _as_decimal(rest: Int64s, missing: pa.Array | None) -> pa.Array:
    whole = pa.array([Decimal(int(v)).scaleb(-6) for v in rest], pa.decimal128(8, 6))
    return whole if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, whole.type), whole)


def ints_of(array: pa.Array) -> Int64s:
    """Its whole numbers, 0 for null."""
    found: Int64s = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


_SECONDS: Final = pa.decimal128(8, 6)
_OF_INTERVAL: Final = {"day": (86_400_000_000, 0, INT), "hour": (3_600_000_000, 24, pa.int8()), "minute": (60_000_000, 60, pa.int8())}


def _of_interval(name: str, a: Node) -> Node:
    """Days, hours, minutes and seconds of an interval, or years and months of one of these."""
    if a.type == MONTHS and name in ("year", "month"):
        months = months_of(a)
        whole = abs(months) // 12 if name == "year" else abs(months) % 12
        return literal(pa.scalar(whole if months >= 0 else -whole, INT if name == "year" else pa.int8()))
    if a.type == INTERVAL and name == "second":
        return _seconds(np.fmod, op.cast_raw(a, LONG))
    if a.type == MONTHS or name not in _OF_INTERVAL:
        raise ExpressionError(
            f"extract cannot give {name!r} of {a.text}; it gives {', '.join([*_OF_INTERVAL, 'second'])}, or year and month"
        )
    unit, most, type_ = _OF_INTERVAL[name]

    def kernel(array: pa.Array) -> pa.Array:
        rest = np.fmod(ints_of(array), unit * most) if most else ints_of(array)
        return pa.array((rest - np.fmod(rest, unit)) // unit, type_, mask=nulls(array))

    return lift(over_arrays(kernel), type_, op.cast_raw(a, LONG))


_UNITS: Final = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}
_TIME_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


def _unit(node: Node, known: tuple[str, ...], what: str) -> str:
    unit = str(constant_of(node, f"the unit of {what}")).lower()
    unit = _UNITS.get(unit, unit)
    if unit not in known:
        raise ExpressionError(f"{what}: the unit must be one of {', '.join(known)}, not {unit!r}")
    return unit


def _floor(unit: str, type: pa.DataType, a: Node) -> Node:
    kernel = call("floor_temporal", pc.RoundTemporalOptions(1, unit, week_starts_monday=True))
    rounded = lift(lambda v: calendar.floor(v, kernel), TIMESTAMP_NTZ, _plain(a), raises=True)
    return rounded if type == TIMESTAMP_NTZ else op.cast_raw(op.cast_raw(rounded, LONG), type)


def _date_trunc(unit: Node, a: Node) -> Node:
    """The start of the unit that a timestamp lies in, as a timestamp with a zone whatever it was, as in Spark."""
    a = cast(_stamp(a, "date_trunc"), TIMESTAMP)
    return _floor(_unit(unit, _TIME_UNITS, "date_trunc"), a.type, a)


def _trunc(a: Node, unit: Node) -> Node:
    """The start of the unit that a date lies in. What lies before the first date comes out as it does in 32 bits, as in Spark."""
    name = _unit(unit, _TIME_UNITS[:4], "trunc")
    if name not in ("year", "quarter", "month", "week"):
        raise ExpressionError(f"trunc: the unit must be one of {', '.join(_TIME_UNITS[:4])}, not {name!r}")
    kernel = call("floor_temporal", pc.RoundTemporalOptions(1, name, week_starts_monday=True))
    return lift(lambda v: calendar.floor(v, kernel), DATE, _date(a, "trunc"), raises=True)


# Conversion


def read(a: Node, form: Node | None, what: str, default: str | None = None, *, tried: bool = False) -> Node | None:
    """A text as a timestamp in UTC, by a format that it must have exactly; None if `a` is no text, or has no format."""
    pattern = default if form is None else constant_of(form, f"the format of {what}")
    if pattern is not None and not isinstance(pattern, str):
        raise TypeMismatch(f"the format of {what} must be a string, not {pattern!r}")
    reader = None if pattern is None else partial(parse_formatted, pattern) if pattern in FORMATS else formatted.reader(pattern, what)
    if form is not None and pattern is None and stringy(a.type):
        return literal(pa.scalar(None, TIMESTAMP))
    if reader is None or not stringy(a.type):
        return None

    def one(text: str) -> int | None:
        found = reader(text)
        if found is None and not tried:
            raise InvalidValue(f"{text!r} is not {pattern!r}, which {what} wants; use try_cast for what may be another text")
        return found

    return op.cast_raw(op.cast_raw(rowwise(one, LONG, a, raises=not tried), TIMESTAMP_NTZ), TIMESTAMP)


def _to_date(a: Node, form: Node | None = None) -> Node:
    """With a format, a date is a timestamp in between, as in Spark."""
    found = read(a, form, "to_date")
    if found is None:
        found = cast(a, TIMESTAMP) if form is not None and a.type == DATE else a
    return _date(found, "to_date")


def _to_timestamp(a: Node, form: Node | None = None) -> Node:
    found = read(a, form, "to_timestamp")
    if found is not None:
        return found
    if numeric(a.type):
        if form is not None:
            raise TypeMismatch(f"to_timestamp: {a.text} is {name_of(a.type)}, which has no format")
        return cast(a, TIMESTAMP)
    return cast(_stamp(a, "to_timestamp"), TIMESTAMP)


def _since(unit_us: int, name: str, a: Node, form: Node | None = None) -> Node:
    """Whole units since 1970: rounded down, but towards 1970 by unix_timestamp, as in Spark."""
    if name.endswith("unix_timestamp"):
        if form is not None and form.type != NULL and not stringy(form.type):
            raise TypeMismatch(f"the format of {name} must be a string, but {form.text} is {name_of(form.type)}")
        if a.type == NULL:
            return literal(pa.scalar(None, LONG))  # Even if it would fail, as in Spark.
        a = read(a, form, name, _ISO_TIME) or a
    elif stringy(a.type) or a.type == DATE:
        raise TypeMismatch(f"{name} needs a timestamp, but {a.text} is {name_of(a.type)}; cast it")
    micros = op.micros(_stamp(a, name))
    if unit_us == 1:
        return micros
    by = pa.scalar(unit_us, LONG)
    if name.endswith("unix_timestamp"):
        return lift(lambda v: pc.divide(v, by), LONG, micros)
    return lift(lambda v: calendar.floor_divided(v, by), LONG, micros)


def _from_units(unit_us: int, name: str, a: Node) -> Node:
    if name == "timestamp_seconds" and numeric(a.type) and not integral(a.type):
        return _of_seconds(a) if decimal(a.type) else op.cast_raw(op.cast_raw(rowwise(_nearest, LONG, a), TIMESTAMP_NTZ), TIMESTAMP)
    if not integral(a.type):
        raise TypeMismatch(f"{name} needs a whole number, but {a.text} is {name_of(a.type)}")
    scaled = op.arithmetic("*", cast(a, LONG), cast(op.TRUE, LONG)) if unit_us == 1 else _times(cast(a, LONG), unit_us)
    return op.cast_raw(op.cast_raw(scaled, TIMESTAMP_NTZ), TIMESTAMP)


def _nearest(seconds: float) -> int | None:
    """Microseconds of a double, or the end of the range that it is beyond. None for what is no number of seconds."""
    if not math.isfinite(seconds):
        return None
    micros = seconds * 1e6
    return int(max(-(2.0**63), micros)) if micros < 2.0**63 else 2**63 - 1


def _of_seconds(a: Node) -> Node:
    """Of a decimal; it must not have more than six digits behind the point."""

    def one(seconds: Decimal) -> int:
        micros = seconds.scaleb(6)
        if micros != int(micros) or not -(2**63) <= int(micros) < 2**63:
            raise ArithmeticOverflow(f"{seconds} seconds are no whole number of microseconds that a timestamp can have")
        return int(micros)

    return op.cast_raw(op.cast_raw(rowwise(one, LONG, a, raises=True), TIMESTAMP_NTZ), TIMESTAMP)


def _times(a: Node, by: int) -> Node:
    return lift(lambda v: pc.multiply_checked(v, by), LONG, a, raises=True)


def _from_unixtime(a: Node, form: Node | None = None) -> Node:
    made = _from_units(1_000_000, "from_unixtime", a)
    pattern = _ISO_TIME if form is None else constant_of(form, "the format of from_unixtime")
    return cast(made, STRING) if pattern == _ISO_TIME else _written("from_unixtime", made, pattern)


_CLOCK: Final = re.compile(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?\s*", re.ASCII)
_OF_A_DAY: Final = frozenset("HhkKmsSa")


def _time(a: Node) -> Node:
    """TIME '6:30:45.887'."""
    text = str(constant_of(a, "a time of a day"))
    found = _CLOCK.fullmatch(text)
    hour, minute, second = (int(found[at] or 0) for at in (1, 2, 3)) if found else (24, 0, 0)
    if found is None or hour > 23 or minute > 59 or second > 59:
        raise ExpressionError(f"TIME {text!r} is no time of a day; write TIME '23:59:59.999999'")
    return literal(pa.scalar(((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[4] or "").ljust(6, "0")), TIME))


def micros_of_day(a: Node) -> int:
    """The microseconds since midnight of a constant time of a day."""
    if a.type != TIME or a.constant is None:
        raise ExpressionError(f"{a.text} is no time of a day; columns cannot be such times, TIME '12:30:00' is one")
    return int(a.constant.cast(LONG).as_py())


def _date_format(a: Node, form: Node) -> Node:
    if a.type == TIME:
        pattern = constant_of(form, "the format of date_format")
        if any(part.letter.isalpha() and part.letter not in _OF_A_DAY for part in formatted.parts_of(str(pattern), "date_format")):
            raise ExpressionError(f"date_format: {pattern!r} asks for a date, and {a.text} is a time of a day")
        return _written("date_format", literal(pa.scalar(micros_of_day(a), TIMESTAMP_NTZ).cast(TIMESTAMP)), pattern)
    return _written("date_format", cast(_stamp(a, "date_format"), TIMESTAMP), constant_of(form, "the format of date_format"))


def by_pattern(a: Node, pattern: str) -> Node:
    """A date or a timestamp by a pattern. Without hours in it a date stays a date: the last ones are beyond the last timestamp."""
    if a.type != DATE or any(part.letter in tuple("HhkKmsSa") for part in formatted.parts_of(pattern, "date_format")):
        return _date_format(a, literal(pa.scalar(pattern)))
    return formatted.written(pattern, a, lambda name, time: _FIELDS[name].build(time), a, "date_format")


def _written(what: str, a: Node, pattern: object) -> Node:
    if pattern is None:  # The time is looked at all the same: where it is none, that is an error.
        return lift(over_arrays(lambda array: pa.nulls(len(array), STRING)), STRING, a)
    if not isinstance(pattern, str):
        raise TypeMismatch(f"the format of {what} must be a string, not {pattern!r}")
    return formatted.written(pattern, a, lambda name, time: _FIELDS[name].build(time), op.micros(a), what)


SPANS: Final = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
                 "day": 86_400_000_000, "week": 604_800_000_000}  # fmt: skip


def apart(unit: str, start: Node, end: Node) -> Node:
    """Whole units of SPANS from one time to another, towards zero."""
    span = SPANS[unit]

    def kernel(first: pa.Array, last: pa.Array) -> pa.Array:
        (a, over_a), (b, over_b) = (np.divmod(v.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), span) for v in (first, last))
        whole = b - a
        whole += np.where((whole < 0) & (over_b > over_a), 1, 0) - np.where((whole > 0) & (over_b < over_a), 1, 0)
        return pa.array(whole, LONG, mask=nulls(first) | nulls(last))

    return lift(over_arrays(kernel), LONG, op.micros(start), op.micros(end))


def _unix_date(a: Node) -> Node:
    if a.type not in (DATE, NULL):
        raise TypeMismatch(f"unix_date needs a date, but {a.text} is {name_of(a.type)}; cast it")
    return _days(a)


def _days(a: Node) -> Node:
    return op.cast_raw(_date(a, "datediff"), INT)


# Arithmetic


def _date_add(operator: str, a: Node, days: Node) -> Node:
    if not (integral(days.type) and days.type != LONG) and not stringy(days.type) and days.type != NULL:
        raise TypeMismatch(f"the number of days must be an int, but {days.text} is {name_of(days.type)}")
    return op.shift_days(_date(a, "date_add"), days, operator)


def _datediff(end: Node, start: Node) -> Node:
    return op.arithmetic("-", _days(end), _days(start))


def _add_months(a: Node, months: Node) -> Node:
    def later(days: Value, count: Value) -> Value:
        return _dates(calendar.months_later, days, count)

    if not integral(months.type) and not stringy(months.type) and months.type != NULL:
        raise TypeMismatch(f"the number of months must be an int, but {months.text} is {name_of(months.type)}")
    return lift(later, DATE, _date(a, "add_months"), cast(months, INT), raises=True)


def later_date(a: Node, months: Node, days: Node) -> Node:
    """Months later, then days: what lies between may be beyond the last date."""
    return lift(lambda v, m, d: _dates(_later_by_both, v, m, d), DATE, a, months, cast(days, INT), raises=True)


def _later_by_both(start: Any, months: Any, days: Any) -> Any:
    return calendar.months_later(start, months) + days


def _last_day(a: Node) -> Node:
    return lift(lambda v: _dates(calendar.last_of_month, v), DATE, _date(a, "last_day"), raises=True)


def _dates(function: Callable[..., Any], *args: Value) -> Value:
    """The function of days since 1970, or of days and another whole number, over arrays with nulls."""
    if not any(isinstance(a, pa.Array) for a in args):
        return _dates(function, *(pa.array([a.cast(INT).as_py()], INT) for a in args))[0]
    count = next(len(a) for a in args if isinstance(a, pa.Array))
    arrays = [spread(a, count).cast(INT) for a in args]
    missing = np.logical_or.reduce([a.is_null().to_numpy(zero_copy_only=False) for a in arrays])
    found = function(*(a.fill_null(0).to_numpy().astype(np.int64) for a in arrays))
    low, high = bounds(INT)
    if ((found < low) | (found > high))[~missing].any():
        raise ArithmeticOverflow("a date lies beyond the last one or before the first one, 5881580-07-11 and -5877641-06-23")
    return pa.array(found, LONG, mask=missing).cast(INT, safe=False).cast(DATE)


def _conversions() -> dict[str, Any]:
    to = {"unix_timestamp": 1_000_000, "to_unix_timestamp": 1_000_000, "unix_seconds": 1_000_000, "unix_millis": 1_000, "unix_micros": 1}
    back = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}
    return {
        **{n: Signature(partial(_since, us, n), 1, 2 if n.endswith("unix_timestamp") else 1) for n, us in to.items()},
        **{n: Signature(partial(_from_units, us, n), 1, 1) for n, us in back.items()},
    }


def _casts() -> dict[str, Signature]:
    """date(x), int(x): a type's name as a function is a cast."""
    types = {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": INT, "bigint": LONG, "float": pa.float32(),
        "double": pa.float64(), "string": STRING, "binary": pa.binary(), "date": DATE, "timestamp": TIMESTAMP,
        "decimal": pa.decimal128(10, 0),
    }  # fmt: skip
    return {name: Signature(lambda a, type=type: cast(a, type), 1, 1) for name, type in types.items()}


def _window_start(a: Node, size: Node, offset: Node) -> Node:
    """When the window begins that a time is in. size, offset: microseconds, constants. Not for texts of users."""
    size_us, from_us = (int(str(constant_of(each, "the length of a window"))) for each in (size, offset))

    def kernel(value: Value) -> Value:
        return pc.add(pc.multiply(calendar.floor_divided(pc.subtract(value, from_us), size_us), size_us), from_us)

    return op.cast_raw(lift(kernel, LONG, op.micros(a)), a.type)


FUNCTIONS: Final = {
    **_FIELDS,
    **_conversions(),
    **_casts(),
    "extract": Signature(_extract, 2, 2),
    "date_part": Signature(_extract, 2, 2),
    "datepart": Signature(_extract, 2, 2),
    "_window_start": Signature(_window_start, 3, 3),
    "date_trunc": Signature(_date_trunc, 2, 2),
    "trunc": Signature(_trunc, 2, 2),
    "to_date": Signature(_to_date, 1, 2),
    "to_timestamp": Signature(_to_timestamp, 1, 2),
    "from_unixtime": Signature(_from_unixtime, 1, 2),
    "date_format": Signature(_date_format, 2, 2),
    "_time": Signature(_time, 1, 1),
    "unix_date": Signature(_unix_date, 1, 1),
    "date_add": Signature(partial(_date_add, "+"), 2, 2),
    "dateadd": Signature(partial(_date_add, "+"), 2, 2),
    "date_sub": Signature(partial(_date_add, "-"), 2, 2),
    "datediff": Signature(_datediff, 2, 2),
    "date_diff": Signature(_datediff, 2, 2),
    "add_months": Signature(_add_months, 2, 2),
    "last_day": Signature(_last_day, 1, 1),
}
