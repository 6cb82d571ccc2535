"""Times that are moved by months that are computed: ts + make_interval(y, m, w, d, h, min, s), ts - INTERVAL 1 MONTH * n.

No value is an interval of months, whose length is not known. So the sum is read as a whole: the months first, as Spark adds them, on the
last day of a month that has no such day, and then what has a length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import ExpressionError
from evenflow.query.sql import operators as op
from evenflow.query.sql.casts import cast
from evenflow.query.sql.functions import build_function
from evenflow.query.sql.intervals import interval
from evenflow.query.sql.node import Node, literal
from evenflow.query.sql.times import later_date
from evenflow.query.sql.types import DATE, INT, LONG, MONTHS, STRING, integral, timestampy

Nodes = Callable[[exp.Expr], Node]


@dataclass(frozen=True, slots=True)
class Move:
    """months: bigint. days, and hours, minutes and seconds: what make_interval was given, none of what has months only."""

    months: Node
    days: Node | None = None
    rest: list[Node] = field(default_factory=list)


def moved(operator: str, tree: Any, nodes: Nodes) -> Node | None:
    """time + months or time - months, or months + time, with months that are computed; None for any other sum. nodes: of trees."""
    for time, given in ((tree.this, tree.expression), (tree.expression, tree.this)):
        if _is_computed(given) and (operator == "+" or given is tree.expression):
            move = _move(given, nodes)
            return None if move is None else _applied(operator, nodes(time), move, given)
    return None


def _is_computed(tree: exp.Expr) -> bool:
    """Whether a tree makes an interval of months of something else than a literal."""
    if isinstance(tree, exp.Paren | exp.Neg):
        return _is_computed(tree.this)
    if isinstance(tree, exp.Mul):
        return any(_is_computed(part) or isinstance(part.unnest(), exp.Interval) for part in (tree.this, tree.expression))
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in ("make_interval", "make_ym_interval")


def _move(tree: exp.Expr, nodes: Nodes) -> Move | None:
    if isinstance(tree, exp.Paren):
        return _move(tree.this, nodes)
    if isinstance(tree, exp.Interval):
        given = interval(tree)
        if given.type != MONTHS or given.constant is None:
            return None
        return Move(_whole(int(given.constant.as_py().months)))
    if isinstance(tree, exp.Neg):
        inner = _move(tree.this, nodes)
        return None if inner is None or inner.days is not None else Move(_product(inner.months, _whole(-1)))
    if isinstance(tree, exp.Mul):
        one, other = tree.this, tree.expression
        if not (_is_computed(one) or isinstance(one.unnest(), exp.Interval)):
            one, other = other, one
        inner, by = _move(one, nodes), nodes(other)
        if inner is None or inner.days is not None or not integral(by.type):
            return None
        return Move(_product(inner.months, cast(by, LONG)))
    return _made(tree, nodes) if isinstance(tree, exp.Anonymous) else None


def _made(tree: exp.Anonymous, nodes: Nodes) -> Move:
    name = tree.name.lower()
    given = [nodes(each) for each in tree.expressions]
    if len(given) > (2 if name == "make_ym_interval" else 7):
        raise ExpressionError(f"{name} takes years, months{'' if name == 'make_ym_interval' else ', weeks, days, hours, minutes, seconds'}")
    parts = [cast(each, INT) for each in given[:6]] + given[6:]
    numbers = [*parts, *(literal(pa.scalar(0, INT)) for _ in range(6 - len(parts)))]
    months = op.arithmetic("+", _product(cast(numbers[0], LONG), _whole(12)), cast(numbers[1], LONG))
    if name == "make_ym_interval":
        return Move(months)
    days = op.arithmetic("+", _product(cast(numbers[2], LONG), _whole(7)), cast(numbers[3], LONG))
    return Move(months, days, parts[4:])


def _whole(value: int) -> Node:
    return literal(pa.scalar(value, LONG))


def _product(one: Node, other: Node) -> Node:
    return op.arithmetic("*", one, other)


def _applied(operator: str, time: Node, move: Move, given: exp.Expr) -> Node | None:
    if time.type != DATE and not timestampy(time.type):
        return None
    sign = _whole(1 if operator == "+" else -1)
    months = cast(_product(move.months, sign), INT)
    if time.type == DATE:
        if move.rest:
            raise ExpressionError("a date is moved by years to days; cast it to a timestamp to move it by hours")
        return later_date(time, months, _whole(0) if move.days is None else _product(move.days, sign))
    for part in () if move.days is None else (move.days, *move.rest):
        months = build_function("nvl2", [part, months, literal(pa.scalar(None, INT))])
    found = build_function("_timestampadd", [literal(pa.scalar("MONTH", STRING)), months, time])
    if move.days is None:
        return found
    length = build_function("make_dt_interval", [cast(move.days, INT), *move.rest])
    return op.arithmetic(operator, found, length)
