"""Operators: arithmetic that refuses to overflow, comparisons in which NaN is a value, three-valued logic, membership."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ArithmeticOverflow, ExpressionError, TypeMismatch
from evenflow.query.sql import calendar, decimal_math
from evenflow.query.sql.casts import cast, try_constant
from evenflow.query.sql.months import months_by, months_of, months_together, whole_months
from evenflow.query.sql.node import Kernel, Node, Value, call, choose, lift, literal, measured, unit_of
from evenflow.query.sql.ordering import Signs, signs
from evenflow.query.sql.shapes import nulls, over_arrays
from evenflow.query.sql.types import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    LONG,
    MONTHS,
    NULL,
    TIMESTAMP_NTZ,
    common,
    decimal,
    floating,
    integral,
    name_of,
    numeric,
    stringy,
    timestampy,
    with_names,
)
from evenflow.stream.schema import has_map

_or, _and, _invert = call("or"), call("and"), call("invert")
_is_nan, _is_null = call("is_nan"), call("is_null")
_equal, _less, _less_equal = call("equal"), call("less"), call("less_equal")
_coalesce = call("coalesce")
FALSE: Final = literal(pa.scalar(False))
TRUE: Final = literal(pa.scalar(True))


# Comparison. Spark orders NaN above every number and holds it equal to itself; Arrow follows IEEE.


def _real_equal(a: Value, b: Value) -> Value:
    return _or(_equal(a, b), _and(_is_nan(a), _is_nan(b)))


def _real_at_most(a: Value, b: Value) -> Value:
    return _or(_less_equal(a, b), _is_nan(b))


_REAL: Final[dict[str, Kernel]] = {
    "=": _real_equal,
    "!=": lambda a, b: _invert(_real_equal(a, b)),
    "<=": _real_at_most,
    ">=": lambda a, b: _real_at_most(b, a),
    ">": lambda a, b: _invert(_real_at_most(a, b)),
    "<": lambda a, b: _invert(_real_at_most(b, a)),
}
_TO_NUMBER: Final[dict[str, Kernel]] = {
    # Against a constant that is not NaN, NaN falls on the right side by asking the opposite question.
    "=": _equal, "!=": call("not_equal"), "<": _less, "<=": _less_equal,
    ">": lambda a, b: _invert(_less_equal(a, b)), ">=": lambda a, b: _invert(_less(a, b)),
}  # fmt: skip
_PLAIN: Final[dict[str, Kernel]] = {
    "=": _equal, "!=": call("not_equal"), "<": _less, "<=": _less_equal, ">": call("greater"), ">=": call("greater_equal"),
}  # fmt: skip
_OF_SIGNS: Final[dict[str, Callable[[Signs], Any]]] = {
    "=": lambda s: s == 0, "!=": lambda s: s != 0, "<": lambda s: s < 0, "<=": lambda s: s <= 0, ">": lambda s: s > 0,
    ">=": lambda s: s >= 0,
}  # fmt: skip
"""Of structures and lists, by how they compare."""
_MIRROR: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(operator: str, a: Node, b: Node) -> Node:
    """`a operator b` for = != < <= > >=: boolean, null if either side is null."""
    a, b = _aligned(a, b, f"{a.text} {operator} {b.text}")
    if a.type == NULL:
        return literal(pa.scalar(None, BOOL))
    if pa.types.is_nested(a.type):
        _check_ordered(a, b, operator)
        test = _OF_SIGNS[operator]
        kernel = over_arrays(lambda x, y: pa.array(test(signs(x, y)), mask=nulls(x) | nulls(y)))
        return lift(kernel, BOOL, a, b)
    if a.constant is not None and b.constant is None:
        a, b, operator = b, a, _MIRROR[operator]
    table = _PLAIN
    if floating(a.type):
        value = b.constant.as_py() if b.constant is not None else float("nan")
        table = _TO_NUMBER if value == value else _REAL
    return lift(table[operator], BOOL, a, b)


def _check_ordered(a: Node, b: Node, operator: str) -> None:
    """TypeMismatch for what has a map in it, which Spark does not compare either."""
    if has_map(a.type):
        raise TypeMismatch(f"{a.text} {operator} {b.text}: maps cannot be compared; compare their map_keys or the values of some keys")


def _aligned(a: Node, b: Node, what: str) -> tuple[Node, Node]:
    """Both in their common type; a constant goes to the other side's type instead, when it has the same value there. Structures are
    compared field by field, whatever their names."""
    if a.type == b.type == MONTHS:
        return literal(pa.scalar(months_of(a), LONG)), literal(pa.scalar(months_of(b), LONG))
    b = cast(b, with_names(b.type, a.type))
    if a.constant is not None and b.constant is None:
        b, a = _aligned(b, a, what)
        return a, b
    if stringy(b.type) and b.constant is not None and (numeric(a.type) or a.type == BOOL):
        b = cast(b, common((a.type, b.type), what))
    fitted = try_constant(b, a.type)
    if fitted is not None and fitted.constant is not None:
        return a, fitted
    type = common((a.type, b.type), what)
    return cast(a, type), cast(b, type)


def null_safe_equal(a: Node, b: Node) -> Node:
    """`a <=> b`: equal, or both null. Never null. Both sides are computed, also where one is null, as in Spark."""
    a, b = _aligned(a, b, f"{a.text} <=> {b.text}")
    if a.type == NULL:
        return TRUE
    if pa.types.is_nested(a.type):
        _check_ordered(a, b, "<=>")
        return lift(over_arrays(lambda x, y: pa.array(signs(x, y) == 0)), BOOL, a, b, strict=False)
    equal = _real_equal if floating(a.type) else _equal
    return lift(lambda x, y: _coalesce(equal(x, y), _and(_is_null(x), _is_null(y))), BOOL, a, b, strict=False)


def member(value: Node, items: Sequence[Node]) -> Node:
    """`value IN (items)`: null if no item is equal and the value or some item is null."""
    items = [cast(i, with_names(i.type, value.type)) for i in items]
    type = common([value.type, *(i.type for i in items)], f"{value.text} in (...)")
    fitted = [try_constant(i, value.type) or i for i in items]
    if all(i.type in (value.type, NULL) for i in fitted):
        type, items = value.type, fitted
    value, items = cast(value, type), [cast(i, type) for i in items]
    constants = [i.constant for i in items if i.constant is not None]
    if len(constants) < len(items) or len(items) == 1 or pa.types.is_nested(type):
        result = compare("=", value, items[0])
        for item in items[1:]:
            result = either(result, compare("=", value, item))
        return result
    values = [c.as_py() for c in constants if c.is_valid]
    if floating(type) and 0.0 in values:  # Both zeros are equal, but Arrow looks for the one that it is given.
        values = [*values, 0.0, -0.0]
    known = pa.array(values, type)
    find = call("is_in", pc.SetLookupOptions(value_set=known, skip_nulls=True))
    miss = pa.scalar(None if any(not c.is_valid for c in constants) else False, BOOL)
    return lift(lambda v: pc.if_else(pc.is_valid(v), pc.if_else(find(v), True, miss), pa.scalar(None, BOOL)), BOOL, value)


# Logic. Spark does not look at the right side of AND where the left is false, so what may fail there must not be computed there.


def truth(node: Node, what: str) -> Node:
    """The node as a condition. TypeMismatch if it is not boolean; AND, OR and NOT read a string as a boolean, CASE and IF do not."""
    if node.type in (BOOL, NULL) or (stringy(node.type) and what in ("AND", "OR", "NOT")):
        return cast(node, BOOL)
    raise TypeMismatch(f"{what} needs a boolean, but {node.text} is {name_of(node.type)}")


def _conditions(a: Node, b: Node, what: str) -> tuple[Node, Node]:
    if BOOL not in (a.type, b.type) and (stringy(a.type) or stringy(b.type)):
        raise TypeMismatch(f"{what} reads a string as a boolean only beside a boolean: cast {a.text} or {b.text}")
    return truth(a, what), truth(b, what)


def both(a: Node, b: Node) -> Node:
    a, b = _conditions(a, b, "AND")
    result = lift(call("and_kleene"), BOOL, a, b, strict=False)
    return choose(((lift(_invert, BOOL, a), FALSE),), result) if b.raises else result


def either(a: Node, b: Node) -> Node:
    a, b = _conditions(a, b, "OR")
    result = lift(call("or_kleene"), BOOL, a, b, strict=False)
    return choose(((a, TRUE),), result) if b.raises else result


def negation(a: Node) -> Node:
    return lift(_invert, BOOL, truth(a, "NOT"))


def is_null(a: Node) -> Node:
    return lift(_is_null, BOOL, a)


# Arithmetic


_CHECKED: Final = {"+": call("add_checked"), "-": call("subtract_checked"), "*": call("multiply_checked")}
_UNCHECKED: Final = {"+": call("add"), "-": call("subtract"), "*": call("multiply")}
_DAY_US: Final = 86_400_000_000
_MOMENTS: Final = "date, timestamp or interval"


def arithmetic(operator: str, a: Node, b: Node) -> Node:
    """`a + b`, `-` and `*` of numbers; `+` and `-` of times and intervals; interval times number."""
    if any(_temporal(n.type) for n in (a, b)):
        return _moments(operator, a, b)
    if decimal_math.exact(a, b):
        return decimal_math.calculate(operator, a, b)
    a, b, type = _of_numbers(operator, a, b)
    if floating(type):
        return lift(_UNCHECKED[operator], type, a, b)
    return lift(_CHECKED[operator], type, a, b, raises=True)


def _of_numbers(operator: str, a: Node, b: Node) -> tuple[Node, Node, pa.DataType]:
    """`numbers`, of which one side at least is a number or null: two strings do not meet, as in Spark."""
    if stringy(a.type) and stringy(b.type):
        raise TypeMismatch(f"{operator} needs numbers, but {a.text} and {b.text} are strings; cast one of them")
    return numbers(operator, a, b)


def numbers(operator: str, a: Node, b: Node) -> tuple[Node, Node, pa.DataType]:
    """Both sides in the type of the result. A string meets a number as a number."""
    for node in (a, b):
        if not numeric(node.type) and not stringy(node.type) and node.type != NULL:
            raise TypeMismatch(f"{operator} needs numbers, but {node.text} is {name_of(node.type)}")
    type = common((a.type, b.type), f"{a.text} {operator} {b.text}")
    if stringy(type) or type == NULL:
        type = DOUBLE
    if decimal(type):
        type = DOUBLE
    return cast(a, type), cast(b, type), type


def divide(a: Node, b: Node) -> Node:
    """`a / b` in double. Division by zero fails, also of doubles."""
    if a.type == MONTHS:
        return months_by("/", a, b)
    if a.type == INTERVAL:
        micros = cast_raw(a, LONG)
        return cast_raw(lift(lambda x, y: pc.round(pc.divide_checked(pc.cast(x, DOUBLE), y), round_mode="half_towards_infinity").cast(LONG),
                             LONG, micros, cast(b, DOUBLE), raises=True), INTERVAL, "second")  # fmt: skip
    if decimal_math.exact(a, b):
        return decimal_math.calculate("/", a, b)
    a, b, _ = _of_numbers("/", a, b)  # A string beside a whole number must be one too.
    return _quotient("divide", "divide_checked", DOUBLE, cast(a, DOUBLE), cast(b, DOUBLE))


def _quotient(name: str, checked: str, type: pa.DataType, a: Node, b: Node) -> Node:
    """Without the check where the divisor is a constant that needs none. Spark computes the divisor first."""
    safe = b.constant is not None and b.constant.is_valid and b.constant.as_py() not in (0, -1)
    return lift(call(name if safe else checked), type, a, b, raises=not safe, order=(1, 0))


def whole_divide(a: Node, b: Node) -> Node:
    """`a div b`: bigint, towards zero."""
    if (a.type, b.type) in ((INTERVAL, INTERVAL), (MONTHS, MONTHS)):
        counts = [cast_raw(n, LONG) if n.type == INTERVAL else literal(pa.scalar(months_of(n), LONG)) for n in (a, b)]
        return _quotient("divide", "divide_checked", LONG, *counts)
    if decimal_math.exact(a, b):
        return decimal_math.whole_quotient(a, b)
    for node in (a, b):
        if floating(node.type) or decimal(node.type):
            raise TypeMismatch(f"div needs whole numbers or decimals, but {node.text} is {name_of(node.type)}; use floor(a / b)")
    a, b, _ = _of_numbers("div", a, b)
    if not any(integral(n.type) for n in (a, b)):
        raise TypeMismatch(f"div needs a whole number: {a.text} div {b.text}")
    return _quotient("divide", "divide_checked", LONG, cast(a, LONG), cast(b, LONG))


def remainder(a: Node, b: Node) -> Node:
    """`a % b`: the sign is the dividend's."""
    if decimal_math.exact(a, b):
        return decimal_math.calculate("%", a, b)
    a, b, type = _of_numbers("%", a, b)
    if integral(type):
        # By -1 nothing is left over, but Arrow says that the smallest number overflows.
        one, against = pa.scalar(1, type), pa.scalar(-1, type)
        b = lift(lambda v: pc.if_else(_equal(v, against), one, v), type, b)
    return _quotient("remainder", "remainder_checked", type, a, b)


