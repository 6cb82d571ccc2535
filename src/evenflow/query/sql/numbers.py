"""Functions of numbers, bits included."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import decimal_math
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast
from evenflow.query.sql.months import months_of, whole_months
from evenflow.query.sql.node import Node, Value, attempt, call, choose, lift, literal, rowwise
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    LONG,
    MONTHS,
    NULL,
    STRING,
    TIMESTAMP_NTZ,
    bounds,
    common,
    decimal,
    integral,
    name_of,
    numeric,
    stringy,
)
from evenflow.stream.decimals import MOST

_ALMOST: Final = 1e-6
"""Distance to a tie, in units of the last digit kept, below which the binary result is not trusted."""
_EXACT: Final = 2.0**52
_BEYOND: Final = 2.0**63
_MOST_DIGITS: Final = 300
"""Rounding to more digits, before or behind the point, changes no double."""
_MOST_SCALE: Final = 100_000
"""With many more, Spark raises."""
_DIGITS: Final = Context(prec=800)


def _number(a: Node, what: str) -> Node:
    if stringy(a.type) or a.type == pa.null():
        return cast(a, DOUBLE)
    if not numeric(a.type):
        raise TypeMismatch(f"{what} needs a number, but {a.text} is {name_of(a.type)}")
    return a


def _real(name: str, kernel: Callable[[Value], Value]) -> Signature:
    """A function of a double."""
    return Signature(lambda a: lift(kernel, DOUBLE, cast(_number(a, name), DOUBLE)), 1, 1)


def _abs(a: Node) -> Node:
    if a.type == MONTHS:
        return whole_months(abs(months_of(a)))
    if a.type == INTERVAL:
        return op.cast_raw(_abs(op.cast_raw(a, LONG)), INTERVAL, a.unit)
    a = _number(a, "abs")
    return lift(call("abs_checked" if integral(a.type) else "abs"), a.type, a, raises=integral(a.type))


def _whole(name: str, a: Node, digits: Node | None = None) -> Node:
    """ceil and floor: bigint, so what is too large fails; NaN gives 0, as on the JVM."""
    a = cast(a, pa.decimal128(38, 18)) if digits is not None and stringy(a.type) else _number(a, name)
    if digits is not None:
        scale = constant_of(digits, f"the number of digits in {name}")
        if digits.type != INT or not isinstance(scale, int) or abs(scale) > MOST:
            raise TypeMismatch(f"the number of digits in {name} must be an int up to {MOST}")
        if not decimal(a.type):
            real = pa.decimal128(14, 7) if a.type == pa.float32() else pa.decimal128(30, 15)
            a = cast(a, pa.decimal128({8: 3, 16: 5, 32: 10, 64: 20}[a.type.bit_width], 0) if integral(a.type) else real)
        return decimal_math.rounded(a, scale, ROUND_CEILING if name == "ceil" else ROUND_FLOOR)
    if integral(a.type):
        return cast(a, LONG)
    if decimal(a.type):
        return a if a.type.scale == 0 else decimal_math.rounded(a, 0, ROUND_CEILING if name == "ceil" else ROUND_FLOOR)
    step = call(name)

    def whole(value: Value) -> Value:
        """A cast would take 2**63, which is no bigint, for the greatest one."""
        if pc.any(pc.greater_equal(value, _BEYOND)).as_py() if isinstance(value, pa.Array) else value.as_py() == _BEYOND:
            raise ArithmeticOverflow(f"{_BEYOND:.0f} and above do not fit into bigint")
        return pc.if_else(pc.is_nan(value), 0.0, step(value))

    return cast(lift(whole, DOUBLE, cast(a, DOUBLE), raises=True), LONG)


def _round(mode: str, a: Node, digits: Node | None = None) -> Node:
    """round and bround: the same type. Ties are those of the shortest decimal text, as in Spark: round(2.675, 2) is 2.68."""
    a = _number(a, "round")
    if digits is not None and digits.type == NULL and digits.text.upper() != "NULL":
        raise TypeMismatch(f"the number of digits in round is {digits.text}, which is void; cast it")
    scale = 0 if digits is None else constant_of(digits, "the number of digits in round")
    if scale is None:
        return literal(pa.scalar(None, a.type))
    if not isinstance(scale, int) or isinstance(scale, bool) or abs(scale) >= 2**31:
        raise TypeMismatch("the number of digits in round must be a whole number")
    if integral(a.type) and scale > _MOST_SCALE:
        raise TypeMismatch(f"round: a whole number has no {scale} digits behind the point; at most {_MOST_SCALE} can be written")
    if decimal(a.type):
        return decimal_math.rounded(a, max(scale, -MOST), ROUND_HALF_UP if mode == "half_towards_infinity" else ROUND_HALF_EVEN)
    if not integral(a.type) and scale >= _TOO_MANY:
        return rowwise(_beyond_digits, a.type, a, raises=True)
    scale = max(-_MOST_DIGITS, min(scale, _MOST_DIGITS))
    exact = partial(_round_exactly, a.type, scale, ROUND_HALF_UP if mode == "half_towards_infinity" else ROUND_HALF_EVEN)
    if integral(a.type):
        if scale >= 0:
            return a
        return rowwise(exact, a.type, a, raises=True) if scale > -20 else lift(lambda v: pc.multiply(v, pa.scalar(0, v.type)), a.type, a)
    if a.type != DOUBLE:
        return cast(rowwise(exact, DOUBLE, _shortest_double(a)), a.type)
    return lift(partial(_round_doubles, scale, mode, exact), a.type, a)


_TOO_MANY: Final = 646_456_993
"""Ten to this has 2**31 bits, which no whole number of Java has: Spark fails there."""


def _beyond_digits(value: float) -> float:
    if value and np.isfinite(value):
        raise ArithmeticOverflow(f"round: no number has {_TOO_MANY} digits behind the point")
    return value + 0.0


def _shortest_double(a: Node) -> Node:
    return cast(cast(a, pa.string()), DOUBLE)


def _round_doubles(scale: int, mode: str, exact: Callable[[float], float], value: Value) -> Value:
    if isinstance(value, pa.Scalar):
        return pa.scalar(exact(value.as_py()) if value.is_valid else None, DOUBLE)
    if scale > 0:  # From 2**52 on a double has no digits behind the point, and Arrow says that it overflows.
        large = pc.greater_equal(pc.abs(value), _EXACT)
        rounded = pc.if_else(large, value, pc.round(pc.if_else(large, 0.0, value), ndigits=scale, round_mode=mode))
    else:
        rounded = pc.round(value, ndigits=scale, round_mode=mode)
    rounded = pc.add(rounded, 0.0)  # -0.0 is 0.0, because a decimal has no such zero.
    with np.errstate(all="ignore"):
        shifted = np.abs(value.fill_null(0.0).to_numpy()) * 10.0**scale
        doubtful = (np.abs(shifted - np.floor(shifted) - 0.5) < _ALMOST * np.maximum(shifted, 1.0)) & (shifted < _EXACT)
        doubtful |= (shifted >= _EXACT) & np.isfinite(value.fill_null(0.0).to_numpy())
    if not doubtful.any():
        return rounded
    where = np.flatnonzero(doubtful)
    exactly = pa.array([exact(v) for v in value.take(pa.array(where)).to_pylist()], DOUBLE)
    return pc.replace_with_mask(rounded, pa.array(doubtful & ~value.is_null().to_numpy(zero_copy_only=False)),
                                exactly.filter(exactly.is_valid()))  # fmt: skip


def _round_exactly(type: pa.DataType, scale: int, mode: str, value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return value
    number = Decimal(repr(value))
    if isinstance(value, float) and number.as_tuple().exponent >= -scale:  # type: ignore[operator]
        return value + 0.0
    rounded = number.quantize(Decimal(1).scaleb(-scale), mode, _DIGITS)
    if isinstance(value, float):
        return float(rounded) + 0.0
    low, high = bounds(type)
    if not low <= int(rounded) <= high:
        raise ArithmeticOverflow(f"round({value}, {scale}) does not fit into {name_of(type)}")
    return int(rounded)


_ln, _divide = call("ln"), call("divide")
_NULL: Final = pa.scalar(None, DOUBLE)


def _log(kernel: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Spark's logarithm of zero and below is null."""
    return lambda v: pc.if_else(pc.less_equal(v, 0.0), _NULL, kernel(v))


