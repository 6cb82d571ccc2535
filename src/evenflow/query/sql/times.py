"""Functions of dates and timestamps. All are in UTC; a timestamp without a zone is taken as UTC."""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import Node, Value, call, lift, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import (
    DATE,
    INT,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    integral,
    name_of,
    numeric,
    stringy,
    timestampy,
)

_ISO_DATE: Final = "yyyy-MM-dd"
_ISO_TIME: Final = "yyyy-MM-dd HH:mm:ss"
_FORMATS: Final = (_ISO_DATE, _ISO_TIME, "yyyy-MM-dd'T'HH:mm:ss")


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
    return lift(lambda v: kernel(v).cast(INT), INT, _plain(of(a, name)))


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
_EXTRACT: Final = {"week": "weekofyear", "doy": "dayofyear", "dow": "dayofweek", "years": "year", "months": "month", "days": "day",
                   "hours": "hour", "minutes": "minute", "yr": "year", "qtr": "quarter", "mon": "month"}  # fmt: skip


def _extract(unit: Node, a: Node) -> Node:
    """EXTRACT(unit FROM a) and date_part(unit, a)."""
    name = str(constant_of(unit, "the unit of extract")).lower()
    name = _EXTRACT.get(name, name)
    if name not in _FIELDS or name == "second":
        more = "; for seconds use second(...), which gives a whole number" if name.startswith("second") else ""
        raise ExpressionError(f"extract cannot give {name!r}{more}; it gives {', '.join(n for n in _FIELDS if n != 'second')}")
    return _FIELDS[name].build(a)


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
    rounded = lift(kernel, TIMESTAMP_NTZ, _plain(a))
    return rounded if type == TIMESTAMP_NTZ else op.cast_raw(op.cast_raw(rounded, LONG), type)


def _date_trunc(unit: Node, a: Node) -> Node:
    """The start of the unit that a timestamp lies in; of the same type."""
    a = _stamp(a, "date_trunc")
    return _floor(_unit(unit, _TIME_UNITS, "date_trunc"), a.type, a)


def _trunc(a: Node, unit: Node) -> Node:
    """The start of the unit that a date lies in."""
    start = _floor(_unit(unit, _TIME_UNITS[:4], "trunc"), TIMESTAMP_NTZ, cast(_date(a, "trunc"), TIMESTAMP_NTZ))
    return cast(start, DATE)


# Conversion


def _format(node: Node | None, what: str) -> None:
    """Only ISO formats are read and written."""
    if node is not None and constant_of(node, f"the format of {what}") not in _FORMATS:
        known = ", ".join(map(repr, _FORMATS))
        raise ExpressionError(f"{what}: the format must be {known}, not {node.text}; a Python callable can do others")


def _to_date(a: Node, form: Node | None = None) -> Node:
    _format(form, "to_date")
    return _date(a, "to_date")


def _to_timestamp(a: Node, form: Node | None = None) -> Node:
    _format(form, "to_timestamp")
    if numeric(a.type):
        return cast(a, TIMESTAMP)
    return cast(_stamp(a, "to_timestamp"), TIMESTAMP)


def _since(unit_us: int, name: str, a: Node, form: Node | None = None) -> Node:
    """Whole units since 1970: rounded down, but towards 1970 by unix_timestamp, as in Spark."""
    _format(form, name)
    micros = op.micros(_stamp(a, name))
    if unit_us == 1:
        return micros
    by = pa.scalar(unit_us, LONG)
    if name.endswith("unix_timestamp"):
        return lift(lambda v: pc.divide(v, by), LONG, micros)
    return lift(lambda v: _floor_divide(v, by), LONG, micros)


def _floor_divide(value: Value, by: pa.Scalar) -> Value:
    """Towards the past: Arrow's division of whole numbers goes towards zero."""
    whole = pc.divide(value, by)
    return pc.if_else(pc.greater(pc.multiply(whole, by), value), pc.subtract(whole, 1), whole)


def _from_units(unit_us: int, name: str, a: Node) -> Node:
    if not integral(a.type):
        raise TypeMismatch(f"{name} needs a whole number, but {a.text} is {name_of(a.type)}")
    scaled = op.arithmetic("*", cast(a, LONG), cast(op.TRUE, LONG)) if unit_us == 1 else _times(cast(a, LONG), unit_us)
    return op.cast_raw(op.cast_raw(scaled, TIMESTAMP_NTZ), TIMESTAMP)


def _times(a: Node, by: int) -> Node:
    return lift(lambda v: pc.multiply_checked(v, by), LONG, a, raises=True)


def _from_unixtime(a: Node, form: Node | None = None) -> Node:
    if form is not None and constant_of(form, "the format of from_unixtime") != _ISO_TIME:
        raise ExpressionError(f"from_unixtime: the only format is {_ISO_TIME!r}; a Python callable can write others")
    return cast(_from_units(1_000_000, "from_unixtime", a), STRING)


def _unix_date(a: Node) -> Node:
    return op.cast_raw(_date(a, "unix_date"), INT)


# Arithmetic


def _date_add(operator: str, a: Node, days: Node) -> Node:
    if not integral(days.type) and not stringy(days.type):
        raise TypeMismatch(f"the number of days must be whole, but {days.text} is {name_of(days.type)}")
    return op.shift_days(_date(a, "date_add"), days, operator)


def _datediff(end: Node, start: Node) -> Node:
    return op.arithmetic("-", _unix_date(end), _unix_date(start))


def _add_months(a: Node, months: Node) -> Node:
    return rowwise(_months_later, DATE, _date(a, "add_months"), cast(months, INT), raises=True)


def _months_later(date: datetime.date, months: int) -> datetime.date:
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    return datetime.date(year, month + 1, min(date.day, calendar.monthrange(year, month + 1)[1]))


def _last_day(a: Node) -> Node:
    return rowwise(lambda d: d.replace(day=calendar.monthrange(d.year, d.month)[1]), DATE, _date(a, "last_day"))


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
    }  # fmt: skip
    return {name: Signature(lambda a, type=type: cast(a, type), 1, 1) for name, type in types.items()}


FUNCTIONS: Final = {
    **_FIELDS,
    **_conversions(),
    **_casts(),
    "extract": Signature(_extract, 2, 2),
    "date_part": Signature(_extract, 2, 2),
    "date_trunc": Signature(_date_trunc, 2, 2),
    "trunc": Signature(_trunc, 2, 2),
    "to_date": Signature(_to_date, 1, 2),
    "to_timestamp": Signature(_to_timestamp, 1, 2),
    "from_unixtime": Signature(_from_unixtime, 1, 2),
    "unix_date": Signature(_unix_date, 1, 1),
    "date_add": Signature(partial(_date_add, "+"), 2, 2),
    "dateadd": Signature(partial(_date_add, "+"), 2, 2),
    "date_sub": Signature(partial(_date_add, "-"), 2, 2),
    "datediff": Signature(_datediff, 2, 2),
    "date_diff": Signature(_datediff, 2, 2),
    "add_months": Signature(_add_months, 2, 2),
    "last_day": Signature(_last_day, 1, 1),
}
