"""Casts to and from decimals: exact, halves away from zero. Decimals are rare in streams, so it is done row by row."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ArithmeticOverflow
from evenflow.query.sql.node import InvalidValue, Kernel, Value
from evenflow.query.sql.types import FLOAT, bounds, decimal, floating, integral, name_of, stringy

_EXACT: Final = Context(prec=400, Emax=10**6, Emin=-(10**6))
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")


def decimals(source: pa.DataType, target: pa.DataType, try_: bool) -> tuple[Kernel, bool]:
    """The kernel of a cast from or to a decimal, and whether it may refuse a value; null there if `try_`."""
    if decimal(source) and floating(target):
        return lambda value: _each(float, value, target), False
    if integral(source) and (room := _room(source, target)) is not None:
        return room, False
    convert = _whole(source, target, try_) if integral(target) else _scaled(source, target, try_)
    return lambda value: _each(convert, value, target), True


_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}


def _room(source: pa.DataType, target: Any) -> Kernel | None:
    """Arrow's kernel, where the target has digits for every whole number of the source."""
    digits = _DIGITS[source.bit_width]
    if not decimal(target) or target.precision - target.scale < digits:
        return None
    wide = pa.decimal128(max(target.precision, 19 + target.scale), target.scale) if 19 + target.scale <= 38 else None
    if wide is None:
        return None
    return lambda value: value.cast(pa.int64()).cast(wide).cast(target)


def _each(convert: Any, value: Value, target: pa.DataType) -> Value:
    if isinstance(value, pa.Scalar):
        return pa.scalar(convert(value.as_py()) if value.is_valid else None, target)
    return pa.array([None if v is None else convert(v) for v in value.to_pylist()], target)


def _whole(source: pa.DataType, target: pa.DataType, try_: bool) -> Any:
    low, high = bounds(target)

    def one(value: Decimal) -> int | None:
        number = int(value.to_integral_value(ROUND_DOWN))
        return number if low <= number <= high else _refused(value, source, target, try_)

    return one


def _scaled(source: pa.DataType, target: Any, try_: bool) -> Any:
    step, limit = Decimal(1).scaleb(-target.scale), Decimal(10) ** (target.precision - target.scale)

    def one(value: Any) -> Any:
        if isinstance(value, float):
            if value != value or abs(value) == float("inf"):
                return None  # As in Spark, which does not call that an error.
            value = str(np.float32(value)) if source == FLOAT else repr(value)
        elif isinstance(value, str) and _NUMBER.fullmatch(value) is None:
            return _refused(value, source, target, try_)
        try:
            number = Decimal(value).quantize(step, ROUND_HALF_UP, _EXACT)
        except InvalidOperation:
            return _refused(value, source, target, try_)
        return number if number.copy_abs() < limit else _refused(value, source, target, try_, large=True)

    return one


def _refused(value: Any, source: pa.DataType, target: pa.DataType, try_: bool, *, large: bool = False) -> Any:
    """Null for `try_`, else an error that shows the value."""
    if try_:
        return None
    kind = InvalidValue if stringy(source) and not large else ArithmeticOverflow
    raise kind(f"{value!r} cannot be cast to {name_of(target)}; use try_cast to get null instead")