def _log_base(a: Node, b: Node | None = None) -> Node:
    if b is None:
        return lift(_log(_ln), DOUBLE, cast(_number(a, "log"), DOUBLE))
    ln = _log(_ln)
    return lift(lambda base, value: _divide(ln(value), ln(base)), DOUBLE, *(cast(_number(n, "log"), DOUBLE) for n in (a, b)))


def _power(a: Node, b: Node) -> Node:
    a, b = (cast(_number(n, "pow"), DOUBLE) for n in (a, b))
    return lift(_java_power, DOUBLE, a, b)


def _java_power(a: Value, b: Value) -> Value:
    """C says pow(1, NaN) is 1 and pow(-1, infinity) is 1; Java says NaN."""
    unsure = pc.and_(pc.equal(pc.abs(a), 1.0), pc.invert(pc.is_finite(b)))
    return pc.if_else(unsure, pa.scalar(float("nan")), pc.power(a, b))


def _sign(a: Node) -> Node:
    if a.type == INTERVAL:
        a = op.cast_raw(a, LONG)
    if a.type == MONTHS:
        a = literal(pa.scalar(months_of(a), LONG))
    return lift(lambda v: pc.if_else(pc.equal(v, 0.0), v, pc.cast(pc.sign(v), DOUBLE)), DOUBLE, cast(_number(a, "sign"), DOUBLE))