def positive_remainder(a: Node, b: Node) -> Node:
    """`pmod(a, b)`: the remainder, plus b where it is negative."""
    if decimal_math.exact(a, b):
        return decimal_math.calculate("pmod", a, b)
    a, b, type = _of_numbers("pmod", a, b)
    if integral(type) and type != LONG:
        return cast(positive_remainder(cast(a, LONG), cast(b, LONG)), type)
    left = remainder(a, b)
    zero = literal(pa.scalar(0, type))
    # The sum leaves the range only for the smallest of all divisors, and there Spark goes on at the other end.
    return choose(((compare("<", left, zero), remainder(lift(_UNCHECKED["+"], type, left, b), b)),), left)


def negate(a: Node) -> Node:
    if a.type == MONTHS:
        return whole_months(-months_of(a))
    if a.type == INTERVAL:
        return cast_raw(negate(cast_raw(a, LONG)), INTERVAL, a.unit)
    if not numeric(a.type):
        a = numbers("-", a, literal(pa.scalar(None, NULL)))[0]
    return lift(call("negate_checked" if integral(a.type) else "negate"), a.type, a, raises=integral(a.type))


def bitwise(operator: str, a: Node, b: Node) -> Node:
    """`a & b`, `|` and `^` of whole numbers."""
    a, b, type = numbers(operator, a, b)
    if not integral(type):
        raise TypeMismatch(f"{operator} needs whole numbers: {a.text} {operator} {b.text}")
    return lift(call({"&": "bit_wise_and", "|": "bit_wise_or", "^": "bit_wise_xor"}[operator]), type, a, b)


