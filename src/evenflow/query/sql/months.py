"""Intervals of years and months among themselves: their sums, multiples and order. They are constants; no column is one of them."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.node import Node, literal
from evenflow.query.sql.types import MONTHS, name_of, numeric

MOST: Final = 2**31 - 1
"""Months of an interval, as Spark's."""


def months_of(node: Node) -> int:
    """The months of such a constant."""
    if node.constant is None or not node.constant.is_valid:
        raise ExpressionError(f"{node.text}: an interval of months has to be a literal")
    return int(node.constant.as_py().months)


def whole_months(count: int) -> Node:
    """The constant of so many months. ExpressionError if Spark has no such interval."""
    if not -MOST - 1 <= count <= MOST:
        raise ExpressionError(f"an interval of {count} months is longer than any; the longest has {MOST}")
    return literal(pa.scalar(pa.MonthDayNano([count, 0, 0]), MONTHS))


def months_together(operator: str, a: Node, b: Node) -> Node:
    """`a + b` and `a - b` of two of them."""
    return whole_months(months_of(a) + months_of(b) * (1 if operator == "+" else -1))


def months_by(operator: str, a: Node, b: Node) -> Node:
    """`a * b` and `a / b` of one of them and a constant number; a half is rounded away from zero."""
    what = f"{a.text} {operator} {b.text}"
    if not numeric(b.type):
        raise TypeMismatch(f"{what}: {b.text} is {name_of(b.type)}, and no number of times")
    if b.constant is None:
        raise ExpressionError(f"{what}: months by a number that is not constant only move a time, as in ts + n * INTERVAL '1' MONTH")
    if not b.constant.is_valid:
        raise ExpressionError(f"{what}: {b.text} is null")
    by = Decimal(str(b.constant.as_py()))
    if not by.is_finite() or (operator == "/" and not by):
        raise ExpressionError(f"{what} is no interval")
    exact = months_of(a) * by if operator == "*" else months_of(a) / by
    return whole_months(int(exact.quantize(Decimal(1), ROUND_HALF_UP)))