def _extreme(name: str, operator: str, *args: Node) -> Node:
    """greatest and least: nulls are skipped; NaN is the greatest of all."""
    type = common([a.type for a in args], f"{name}(...)")
    if any(stringy(a.type) != stringy(type) and a.type != pa.null() for a in args):
        raise TypeMismatch(f"{name}(...) mixes {', '.join(name_of(a.type) for a in args)}; cast them to one type")
    nodes = [cast(a, type) for a in args]
    if integral(type) or type in (STRING, DATE, TIMESTAMP_NTZ):
        kernel = call("max_element_wise" if name == "greatest" else "min_element_wise", pc.ElementWiseAggregateOptions(skip_nulls=True))
        return lift(kernel, type, *nodes, strict=False)
    best = nodes[0]
    for node in nodes[1:]:
        better = op.either(op.is_null(best), op.compare(operator, node, best))
        best = choose(((op.both(op.negation(op.is_null(node)), better), node),), best)
    return best


def _getbit(a: Node, position: Node) -> Node:
    if not integral(a.type) or not integral(position.type):
        raise TypeMismatch(f"getbit needs whole numbers: {a.text}, {position.text}")
    place = constant_of(position, "the position in getbit")
    if not isinstance(place, int) or not 0 <= place < a.type.bit_width:
        raise ExpressionError(f"getbit: the position must be 0 to {a.type.bit_width - 1}")
    one, by = pa.scalar(1, a.type), pa.scalar(place, a.type)
    return cast(lift(lambda v: pc.bit_wise_and(op.shifted("shiftright", v, by), one), a.type, a), pa.int8())


def _bit_count(a: Node) -> Node:
    if a.type != BOOL and not integral(a.type):
        raise TypeMismatch(f"bit_count needs a whole number, but {a.text} is {name_of(a.type)}")
    return rowwise(lambda v: (v & 0xFFFF_FFFF_FFFF_FFFF).bit_count(), INT, cast(a, LONG))


def _try(build: Callable[[Node, Node], Node]) -> Callable[[Node, Node], Node]:
    """The operator, null where it would fail. As in Spark, only its own failure counts between numbers, otherwise that of a cast too."""

    def tried(a: Node, b: Node) -> Node:
        if not (numeric(a.type) and numeric(b.type)):
            return attempt(build(a, b))
        zero = literal(pa.scalar(0, INT))
        divisor = choose(((op.compare("=", b, zero), literal(pa.scalar(None, b.type))),), b)
        return build(a, divisor)

    return tried


FUNCTIONS: Final = {
    "abs": Signature(_abs, 1, 1),
    "negative": Signature(op.negate, 1, 1),
    "positive": Signature(lambda a: a if a.type in (INTERVAL, MONTHS) else _number(a, "positive"), 1, 1),
    "ceil": Signature(partial(_whole, "ceil"), 1, 2),
    "ceiling": Signature(partial(_whole, "ceil"), 1, 2),
    "floor": Signature(partial(_whole, "floor"), 1, 2),
    "round": Signature(partial(_round, "half_towards_infinity"), 1, 2),
    "bround": Signature(partial(_round, "half_to_even"), 1, 2),
    "rint": _real("rint", lambda v: pc.round(v, round_mode="half_to_even")),
    "sqrt": _real("sqrt", call("sqrt")),
    "cbrt": Signature(lambda a: rowwise(lambda v: float(np.cbrt(v)), DOUBLE, cast(_number(a, "cbrt"), DOUBLE)), 1, 1),
    "exp": _real("exp", call("exp")),
    "expm1": _real("expm1", call("expm1")),
    "ln": _real("ln", _log(_ln)),
    "log10": _real("log10", _log(call("log10"))),
    "log2": _real("log2", _log(call("log2"))),
    "log": Signature(_log_base, 1, 2),
    "pow": Signature(_power, 2, 2),
    "power": Signature(_power, 2, 2),
    "sign": Signature(_sign, 1, 1),
    "signum": Signature(_sign, 1, 1),
    "sin": _real("sin", call("sin")),
    "cos": _real("cos", call("cos")),
    "tan": _real("tan", call("tan")),
    "atan": _real("atan", call("atan")),
    "degrees": _real("degrees", lambda v: pc.multiply(v, 180.0 / np.pi)),
    "radians": _real("radians", lambda v: pc.multiply(v, np.pi / 180.0)),
    "greatest": Signature(partial(_extreme, "greatest", ">"), 2, MANY),
    "least": Signature(partial(_extreme, "least", "<"), 2, MANY),
    "mod": Signature(op.remainder, 2, 2),
    "pmod": Signature(op.positive_remainder, 2, 2),
    "div": Signature(op.whole_divide, 2, 2),
    "try_divide": Signature(_try(op.divide), 2, 2),
    "try_mod": Signature(_try(op.remainder), 2, 2),
    "shiftleft": Signature(partial(op.shift, "shiftleft"), 2, 2),
    "shiftright": Signature(partial(op.shift, "shiftright"), 2, 2),
    "getbit": Signature(_getbit, 2, 2),
    "bit_get": Signature(_getbit, 2, 2),
    "bit_count": Signature(_bit_count, 1, 1),
}