def complement(a: Node) -> Node:
    if not integral(a.type):
        raise TypeMismatch(f"~ needs a whole number, but {a.text} is {name_of(a.type)}")
    return lift(call("bit_wise_not"), a.type, a)


def shift(name: str, a: Node, b: Node) -> Node:
    """`shiftleft` or `shiftright`: of int or bigint, by the low 5 or 6 bits of `b`, as Java does."""
    a, b = (cast(each, INT) if each.type == NULL else each for each in (a, b))
    if not integral(a.type) or not integral(b.type):
        raise TypeMismatch(f"{name} needs whole numbers: {a.text}, {b.text}")
    a = a if a.type == LONG else cast(a, INT)
    width = pa.scalar(a.type.bit_width - 1, a.type)
    by = lift(lambda n: pc.bit_wise_and(n, width), a.type, cast(cast(b, INT), a.type))
    return lift(partial(shifted, name), a.type, a, by)


def shifted(name: str, value: Value, by: Value) -> Value:
    """Arrow leaves a number as it is when the shift reaches its sign, so that is done in two steps, of which none does."""
    step = call("shift_left" if name == "shiftleft" else "shift_right")
    half = pc.shift_right(by, pa.scalar(1, by.type))
    return step(step(value, half), pc.subtract(by, half))


