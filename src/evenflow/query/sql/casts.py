"""CAST and TRY_CAST between the common types, as in Spark's ANSI mode, and the implicit casts built on them.

A cast that cannot refuse a value is one kernel. The others first prove that every value fits, in one vectorised test, and
otherwise raise (`cast`) or give null for those that do not (`try_cast`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, TypeMismatch
from evenflow.query.sql.moments import parse_date, parse_timestamp
from evenflow.query.sql.node import InvalidValue, Kernel, Node, Value, lift, literal
from evenflow.query.sql.types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
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
_REAL: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_SPECIAL: Final = {"nan": "NaN", "inf": "inf", "+inf": "inf", "-inf": "-inf",
                   "infinity": "inf", "+infinity": "inf", "-infinity": "-inf"}  # fmt: skip
_TRUE: Final = pa.array(["t", "true", "y", "yes", "1"])
_FALSE: Final = pa.array(["f", "false", "n", "no", "0"])
_SECOND_US: Final = 1_000_000
_BLANK: Final = "".join(map(chr, range(33)))


def cast(node: Node, type: pa.DataType, *, try_: bool = False) -> Node:
    """`CAST(node AS type)`; with `try_`, `TRY_CAST`. TypeMismatch if Spark has no such cast."""
    if node.type == type:
        return node
    if node.type == NULL:
        return literal(pa.scalar(None, type), node.text)
    kernel, raises = _kernel(node.type, type, try_)
    result = lift(kernel, type, node, raises=raises and not try_)
    return Node(result.type, result.run, result.constant, result.raises, node.text)


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
    if integral(source) and integral(target):
        if source.bit_width < target.bit_width:
            return _plain(target), False
        return _checked(_plain(target), lambda v: _within(v, target), source, target, try_), True
    if floating(source) and integral(target):
        return _checked(_truncated(target), lambda v: _real_within(v, target), source, target, try_), True
    if numeric(source) and numeric(target):
        return (_decimal(source, target, try_), True) if decimal(source) or decimal(target) else (_plain(target, safe=False), False)
    if stringy(source):
        return _from_string(source, target, try_)
    if target == STRING:
        return _to_string(source), False
    simple = _SIMPLE.get((_family(source), _family(target)))
    if simple is None:
        raise TypeMismatch(f"cannot cast {name_of(source)} to {name_of(target)}")
    return simple(source, target), False


def _family(type: pa.DataType) -> str:
    for name, test in (("integer", integral), ("real", floating), ("timestamp", timestampy)):
        if test(type):
            return name
    return name_of(type)


def _plain(target: pa.DataType, *, safe: bool = True) -> Kernel:
    options = pc.CastOptions(target_type=target) if safe else pc.CastOptions.unsafe(target)
    invoke = pc.get_function("cast").call
    return lambda value: invoke([value], options)


def _truncated(target: pa.DataType) -> Kernel:
    to = _plain(target, safe=False)
    return lambda value: to(pc.trunc(value))


def _checked(convert: Kernel, fits: Kernel, source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    """`convert` where `fits`; elsewhere null if `try_`, else an error that shows the first value."""

    def kernel(value: Value) -> Value:
        good = fits(value)
        if pc.all(good, min_count=0).as_py() if isinstance(good, pa.Array) else good.as_py() is not False:
            return convert(value)
        if try_:
            return convert(pc.if_else(good, value, pa.scalar(None, value.type)))
        first = value if isinstance(value, pa.Scalar) else value.filter(pc.invert(good))[0]
        raise _refusal(first.as_py(), source, target)

    return kernel


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
    """The bounds are powers of two, so they are exact as doubles; NaN fails both comparisons."""
    half = float(1 << (target.bit_width - 1))
    real = pc.trunc(value).cast(DOUBLE)
    return pc.and_(pc.greater_equal(real, -half), pc.less(real, half))


def _decimal(source: pa.DataType, target: pa.DataType, try_: bool) -> Kernel:
    to = _plain(target, safe=not integral(target))

    def kernel(value: Value) -> Value:
        if decimal(target) and decimal(source) and target.scale < source.scale:
            value = pc.round(value, ndigits=target.scale, round_mode="half_towards_infinity")
        try:
            return to(value)
        except pa.ArrowInvalid as error:
            raise ArithmeticOverflow(f"a value does not fit into {name_of(target)}: {error}") from None

    return kernel if not try_ else _each(kernel, target)


def _each(kernel: Kernel, target: pa.DataType) -> Kernel:
    """Row by row when some row fails: null there."""

    def one(value: pa.Scalar) -> Any:
        try:
            return kernel(value).as_py()
        except (pa.ArrowInvalid, ArithmeticOverflow):
            return None

    def attempt(value: Value) -> Value:
        try:
            return kernel(value)
        except (pa.ArrowInvalid, ArithmeticOverflow):
            return pa.scalar(one(value), target) if isinstance(value, pa.Scalar) else pa.array([one(v) for v in value], target)

    return attempt


def _from_string(source: pa.DataType, target: pa.DataType, try_: bool) -> tuple[Kernel, bool]:
    if target == BINARY or stringy(target):
        return _plain(target), False
    makers: dict[str, Callable[[pa.DataType], tuple[Kernel, Kernel]]] = {
        "integer": _integers, "real": _reals, "boolean": _booleans, "date": _dates, "timestamp": _timestamps,
    }  # fmt: skip
    if decimal(target):
        fits, convert = _reals(target)
    elif _family(target) in makers:
        fits, convert = makers[_family(target)](target)
    else:
        raise TypeMismatch(f"cannot cast {name_of(source)} to {name_of(target)}")
    checked = _checked(convert, fits, source, target, try_)

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
        return pc.or_(pc.match_substring_regex(value, pattern=_REAL), pc.is_in(pc.utf8_lower(value), _names(target)))

    def convert(value: Value) -> Value:
        if decimal(target):
            return _map(lambda s: pc.round(pa.scalar(s).cast(pa.decimal256(76, 38)), ndigits=target.scale,
                                           round_mode="half_towards_infinity").as_py(), value, target)  # fmt: skip
        if not _all(pc.match_substring_regex(value, pattern=_REAL)):
            return _map(lambda s: float(_SPECIAL.get(s.lower(), s)), value, target)
        return to(_unsigned(value))

    return fits, convert


def _names(target: pa.DataType) -> pa.Array:
    return pa.array([] if decimal(target) else list(_SPECIAL), STRING)


def _booleans(target: pa.DataType) -> tuple[Kernel, Kernel]:
    def fits(value: Value) -> Value:
        lower = pc.utf8_lower(value)
        known = pc.or_(pc.is_in(lower, _TRUE), pc.is_in(lower, _FALSE))
        return pc.if_else(pc.is_valid(value), known, pa.scalar(None, BOOL))

    def convert(value: Value) -> Value:
        return pc.if_else(pc.is_valid(value), pc.is_in(pc.utf8_lower(value), _TRUE), pa.scalar(None, BOOL))

    return fits, convert


def _dates(target: pa.DataType) -> tuple[Kernel, Kernel]:
    return lambda value: _map(lambda s: parse_date(s) is not None, value, BOOL), lambda value: _map(parse_date, value, target)


def _timestamps(target: pa.DataType) -> tuple[Kernel, Kernel]:
    quick = pc.CastOptions(target_type=TIMESTAMP_NTZ)

    def fits(value: Value) -> Value:
        if isinstance(value, pa.Array):
            try:
                pc.cast(value, options=quick)
            except pa.ArrowInvalid:
                pass
            else:
                return pc.or_(pc.is_valid(value), True)
        return _map(lambda s: parse_timestamp(s) is not None, value, BOOL)

    def convert(value: Value) -> Value:
        try:
            return pc.cast(value, options=quick).cast(target)
        except pa.ArrowInvalid:
            return _map(parse_timestamp, value, LONG).cast(TIMESTAMP_NTZ).cast(target)

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
        return lambda value: _map(java_double, value, STRING) if source == DOUBLE else _map(java_double, _shortest(value), STRING)
    if timestampy(source):
        return lambda value: timestamp_text(value)
    if integral(source) or decimal(source) or source in (BOOL, DATE, BINARY):
        return _plain(STRING)
    raise TypeMismatch(f"cannot cast {name_of(source)} to string")


def _shortest(value: Value) -> Value:
    """Floats as the doubles with the same shortest decimal text."""
    return value.cast(STRING).cast(DOUBLE)


def java_double(value: float) -> str:
    """A double as Java and Spark write it: 1.0, 1.0E10, NaN, Infinity."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "." in text and "e" not in text else f"{value:.1f}" if value == int(value) else f"{value:f}".rstrip("0")
    mantissa, _, exponent = f"{value:.{_digits(text) - 1}e}".partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _digits(text: str) -> int:
    """Significant digits in a shortest decimal text."""
    return max(1, len(text.split("e")[0].replace("-", "").replace(".", "").strip("0")))


