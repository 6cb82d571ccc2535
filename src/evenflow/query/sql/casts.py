"""CAST and TRY_CAST between the common types, as in Spark's ANSI mode, and the implicit casts built on them.

A cast that cannot refuse a value is one kernel. The others first prove that every value fits, in one vectorised test, and
otherwise raise (`cast`) or give null for those that do not (`try_cast`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import calendar
from evenflow.query.sql.decimals import decimals
from evenflow.query.sql.intervals import UNITS_US
from evenflow.query.sql.moments import parse_date, parse_timestamp
from evenflow.query.sql.nested_casts import nested_cast
from evenflow.query.sql.node import InvalidValue, Kernel, Node, Value, lift, literal, measured
from evenflow.query.sql.types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    LONG,
    NULL,
    STRING,
    TIMESTAMP_NTZ,
    bounds,
    decimal,
    floating,
    integral,
    name_of,
    numeric,
    stringy,
    timestampy,
)

_INTEGER: Final = r"^[+-]?[0-9]+$"
_REAL: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?$"
_SUFFIX: Final = r"[fFdD]$"
_SPECIAL: Final = {"nan": "NaN", "inf": "inf", "+inf": "inf", "-inf": "-inf",
                   "infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}  # fmt: skip
_NAMES: Final = pa.array(list(_SPECIAL))
_TRUE: Final = pa.array(["t", "true", "y", "yes", "1"])
_FALSE: Final = pa.array(["f", "false", "n", "no", "0"])
_ISO: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400_000_000
_BLANK: Final = "".join(map(chr, (*range(33), 127)))


def cast(node: Node, type: pa.DataType, *, try_: bool = False) -> Node:
    """`CAST(node AS type)`; with `try_`, `TRY_CAST`. TypeMismatch if Spark has no such cast."""
    if node.type == type:
        return node
    if node.type == NULL:
        nothing = pa.scalar(None, type)
        if node.raises:  # Such as assert_true(...), which is still to be asked.
            return lift(lambda v: nothing if isinstance(v, pa.Scalar) else pa.nulls(len(v), type), type, node)
        return literal(nothing, node.text)
    if node.type == INTERVAL and integral(type):
        kernel, raises = _count(node, type, try_), True
    else:
        kernel, raises = _kernel(node.type, type, try_)
    result = lift(kernel, type, node, raises=raises and not try_)
    return Node(result.type, result.run, result.constant, result.raises, node.text)


def of_unit(node: Node, unit: str) -> Node:
    """`CAST(interval AS INTERVAL unit)`: without what is shorter than the unit."""
    one = UNITS_US[unit.upper()]
    whole = lift(lambda v: pc.multiply(pc.divide(v.cast(LONG), one), one).cast(INTERVAL), INTERVAL, node)
    return measured(node if unit == "second" else whole, unit)


def try_constant(node: Node, type: pa.DataType) -> Node | None:
    """A constant with exactly the same value in `type`, or None. Saves casting the column that it is compared with."""
    value = node.constant
    if value is None or not value.is_valid or node.type == type:
        return None
    same = (integral(type) or floating(type)) and (integral(node.type) or floating(node.type))
    if not same and not (timestampy(type) and timestampy(node.type)):
        return None
    try:
        fitted = pa.scalar(value.as_py(), type) if same else value.cast(type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return literal(fitted, node.text) if not same or fitted.as_py() == value.as_py() else None


def _kernel(source: pa.DataType, target: pa.DataType, try_: bool) -> tuple[Kernel, bool]:
    """The kernel, and whether it may refuse a value."""
    if pa.types.is_nested(source) or pa.types.is_nested(target):
        return nested_cast(source, target, lambda one, other: _kernel(one, other, try_))
    if integral(source) and integral(target):
        if source.bit_width < target.bit_width:
            return _plain(target), False
        return _checked(_plain(target), lambda v: _within(v, target), source, target, try_), True
    if floating(source) and integral(target):
        return _checked(_truncated(source, target), lambda v: _real_within(v, target), source, target, try_), True
    if numeric(source) and numeric(target):
        return decimals(source, target, try_) if decimal(source) or decimal(target) else (_plain(target, safe=False), False)
    if stringy(source):
        return _from_string(source, target, try_)
    if target == STRING:
        return _to_string(source), False
    simple = _SIMPLE.get((_family(source), _family(target)))
    if simple is None or _without_zone(source, target) or _without_zone(target, source):
        raise TypeMismatch(f"cannot cast {name_of(source)} to {name_of(target)}")
    make, raises = simple
    return make(source, target, try_), raises


def _without_zone(one: Any, other: pa.DataType) -> bool:
    """Whether one is a timestamp without a zone and the other a number: such a timestamp is no point in time."""
    return timestampy(one) and one.tz is None and (integral(other) or floating(other))


def _family(type: pa.DataType) -> str:
    for name, test in (("integer", integral), ("real", floating), ("timestamp", timestampy), ("decimal", decimal)):
        if test(type):
            return name
    return name_of(type)


def _plain(target: pa.DataType, *, safe: bool = True) -> Kernel:
    options = pc.CastOptions(target_type=target) if safe else pc.CastOptions.unsafe(target)
    invoke = pc.get_function("cast").call
    return lambda value: invoke([value], options)


def _truncated(source: pa.DataType, target: pa.DataType) -> Kernel:
    """Towards zero. The greatest number may have no equal among the reals: then the power of two beyond it becomes it, as in Java."""
    to = _plain(target, safe=False)
    most, beyond = pa.scalar(bounds(target)[1], target), pa.scalar(float(1 << (target.bit_width - 1)), source)
    return lambda value: pc.if_else(pc.greater_equal(value, beyond), most, to(pc.trunc(value)))


def _checked(convert: Kernel, fits: Kernel, source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    """`convert` where `fits`; elsewhere null if `try_`, else an error that shows the first value."""

    def kernel(value: Value) -> Value:
        good = fits(value)
        if pc.all(good, min_count=0).as_py() if isinstance(good, pa.Array) else good.as_py() is not False:
            return convert(value)
        if try_:
            return convert(pc.if_else(good, value, pa.scalar(None, value.type)))
        first = value if isinstance(value, pa.Scalar) else value.filter(pc.invert(good))[0]
        raise _refusal(_named(first), source, target)

    return kernel


def _named(value: pa.Scalar) -> Any:
    """For messages; Python's dates end before Spark's."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return _to_string(value.type)(value).as_py()