# Time. A timestamp is its microseconds since 1970, a date its days, an interval its microseconds.


def _temporal(type: pa.DataType) -> bool:
    return type in (DATE, INTERVAL, MONTHS) or timestampy(type)


def cast_raw(a: Node, type: pa.DataType, unit: str = "") -> Node:
    """The same bits as another type of the same width. unit: the last one, if it is an interval."""
    return measured(lift(lambda v: v.cast(type), type, a, raises=a.raises), unit)


def micros(a: Node) -> Node:
    """Microseconds of a timestamp or interval, or since 1970 of a date: bigint."""
    if a.type == DATE:
        a = cast(a, TIMESTAMP_NTZ)
    return cast_raw(a, LONG)


def _moments(operator: str, a: Node, b: Node) -> Node:
    if operator == "*":
        return _scaled(a, b)
    if operator == "+" and a.type == MONTHS and b.type != MONTHS:
        a, b = b, a
    if b.type == MONTHS:
        return _months_moved(operator, a, b)
    if operator == "+" and a.type == LONG and b.type == DATE:
        raise TypeMismatch(f"{a.text} + {b.text}: a bigint is no number of days; cast it to int")
    if operator == "+" and (a.type == INTERVAL or not _temporal(a.type)) and b.type != INTERVAL:
        a, b = b, a
    if stringy(a.type):
        if b.type == INTERVAL:
            raise TypeMismatch(f"{a.text} {operator} {b.text}: {a.text} is a string; cast it to a timestamp")
        a = cast(a, pa.timestamp("us", "UTC"))
    if stringy(b.type):
        b = cast(b, a.type)
    if a.type == DATE and integral(b.type):
        return shift_days(a, b, operator)
    if b.type == INTERVAL:
        return _moved(operator, a, b)
    if operator == "-" and a.type == b.type == DATE:
        days = lift(_CHECKED["-"], LONG, *(cast(cast_raw(n, INT), LONG) for n in (a, b)))
        return cast_raw(lift(lambda v: _CHECKED["*"](v, pa.scalar(86_400_000_000)), LONG, days, raises=True), INTERVAL, "day")
    if operator == "-" and a.type != INTERVAL and _temporal(a.type) and _temporal(b.type):
        return cast_raw(lift(_CHECKED["-"], LONG, micros(a), micros(b), raises=True), INTERVAL, "second")
    raise TypeMismatch(f"{a.text} {operator} {b.text}: cannot combine {name_of(a.type)} and {name_of(b.type)}")