def timestamp_text(value: Value) -> Value:
    """Timestamps as Spark shows them in UTC: the fraction without trailing zeros."""
    text = value.cast(LONG).cast(TIMESTAMP_NTZ).cast(STRING)
    return pc.replace_substring_regex(text, pattern=r"\.?0*$", replacement="")


def _seconds(source: pa.DataType, target: pa.DataType) -> Kernel:
    to = _plain(target)
    return lambda value: to(pc.floor(pc.divide(value.cast(LONG).cast(DOUBLE, safe=False), float(_SECOND_US))).cast(LONG))


def _from_seconds(source: pa.DataType, target: pa.DataType) -> Kernel:
    if integral(source):
        return lambda value: pc.multiply_checked(value.cast(LONG), _SECOND_US).cast(TIMESTAMP_NTZ).cast(target)
    return lambda value: pc.trunc(pc.multiply(value.cast(DOUBLE), float(_SECOND_US))).cast(LONG).cast(TIMESTAMP_NTZ).cast(target)


_SIMPLE: Final[dict[tuple[str, str], Callable[[pa.DataType, pa.DataType], Kernel]]] = {
    ("boolean", "integer"): lambda s, t: _plain(t),
    ("boolean", "real"): lambda s, t: lambda v: v.cast(pa.int8()).cast(t),
    ("integer", "boolean"): lambda s, t: lambda v: pc.not_equal(v, pa.scalar(0, s)),
    ("real", "boolean"): lambda s, t: lambda v: pc.not_equal(v, pa.scalar(0, s)),
    ("timestamp", "timestamp"): lambda s, t: _plain(t),
    ("timestamp", "date"): lambda s, t: lambda v: v.cast(LONG).cast(TIMESTAMP_NTZ).cast(t),
    ("date", "timestamp"): lambda s, t: lambda v: v.cast(TIMESTAMP_NTZ).cast(t),
    ("timestamp", "integer"): _seconds,
    ("timestamp", "real"): lambda s, t: lambda v: pc.divide(v.cast(LONG).cast(DOUBLE, safe=False), float(_SECOND_US)).cast(t),
    ("integer", "timestamp"): _from_seconds,
    ("real", "timestamp"): _from_seconds,
    (name_of(INTERVAL), "integer"): lambda s, t: lambda v: pc.divide(v.cast(LONG), _SECOND_US).cast(t),
}
