"""Aggregates of some of a group's rows: `agg(x) FILTER (WHERE c)` is `agg(CASE WHEN c THEN x END)`."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from evenflow.query.sql.functions import aggregate_named

_SKIP_NULLS: Final = frozenset({"count", "sum", "min", "max", "avg", "stddev", "approx_count_distinct", "collect_list"})
"""That leave nulls out, so that rows which are not meant can be nulls."""


def filtered(tree: exp.Filter) -> exp.Anonymous | None:
    """The same without FILTER; None for an aggregate for which there is no such form."""
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