def _moved(operator: str, a: Node, b: Node) -> Node:
    type = a.type
    if type == DATE:
        if not b.unit:
            raise ExpressionError(
                f"{a.text} {operator} {b.text}: a date or a timestamp, as the interval's last unit is, which is not known here; say it, "
                f"{a.text} {operator} CAST({b.text} AS INTERVAL DAY), or move CAST({a.text} AS TIMESTAMP)"
            )
        type = DATE if b.unit == "day" else pa.timestamp("us", "UTC")
    elif not _temporal(type):
        raise TypeMismatch(f"{a.text} {operator} {b.text}: an interval moves a {_MOMENTS}, not {name_of(type)}")
    total = lift(_CHECKED[operator], LONG, micros(a), micros(b), raises=True)
    if type == DATE:
        return cast(cast_raw(total, TIMESTAMP_NTZ), DATE)
    return cast_raw(total, type, unit_of((a, b)) if type == INTERVAL else "")


def _months_moved(operator: str, a: Node, b: Node) -> Node:
    """Some months later or earlier, on the last day of a month that has no such day."""
    if a.type == MONTHS:
        return months_together(operator, a, b)
    if a.type != DATE and not timestampy(a.type):
        raise TypeMismatch(f"{a.text} {operator} {b.text}: months move a date or a timestamp, not {name_of(a.type)}")
    count = months_of(b) * (1 if operator == "+" else -1)

    def later(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return calendar.months_later(days, np.full(len(days), count))

    def kernel(array: pa.Array) -> pa.Array:
        given = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        days, rest = np.divmod(given, 1 if a.type == DATE else _DAY_US)
        found = later(days)
        low, high = (-(2**31), 2**31 - 1) if a.type == DATE else (-(2**63) // _DAY_US + 1, 2**63 // _DAY_US - 1)
        if ((found < low) | (found > high))[array.is_valid().to_numpy(zero_copy_only=False)].any():
            raise ArithmeticOverflow("a time lies beyond the last one or before the first one")
        whole = found if a.type == DATE else found * _DAY_US + rest
        return pa.array(whole, LONG, mask=nulls(array))

    moved = lift(over_arrays(kernel), LONG, cast(cast_raw(a, INT), LONG) if a.type == DATE else micros(a), raises=True)
    if a.type == DATE:
        return cast_raw(lift(lambda v: v.cast(INT), INT, moved), DATE)
    return cast_raw(moved if a.type.tz is None else cast_raw(moved, TIMESTAMP_NTZ), a.type)


def _scaled(a: Node, b: Node) -> Node:
    if b.type in (INTERVAL, MONTHS):
        a, b = b, a
    if a.type == MONTHS:
        return months_by("*", a, b)
    if a.type != INTERVAL or not numeric(b.type):
        raise TypeMismatch(f"{a.text} * {b.text}: cannot multiply {name_of(a.type)} by {name_of(b.type)}")
    if integral(b.type):
        return cast_raw(lift(_CHECKED["*"], LONG, micros(a), cast(b, LONG), raises=True), INTERVAL, "second")
    by: Callable[..., Any] = lambda x, y: pc.round(pc.multiply(pc.cast(x, DOUBLE), y), round_mode="half_towards_infinity").cast(LONG)  # noqa: E731
    return cast_raw(lift(by, LONG, micros(a), cast(b, DOUBLE), raises=True), INTERVAL, "second")


def shift_days(a: Node, days: Node, operator: str = "+") -> Node:
    """A date some days later: `date_add`, `date_sub`, `date + 3`."""
    total = lift(_CHECKED[operator], INT, cast_raw(cast(a, DATE), INT), cast(days, INT), raises=True)
    return cast_raw(total, DATE)
