"""Aggregates of some of a group's rows, `agg(x) FILTER (WHERE c)`, and counts of distinct values, by what says the same without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from evenflow.query.sql.composed import DISTINCT_COUNT, filled
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.parser import parse, struct_call

_SKIP_NULLS: Final = frozenset({"count", "sum", "min", "max", "avg", "stddev", "approx_count_distinct", "collect_list"})
"""That leave nulls out, so that rows which are not meant can be nulls."""


def filtered(tree: exp.Filter) -> exp.Anonymous | None:
    """`agg(CASE WHEN c THEN x END)`; None for an aggregate for which there is no such form."""
    call, condition = tree.this, tree.expression.this
    if not isinstance(call, exp.Anonymous) or aggregate_named(call.name) not in _SKIP_NULLS:
        return None
    first, *rest = call.expressions
    distinct = isinstance(first, exp.Distinct)
    value = first.expressions[0] if distinct else exp.Literal.number(1) if isinstance(first, exp.Star) else first
    chosen: exp.Expr = exp.Case(ifs=[exp.If(this=condition, true=value)])
    if distinct:
        chosen = exp.Distinct(expressions=[chosen])
    return exp.Anonymous(this=call.this, expressions=[chosen, *rest])


def distinct_values(call: exp.Expr) -> Sequence[exp.Expr] | None:
    """x, y of count(DISTINCT x, y); None of any other call."""
    first = call.expressions[0] if isinstance(call, exp.Anonymous) and call.expressions else None
    return first.expressions if isinstance(first, exp.Distinct) and call.name.lower() == "count" else None


def counted(values: Sequence[exp.Expr]) -> exp.Expr:
    """How many distinct values there are; of several, of which none is null. Their state is the values."""
    value = values[0]
    if len(values) > 1:
        there = exp.and_(*(exp.Not(this=exp.Is(this=each.copy(), expression=exp.Null())) for each in values))
        value = exp.Case(ifs=[exp.If(this=there, true=struct_call([each.copy() for each in values]))])
    return filled(DISTINCT_COUNT, [value], parse)
