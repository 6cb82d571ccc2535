"""FILTER (WHERE ...) behind aggregates that are made of others, and behind those that nulls count in."""

from __future__ import annotations

from sqlglot import exp

from evenflow.query.script.lowering import is_aggregate
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.user.scope import built_in


def within(tree: exp.Filter) -> exp.Expr:
    """A FILTER behind an aggregate that is made of others, as one behind each of these."""
    where = tree.expression
    made: exp.Expr = tree.this.copy()
    for call in [node for node in made.walk() if is_aggregate(node)]:
        filtered = exp.Filter(this=call.copy(), expression=where.copy())
        if call is made:
            return filtered
        call.replace(filtered)
    return made


def of_those(tree: exp.Filter) -> exp.Expr | None:
    """first(x) FILTER (WHERE c) as the first of what c holds for: a structure of x, so that null counts too. None for other aggregates."""
    call = tree.this.this if isinstance(tree.this, exp.IgnoreNulls | exp.RespectNulls) else tree.this
    if not isinstance(call, exp.Anonymous) or aggregate_named(call.name) not in ("first", "last") or not call.expressions:
        return None
    value, *rest = call.expressions
    ignoring = isinstance(tree.this, exp.IgnoreNulls) or any(isinstance(each, exp.Boolean) and each.this for each in rest)
    held = value if ignoring else exp.Anonymous(this=built_in("named_struct"), expressions=[exp.Literal.string("value"), value])
    chosen = exp.Case(ifs=[exp.If(this=tree.expression.this.copy(), true=held.copy())])
    made = exp.IgnoreNulls(this=exp.Anonymous(this=call.this, expressions=[chosen]))
    return made if ignoring else exp.Dot(this=made, expression=exp.to_identifier("value", quoted=True))