def _refusal(value: Any, source: pa.DataType, target: pa.DataType) -> Exception:
    kind = ArithmeticOverflow if numeric(source) else InvalidValue
    shown = repr(value) if stringy(source) else str(value)
    return kind(f"{shown} cannot be cast to {name_of(target)}; use try_cast to get null instead")


def _within(value: Value, target: pa.DataType) -> Value:
    low, high = bounds(target)
    if value.type.bit_width <= target.bit_width:
        return pc.or_(pc.is_valid(value), True)
    return pc.and_(pc.greater_equal(value, pa.scalar(low, value.type)), pc.less_equal(value, pa.scalar(high, value.type)))


def _real_within(value: Value, target: pa.DataType) -> Value:
    """The bounds are powers of two, so they are exact as reals; NaN fails both comparisons."""
    half = float(1 << (target.bit_width - 1))
    whole = pc.trunc(value)
    real = whole.cast(DOUBLE)
    digits = 24 if value.type == FLOAT else 53
    fits = pc.less_equal(real, half) if target.bit_width - 1 > digits else pc.less(real, half)
    return pc.and_(pc.greater_equal(real, -half), fits)


def _from_string(source: pa.DataType, target: pa.DataType, try_: bool) -> tuple[Kernel, bool]:
    if target == BINARY or stringy(target):
        return _plain(target), False
    makers: dict[str, Callable[[pa.DataType], tuple[Kernel, Kernel]]] = {
        "integer": _integers, "real": _reals, "boolean": _booleans, "date": _dates, "timestamp": _timestamps,
    }  # fmt: skip
    if decimal(target):
        checked = decimals(source, target, try_)[0]
    elif _family(target) in makers:
        fits, convert = makers[_family(target)](target)
        checked = _checked(convert, fits, source, target, try_)
    else:
        raise TypeMismatch(f"cannot cast {name_of(source)} to {name_of(target)}")

    def kernel(value: Value) -> Value:
        return checked(pc.utf8_trim(value.cast(STRING), characters=_BLANK))

    return kernel, True


def _integers(target: pa.DataType) -> tuple[Kernel, Kernel]:
    to = _plain(target)

    def fits(value: Value) -> Value:
        shape = pc.match_substring_regex(value, pattern=_INTEGER)
        if not _all(shape) or not _all(pc.less(pc.utf8_length(value), len(str(bounds(target)[1])))):
            low, high = bounds(target)
            return _map(lambda s: re.match(_INTEGER, s) is not None and low <= int(s) <= high, value, BOOL)
        return shape

    return fits, lambda value: to(_unsigned(value))


def _unsigned(value: Value) -> Value:
    """Arrow does not read a leading plus."""
    return pc.replace_substring_regex(value, pattern=r"^\+", replacement="")


