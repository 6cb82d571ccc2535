"""More functions of numbers: angles and hyperbolic functions, digits in other bases, buckets, sums that give null instead of an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, TypeMismatch
from evenflow.query.sql import operators as op
from evenflow.query.sql.arguments import an_int
from evenflow.query.sql.casts import cast
from evenflow.query.sql.months import months_of
from evenflow.query.sql.node import Node, attempt, lift, literal, rowwise
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import Signature
from evenflow.query.sql.types import DOUBLE, INT, INTERVAL, LONG, MONTHS, NULL, STRING, bounds, integral, name_of, numeric, stringy


def _number(a: Node, what: str) -> Node:
    if not numeric(a.type) and a.type != NULL and not stringy(a.type):
        raise TypeMismatch(f"{what} needs a number, but {a.text} is {name_of(a.type)}")
    return cast(a, DOUBLE)


def _real(name: str, function: Callable[..., Any], count: int = 1) -> Signature:
    """A function of doubles, by numpy over whole columns."""

    def kernel(*arrays: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            found = function(*(each.fill_null(0.0).to_numpy(zero_copy_only=False) for each in arrays))
        missing = np.logical_or.reduce([each.is_null().to_numpy(zero_copy_only=False) for each in arrays])
        return pa.array(found, DOUBLE, mask=missing, from_pandas=False)

    return Signature(lambda *given: lift(over_arrays(kernel), DOUBLE, *(_number(a, name) for a in given)), count, count)


def _log1p(a: Node) -> Node:
    return lift(lambda v: pc.if_else(pc.less_equal(v, -1.0), pa.scalar(None, DOUBLE), pc.log1p(v)), DOUBLE, _number(a, "log1p"))


def _long(a: Node, what: str) -> Node:
    if not integral(a.type) and a.type != NULL:
        raise TypeMismatch(f"{what} needs a whole number, but {a.text} is {name_of(a.type)}; cast it")
    return cast(a, LONG)


def _bin(a: Node) -> Node:
    whole = cast(a, LONG) if numeric(a.type) or stringy(a.type) else _long(a, "bin")
    return rowwise(lambda v: f"{v & 0xFFFF_FFFF_FFFF_FFFF:b}", STRING, whole)


def _factorial(a: Node) -> Node:
    return rowwise(lambda v: math.factorial(v) if 0 <= v <= 20 else None, LONG, an_int(a, "factorial"))


_FIGURES: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _conv(text: str, given: int, wanted: int) -> str | None:
    """Digits of one base in another one. A base below zero shows the number with its sign, else it is shown in 64 bits without one."""
    if not 2 <= given <= 36 or not 2 <= abs(wanted) <= 36:
        return None
    text = text.strip(" ")
    if not text:
        return None
    minus = text.startswith("-")
    number = 0
    for figure in text[1:] if minus else text:
        value = _FIGURES.find(figure.upper()) if figure.isascii() else -1
        if not 0 <= value < given:
            break
        number = number * given + value
        if number >= 2**64:
            raise ArithmeticOverflow(f"conv: {text!r} in base {given} is beyond 64 bits")
    if minus and wanted > 0:
        number = 2**64 - 1 if number >= 2**63 else -number & (2**64 - 1)
    if wanted < 0 and number >= 2**63:
        number, minus = 2**64 - number, True
    shown = ""
    while number:
        number, rest = divmod(number, abs(wanted))
        shown = _FIGURES[rest] + shown
    return ("-" if minus and wanted < 0 else "") + (shown or "0")


def _conv_of(a: Node, given: Node, wanted: Node) -> Node:
    for node in (given, wanted):
        if (not integral(node.type) or node.type == LONG) and node.type != NULL:
            raise TypeMismatch(f"conv needs an int for a base, but {node.text} is {name_of(node.type)}; cast it")
    if not stringy(a.type) and not numeric(a.type) and a.type != NULL:
        raise TypeMismatch(f"conv needs a string, but {a.text} is {name_of(a.type)}; cast it")
    return rowwise(_conv, STRING, cast(a, STRING), cast(given, INT), cast(wanted, INT), raises=True)


def _bucket(value: float, low: float, high: float, count: int) -> int | None:
    if count <= 0 or count == 2**63 - 1 or value != value or low == high or not (math.isfinite(low) and math.isfinite(high)):
        return None
    if low < high:
        if value < low:
            return 0
        return count + 1 if value >= high else _clipped(count * (value - low) / (high - low)) + 1
    if value > low:
        return 0
    return count + 1 if value <= high else _clipped(count * (low - value) / (low - high)) + 1


def _clipped(value: float) -> int:
    """As Java makes a long of a double; one more than the greatest is the least."""
    return 0 if value != value else -(2**63) - 1 if value >= 2.0**63 else int(max(value, -(2.0**63)))


def _width_bucket(value: Node, low: Node, high: Node, count: Node) -> Node:
    if value.type == low.type == high.type == INTERVAL:
        value, low, high = (op.cast_raw(each, LONG) for each in (value, low, high))
    if value.type == low.type == high.type == MONTHS:
        value, low, high = (literal(pa.scalar(months_of(each), LONG)) for each in (value, low, high))
    for node in (value, low, high):
        if not numeric(node.type) and node.type != NULL:
            raise TypeMismatch(f"width_bucket needs numbers, but {node.text} is {name_of(node.type)}; cast it")
    return rowwise(_bucket, LONG, *(cast(each, DOUBLE) for each in (value, low, high)), _long(count, "width_bucket"))


def _unsigned_shift(a: Node, b: Node) -> Node:
    """Zeros come in from the left, whatever the sign."""
    a, b = (cast(each, INT) if each.type == NULL else each for each in (a, b))
    if not integral(a.type) or not integral(b.type):
        raise TypeMismatch(f"shiftrightunsigned needs whole numbers: {a.text}, {b.text}")
    a = a if a.type == LONG else cast(a, INT)
    bits = a.type.bit_width
    half = 1 << (bits - 1)

    def one(value: int, by: int) -> int:
        found: int = (value & ((1 << bits) - 1)) >> (by & (bits - 1))
        return found - 2 * half if found >= half else found

    return rowwise(one, a.type, a, cast(b, INT))


_SIGNS: Final[dict[str, Callable[[int, int], int]]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def _try(operator: str, a: Node, b: Node) -> Node:
    """The operator, null where it would overflow. Of whole numbers its own failure only, as in Spark; else that of an argument too."""
    if any(stringy(each.type) for each in (a, b)):
        raise TypeMismatch(f"try_ of {a.text} {operator} {b.text} takes numbers and timestamps here; cast it")
    if not (integral(a.type) and integral(b.type)):
        return attempt(op.arithmetic(operator, a, b))
    a, b, type_ = op.numbers(operator, a, b)
    low, high = bounds(type_)
    quick = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[operator]

    def exactly(x: int | None, y: int | None) -> int | None:
        if x is None or y is None:
            return None
        found = _SIGNS[operator](x, y)
        return found if low <= found <= high else None

    def kernel(left: pa.Array, right: pa.Array) -> pa.Array:
        try:
            return quick(left, right)
        except pa.ArrowInvalid:
            return pa.array(map(exactly, left.to_pylist(), right.to_pylist()), type_)

    return lift(over_arrays(kernel), type_, a, b)


def _bytes(a: Node) -> Node:
    if a.type != pa.binary():
        raise TypeMismatch(f"bitmap_count needs bytes, but {a.text} is {name_of(a.type)}")
    return a


def _typeof(a: Node) -> Node:
    if pa.types.is_duration(a.type):
        raise TypeMismatch(f"typeof: of intervals Spark has several types, and {a.text} is of one of them")
    return literal(pa.scalar(name_of(a.type)))


def _collation(a: Node) -> Node:
    if not stringy(a.type) and a.type != NULL:
        raise TypeMismatch(f"collation needs a string, but {a.text} is {name_of(a.type)}")
    return literal(pa.scalar("SYSTEM.BUILTIN.UTF8_BINARY"))


def _constant(value: float) -> Signature:
    return Signature(lambda: literal(pa.scalar(value, DOUBLE)), 0, 0)


FUNCTIONS: Final = {
    "acos": _real("acos", np.arccos),
    "asin": _real("asin", np.arcsin),
    "acosh": _real("acosh", np.arccosh),
    "asinh": _real("asinh", np.arcsinh),
    "atanh": _real("atanh", lambda x: 0.5 * (np.log1p(x) - np.log1p(-x))),
    "cosh": _real("cosh", np.cosh),
    "sinh": _real("sinh", np.sinh),
    "tanh": _real("tanh", np.tanh),
    "cot": _real("cot", lambda x: 1.0 / np.tan(x)),
    "csc": _real("csc", lambda x: 1.0 / np.sin(x)),
    "sec": _real("sec", lambda x: 1.0 / np.cos(x)),
    "atan2": _real("atan2", lambda y, x: np.arctan2(y + 0.0, x + 0.0), 2),
    "hypot": _real("hypot", np.hypot, 2),
    "log1p": Signature(_log1p, 1, 1),
    "e": _constant(math.e),
    "pi": _constant(math.pi),
    "bin": Signature(_bin, 1, 1),
    "factorial": Signature(_factorial, 1, 1),
    "conv": Signature(_conv_of, 3, 3),
    "width_bucket": Signature(_width_bucket, 4, 4),
    "shiftrightunsigned": Signature(_unsigned_shift, 2, 2),
    "try_add": Signature(partial(_try, "+"), 2, 2),
    "try_subtract": Signature(partial(_try, "-"), 2, 2),
    "try_multiply": Signature(partial(_try, "*"), 2, 2),
    "bitmap_bit_position": Signature(lambda a: rowwise(lambda v: (v - 1) % 32768 if v > 0 else -v % 32768, LONG,
                                                       _long(a, "bitmap_bit_position")), 1, 1),
    "bitmap_bucket_number": Signature(lambda a: rowwise(lambda v: (v - 1) // 32768 + 1 if v > 0 else -(-v // 32768), LONG,
                                                        _long(a, "bitmap_bucket_number")), 1, 1),
    "bitmap_count": Signature(lambda a: rowwise(lambda v: int.from_bytes(v, "big").bit_count(), LONG, _bytes(a)), 1, 1),
    "typeof": Signature(_typeof, 1, 1),
    "collation": Signature(_collation, 1, 1),
}  # fmt: skip
