"""Arithmetic of decimals with Spark's precisions: exact where 38 digits are enough, else with digits behind the point left out.

Whole numbers meet a decimal as decimals with their digits. Row by row, as the casts (`decimals`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import DivideByZero, Node, Value, attempt, lift
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import LONG, NULL, decimal, integral
from evenflow.stream.arrays import Bools, Int64s
from evenflow.stream.decimals import EXACT, MOST, fitted

_LEAST_SCALE: Final = 6
"""Digits behind the point that a result keeps where it has too many in all, if it has them."""
_LITERAL: Final = re.compile(r"-?\d+|CAST\(-?\d+ AS [A-Z]+\)|")
"""How a number that was written down is shown; what was computed from such numbers has the digits of its type."""
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_DIVIDING: Final = ("/", "%", "pmod")
LIMBS: Final = 4
"""Parts of 32 bits that a decimal is summed in, so that no sum of them leaves a bigint before there are two thousand million rows."""


def bounded(precision: int, scale: int) -> pa.DataType:
    """The type of a result of so many digits, cut to 38 as Spark does it."""
    if precision <= MOST:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MOST, max(MOST - whole, min(scale, _LEAST_SCALE)))


def _sum(a: Any, b: Any) -> pa.DataType:
    scale = max(a.scale, b.scale)
    return bounded(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def _quotient(a: Any, b: Any) -> pa.DataType:
    scale = max(_LEAST_SCALE, a.scale + b.precision + 1)
    return bounded(a.precision - a.scale + b.scale + scale, scale)


def _remainder(a: Any, b: Any) -> pa.DataType:
    scale = max(a.scale, b.scale)
    return bounded(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _positive(x: Decimal, y: Decimal) -> Decimal:
    """The remainder, moved by the divisor where it is negative."""
    left = EXACT.remainder(x, y)
    return EXACT.remainder(EXACT.add(left, y), y) if left < 0 else left


_RULES: Final[dict[str, tuple[Callable[[Any, Any], pa.DataType], Callable[[Decimal, Decimal], Decimal]]]] = {
    "+": (_sum, EXACT.add),
    "-": (_sum, EXACT.subtract),
    "*": (lambda a, b: bounded(a.precision + b.precision + 1, a.scale + b.scale), EXACT.multiply),
    "/": (_quotient, EXACT.divide),
    "%": (_remainder, EXACT.remainder),
    "pmod": (_remainder, _positive),
}
"""By operator: the type of the result, and the result before it is rounded to that."""


def exact(a: Node, b: Node) -> bool:
    """Whether an operation is one of decimals: a decimal with another, or with a whole number."""
    kinds = [decimal(node.type) for node in (a, b)]
    return any(kinds) and all(is_one or integral(node.type) or node.type == NULL for is_one, node in zip(kinds, (a, b), strict=True))


def calculate(operator: str, a: Node, b: Node) -> Node:
    """`a operator b` of decimals. ArithmeticOverflow for a result of too many digits, DivideByZero."""
    a, b = _as_decimal(a, b), _as_decimal(b, a)
    rule, compute = _RULES[operator]
    type_ = rule(a.type, b.type)

    def one(x: Decimal, y: Decimal) -> Decimal:
        if operator in _DIVIDING and not y:
            raise DivideByZero("division by zero; guard it with nullif(divisor, 0) or CASE WHEN")
        return fitted(compute(x, y), type_)

    quick = _quick(operator, a.type, b.type, type_)

    def kernel(x: Value, y: Value) -> Value:
        if quick is not None:
            return quick(x, y)
        pairs = zip(x.to_pylist(), y.to_pylist(), strict=True)
        return pa.array([None if p is None or q is None else one(p, q) for p, q in pairs], type_)

    return lift(over_arrays(kernel), type_, a, b, raises=True, order=(1, 0) if operator in _DIVIDING else None)


def whole_quotient(a: Node, b: Node) -> Node:
    """`a div b`: bigint, towards zero; its lowest 64 bits where it has more, as in Spark."""
    a, b = _as_decimal(a, b), _as_decimal(b, a)

    def one(x: Decimal, y: Decimal) -> int:
        if not y:
            raise DivideByZero("division by zero; guard it with nullif(divisor, 0) or CASE WHEN")
        (p, q), (r, s) = x.as_integer_ratio(), y.as_integer_ratio()
        whole = abs(p * s) // abs(q * r)
        return ((whole if (p < 0) == (r < 0) else -whole) + 2**63) % 2**64 - 2**63

    def kernel(x: Value, y: Value) -> Value:
        pairs = zip(x.to_pylist(), y.to_pylist(), strict=True)
        return pa.array([None if p is None or q is None else one(p, q) for p, q in pairs], LONG)

    return lift(over_arrays(kernel), LONG, a, b, raises=True, order=(1, 0))


def _quick(operator: str, a: Any, b: Any, type_: pa.DataType) -> Callable[[Value, Value], Value] | None:
    """Arrow's kernel, where 38 digits are enough for any result: it has Spark's precision then, and nothing to round or to refuse."""
    if operator == "/":
        return _quick_quotient(a, b, type_)
    if operator == "%":
        return _quick_remainder(a, b, type_)
    kernel: Any = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}.get(operator)
    if kernel is None:
        return None
    try:
        made = kernel(pa.array([], a), pa.array([], b)).type
    except pa.ArrowInvalid:
        return None
    return kernel if made == type_ else None


def _quick_quotient(a: Any, b: Any, type_: Any) -> Callable[[Value, Value], Value] | None:
    """With one digit more than is wanted, which Arrow cuts off where Spark rounds: the digit says which way."""
    digit = type_.scale + 1
    more = a.scale + digit - max(_LEAST_SCALE, a.scale + b.precision + 1)
    if a.precision + more > MOST or more < a.scale:
        return None
    wider = pa.decimal128(a.precision + more - a.scale, more)
    try:
        made = pc.divide(pa.array([], wider), pa.array([], b)).type
    except pa.ArrowInvalid:
        return None
    if made.scale < digit or made.precision > MOST:
        return None

    def kernel(x: Value, y: Value) -> Value:
        zero = _no_zero(x, y)
        divided = pc.divide(x.cast(wider), pc.if_else(zero, pa.scalar(None, y.type), y))
        found = pc.round(divided, ndigits=type_.scale, round_mode="half_towards_infinity")
        return found.cast(type_)

    return kernel


_SHORT: Final = 18
"""Digits that a bigint holds, whatever they are."""


def _quick_remainder(a: Any, b: Any, type_: Any) -> Callable[[Value, Value], Value] | None:
    """As whole numbers, where a bigint holds both with as many digits behind the point."""
    scale = max(a.scale, b.scale)
    if any(each.precision + scale - each.scale > _SHORT for each in (a, b)) or type_.scale != scale:
        return None

    def kernel(x: Value, y: Value) -> Value:
        _no_zero(x, y)
        missing = np.logical_or(*(each.is_null().to_numpy(zero_copy_only=False) for each in (x, y)))
        left, right = (unscaled(each.cast(pa.decimal128(MOST, scale))) for each in (x, y))
        return scaled(np.fmod(left, np.where(missing, 1, right)), missing, type_)

    return kernel


def _no_zero(x: Value, divisor: pa.Array) -> pa.Array:
    """Where the divisor is zero; those rows have nothing to divide, since null divided by zero is null. DivideByZero for another one."""
    zero = pc.equal(divisor, pa.scalar(Decimal(0), divisor.type))
    if pc.any(pc.and_(zero, x.is_valid()), min_count=0).as_py():
        raise DivideByZero("division by zero; guard it with nullif(divisor, 0) or CASE WHEN")
    return zero


def unscaled(array: pa.Array) -> Int64s:
    """int64 (n,): the digits of decimals that a bigint holds; whatever there is where they are null."""
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), array.offset * 16).reshape(-1, 2)
    found: Int64s = words[:, 0].copy()
    return found


def scaled(numbers: Int64s, missing: Bools, type_: pa.DataType) -> pa.Array:
    """Decimals of these digits."""
    words = np.empty((len(numbers), 2), np.int64)
    words[:, 0], words[:, 1] = numbers, numbers >> 63
    bits = pa.array(~missing).buffers()[1] if missing.any() else None
    return pa.Array.from_buffers(type_, len(numbers), [bits, pa.py_buffer(words)])


def _as_decimal(node: Node, other: Node) -> Node:
    if decimal(node.type):
        return node
    if node.type == NULL:
        return cast(node, other.type)
    digits = _DIGITS[node.type.bit_width]
    if node.constant is not None and node.constant.is_valid and _LITERAL.fullmatch(node.text):
        digits = len(str(abs(node.constant.as_py())))  # Of a literal those that it has.
    return cast(node, pa.decimal128(digits, 0))


def rounded(a: Node, scale: int, mode: str) -> Node:
    """To so many digits behind the point, or before it where that is below 0: one digit more before the point, since 9.9 becomes 10."""
    given: Any = a.type
    whole = given.precision - given.scale + 1
    kept = max(0, min(given.scale, scale))
    type_ = pa.decimal128(min(MOST, max(whole, 1 - scale) + kept), kept)
    unit = Decimal(1).scaleb(-min(given.scale, scale), EXACT)

    def one(value: Decimal) -> Decimal:
        return fitted(value.quantize(unit, mode, EXACT), type_)

    kernel = over_arrays(lambda array: pa.array([None if value is None else one(value) for value in array.to_pylist()], type_))
    return lift(kernel, type_, a, raises=True)


# Totals: what a sum or an average of decimals is made of.


def _limb(a: Node, number: Node) -> Node:
    """A part of 32 bits of the unscaled number; the highest one has the sign."""
    at = int(str(constant_of(number, "the number of a limb")))

    def kernel(array: pa.Array) -> pa.Array:
        words = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), array.offset * 16).reshape(-1, 4)[:, at]
        limbs = words.astype(np.int64) if at == LIMBS - 1 else words.view(np.uint32).astype(np.int64)
        return pa.array(limbs, mask=array.is_null().to_numpy(zero_copy_only=False))

    return lift(over_arrays(kernel), LONG, a)


def _total(*args: Node) -> Node:
    """The sum of decimals from the sums of their parts, and the type: limbs, precision, scale. Null of no rows."""
    *limbs, precision, scale = args
    type_ = pa.decimal128(*(int(str(constant_of(each, "a precision"))) for each in (precision, scale)))
    return lift(over_arrays(lambda *parts: _rows(parts, type_)), type_, *limbs, raises=True)


def _mean(*args: Node) -> Node:
    """The average from the sums of the parts and the number of values: limbs, count, precision, scale, and the scale of the values."""
    *limbs, count, precision, scale, given = args
    type_ = pa.decimal128(*(int(str(constant_of(each, "a precision"))) for each in (precision, scale)))
    values = pa.decimal128(MOST, int(str(constant_of(given, "a scale"))))

    def one(row: Sequence[int], count: int) -> Decimal:
        """As in Spark the sum has to have a type, too, whatever it is divided by."""
        return fitted(EXACT.divide(fitted(_whole(row, values), values), Decimal(count)), type_)

    def kernel(*arrays: pa.Array) -> pa.Array:
        *parts, counts = (array.to_pylist() for array in arrays)
        rows = zip(*parts, counts, strict=True)
        return pa.array([None if row[0] is None else one(row[:-1], row[-1]) for row in rows], type_)

    return lift(over_arrays(kernel), type_, *limbs, count, raises=True)


def _rows(parts: Sequence[pa.Array], type_: Any) -> pa.Array:
    rows = zip(*(part.to_pylist() for part in parts), strict=True)
    return pa.array([None if row[0] is None else fitted(_whole(row, type_), type_) for row in rows], type_)


def _whole(limbs: Sequence[int], type_: Any) -> Decimal:
    unscaled = sum(limb << (32 * at) for at, limb in enumerate(limbs))
    return Decimal(unscaled).scaleb(-type_.scale, EXACT)


def sum_type(type_: Any) -> Any:
    """Of a sum of decimals: ten digits more."""
    return pa.decimal128(min(MOST, type_.precision + 10), type_.scale)


def may_overflow(type_: Any) -> bool:
    """Whether sums of decimals of a type can have more digits than there are; else ten thousand million values have room."""
    return bool(pa.types.is_decimal(type_)) and type_.precision + 10 > MOST


def mean_type(type_: Any) -> Any:
    """Of their average: four digits more before the point and behind it."""
    return bounded(type_.precision + 4, type_.scale + 4)


FUNCTIONS: Final = {
    "_limb": Signature(_limb, 2, 2),
    "_decimal_sum": Signature(_total, 3, MANY),
    "_decimal_avg": Signature(_mean, 5, MANY),
    "_decimal_try_sum": Signature(lambda *args: attempt(_total(*args)), 3, MANY),
    "_decimal_try_avg": Signature(lambda *args: attempt(_mean(*args)), 5, MANY),
}
"""Of no text of users: what sums and averages of decimals become."""

__all__ = ["FUNCTIONS", "LIMBS", "calculate", "exact", "may_overflow", "mean_type", "rounded", "sum_type"]