def _reals(target: pa.DataType) -> tuple[Kernel, Kernel]:
    to = _plain(target, safe=False)

    def fits(value: Value) -> Value:
        return pc.or_(pc.match_substring_regex(value, pattern=_REAL), pc.is_in(pc.utf8_lower(value), _NAMES))

    def convert(value: Value) -> Value:
        plain = pc.replace_substring_regex(value, pattern=_SUFFIX, replacement="")
        if not _all(pc.match_substring_regex(plain, pattern=_REAL)):
            return _map(lambda s: float(_SPECIAL.get(s.lower(), s.rstrip("fFdD"))), value, target)
        return to(_unsigned(plain))

    return fits, convert


def _booleans(target: pa.DataType) -> tuple[Kernel, Kernel]:
    def fits(value: Value) -> Value:
        lower = pc.utf8_lower(value)
        known = pc.or_(pc.is_in(lower, _TRUE), pc.is_in(lower, _FALSE))
        return pc.if_else(pc.is_valid(value), known, pa.scalar(None, BOOL))

    def convert(value: Value) -> Value:
        return pc.if_else(pc.is_valid(value), pc.is_in(pc.utf8_lower(value), _TRUE), pa.scalar(None, BOOL))

    return fits, convert


def _dates(target: pa.DataType) -> tuple[Kernel, Kernel]:
    return lambda value: _map(lambda s: parse_date(s) is not None, value, BOOL), lambda value: _map(parse_date, value, INT).cast(target)


def _timestamps(target: Any) -> tuple[Kernel, Kernel]:
    quick = pc.CastOptions(target_type=TIMESTAMP_NTZ)
    parse = partial(parse_timestamp, local=target.tz is None)

    def quickly(value: Value) -> Value | None:
        """By Arrow, if all texts are dates with or without a time, of four digits of the year and no zone."""
        if isinstance(value, pa.Scalar) or not _all(pc.match_substring_regex(value, pattern=_ISO)):
            return None
        try:
            return pc.cast(value, options=quick)
        except pa.ArrowInvalid:
            return None

    def fits(value: Value) -> Value:
        if quickly(value) is not None:
            return pc.or_(pc.is_valid(value), True)
        return _map(lambda s: parse(s) is not None, value, BOOL)

    def convert(value: Value) -> Value:
        found = quickly(value)
        return (found if found is not None else _map(parse, value, LONG).cast(TIMESTAMP_NTZ)).cast(target)

    return fits, convert


def _map(function: Callable[[Any], Any], value: Value, type: pa.DataType) -> Value:
    if isinstance(value, pa.Scalar):
        return pa.scalar(function(value.as_py()) if value.is_valid else None, type)
    return pa.array([None if v is None else function(v) for v in value.to_pylist()], type)


def _all(value: Value) -> bool:
    """True if no value is false; nulls do not count."""
    return (value.as_py() is not False) if isinstance(value, pa.Scalar) else bool(pc.all(value, min_count=0).as_py())


def _to_string(source: pa.DataType) -> Kernel:
    if floating(source):
        write = java_double if source == DOUBLE else java_float
        return lambda value: _map(write, value, STRING)
    if source == DATE or timestampy(source):
        return lambda value: calendar.text(value if source == DATE else value.cast(LONG).cast(TIMESTAMP_NTZ))
    if decimal(source):
        return lambda value: _map(lambda v: f"{v:f}", value, STRING)
    if integral(source) or source in (BOOL, BINARY):
        return _plain(STRING)
    raise TypeMismatch(f"cannot cast {name_of(source)} to string")


def java_double(value: float) -> str:
    """A double as Java and Spark write it: 1.0, 1.0E10, NaN, Infinity; the shortest text of two digits or more."""
    return _java_real(value, repr(value))


def java_float(value: float) -> str:
    """A float as Java and Spark write it."""
    return _java_real(value, str(np.float32(value)))


def _java_real(value: float, text: str) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if text.startswith("-") else "0.0"
    # Of one digit, that of two digits which is nearest.
    number = Decimal(text) if _digits(text) > 1 else Decimal(f"{value:.1e}")
    if Decimal("0.001") <= abs(number) < 10_000_000:
        shown = f"{number.normalize():f}"
        return shown if "." in shown else f"{shown}.0"
    mantissa, _, exponent = f"{number.normalize():e}".partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _digits(text: str) -> int:
    """Significant digits in a shortest decimal text."""
    return max(1, len(text.split("e")[0].replace("-", "").replace(".", "").strip("0")))


def _seconds(source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    """Whole seconds since 1970, rounded towards the past."""
    return _narrowed(_floor_seconds, source, target, try_)


def _count(node: Node, target: pa.DataType, try_: bool) -> Kernel:
    """How many of its last unit an interval has, rounded towards zero. ExpressionError if nobody knows which that is."""
    if not node.unit:
        raise ExpressionError(
            f"CAST({node.text} AS {name_of(target)}) counts in the interval's last unit, and that of {node.text} is not known here; "
            f"say it, CAST(CAST({node.text} AS INTERVAL HOUR) AS {name_of(target)}), or count with {node.text} div INTERVAL '1' SECOND"
        )
    unit = UNITS_US[node.unit.upper()]
    return _narrowed(lambda value: pc.divide(value.cast(LONG), unit), node.type, target, try_)


def _narrowed(whole: Kernel, source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    if target == LONG:
        return whole
    narrow = _checked(_plain(target), lambda v: _within(v, target), LONG, target, try_)
    return lambda value: narrow(whole(value))


def _floor_seconds(value: Value) -> Value:
    micros = value.cast(LONG)
    towards_zero = pc.divide(micros, _SECOND_US)
    return pc.if_else(pc.greater(pc.multiply(towards_zero, _SECOND_US), micros), pc.subtract(towards_zero, 1), towards_zero)


def _day_of(value: Value) -> Value:
    """Whole days since 1970, rounded towards the past."""
    micros = value.cast(LONG)
    days = pc.divide(micros, _DAY_US)
    return pc.if_else(pc.greater(pc.multiply(days, _DAY_US), micros), pc.subtract(days, 1), days).cast(INT).cast(DATE)


_LEAST_S, _MOST_S = (pa.scalar(bound // _SECOND_US + (bound < 0), LONG) for bound in bounds(LONG))


def _from_seconds(source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    """Seconds beyond the last timestamp are the last timestamp, as in Java."""
    low, high = (pa.scalar(bound, LONG) for bound in bounds(LONG))

    def kernel(value: Value) -> Value:
        seconds = value.cast(LONG)
        micros = pc.multiply(seconds, _SECOND_US)
        micros = pc.if_else(pc.greater(seconds, _MOST_S), high, pc.if_else(pc.less(seconds, _LEAST_S), low, micros))
        return micros.cast(TIMESTAMP_NTZ).cast(target)

    return kernel


def _from_real_seconds(source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    micros = _checked(_truncated(DOUBLE, LONG), lambda v: _real_within(v, LONG), DOUBLE, target, try_)
    return lambda value: micros(pc.multiply(value.cast(DOUBLE), float(_SECOND_US))).cast(TIMESTAMP_NTZ).cast(target)


def _midnight(source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    """The timestamp at which a date begins. The years of timestamps end before those of dates."""
    most = bounds(LONG)[1] // _DAY_US

    def fits(value: Value) -> Value:
        return pc.less_equal(pc.abs(value.cast(INT).cast(LONG)), most)

    return _checked(lambda value: value.cast(TIMESTAMP_NTZ).cast(target), fits, source, target, try_)


def _of_truth(source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    """1 or 0 as a decimal, which may have no digit for it."""
    whole = decimals(INT, target, try_)[0]
    return lambda value: whole(value.cast(INT))


def _always(make: Callable[[pa.DataType, pa.DataType], Kernel]) -> Callable[[pa.DataType, pa.DataType, bool], Kernel]:
    return lambda source, target, try_: make(source, target)


_SIMPLE: Final[dict[tuple[str, str], tuple[Callable[[pa.DataType, pa.DataType, bool], Kernel], bool]]] = {
    ("boolean", "integer"): (_always(lambda s, t: _plain(t)), False),
    ("boolean", "real"): (_always(lambda s, t: lambda v: v.cast(pa.int8()).cast(t)), False),
    ("integer", "boolean"): (_always(lambda s, t: lambda v: pc.not_equal(v, pa.scalar(0, s))), False),
    ("decimal", "boolean"): (_always(lambda s, t: lambda v: pc.not_equal(v, pa.scalar(Decimal(0), s))), False),
    ("boolean", "decimal"): (_of_truth, True),
    ("real", "boolean"): (_always(lambda s, t: lambda v: pc.not_equal(v, pa.scalar(0, s))), False),
    ("timestamp", "timestamp"): (_always(lambda s, t: _plain(t)), False),
    ("timestamp", "date"): (_always(lambda s, t: _day_of), False),
    ("date", "timestamp"): (_midnight, True),
    ("timestamp", "integer"): (_seconds, True),
    ("timestamp", "real"): (
        _always(lambda s, t: lambda v: pc.divide(v.cast(LONG).cast(DOUBLE, safe=False), float(_SECOND_US)).cast(t)),
        False,
    ),
    ("integer", "timestamp"): (_from_seconds, False),
    ("real", "timestamp"): (_from_real_seconds, True),
}
"""What makes the kernel, and whether it may refuse a value."""
