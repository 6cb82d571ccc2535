"""Spans of time in SQL: the size, the slide and the start of windows, gaps of sessions, sums of intervals."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from evenflow.errors import EvenflowError
from evenflow.query.duration import duration_us, offset_us
from evenflow.query.expression import compile_expression
from evenflow.query.script.lowering import Lower, is_aggregate
from evenflow.query.script.relation import Relation
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.parser import length_of, to_sql
from evenflow.query.sql.types import INTERVAL
from evenflow.query.user.scope import built_in


def span_us(lower: Lower, tree: exp.Expr) -> int:
    """Microseconds of '10 seconds' or INTERVAL 10 SECONDS."""
    with lower.script.at(tree):
        return duration_us(_text(lower, tree))


def window_spans_us(lower: Lower, arguments: Sequence[exp.Expr]) -> list[int]:
    """Of window(time, ...) behind the time: size, slide and start, as far as they are there. A start may be before 1970."""
    spans = [span_us(lower, argument) for argument in arguments[:2]]
    for argument in arguments[2:]:
        with lower.script.at(argument):
            spans.append(offset_us(_text(lower, argument)))
    return spans


def _text(lower: Lower, tree: exp.Expr) -> str:
    text = length_of(tree)
    if text is not None:
        return text
    raise lower.script.error(tree, f"{to_sql(tree)!r} is no length of time; write '10 seconds'")


def of_intervals(relation: Relation, tree: exp.Expr) -> exp.Expr | None:
    """sum and avg of intervals, as those of their microseconds; None for anything else."""
    call = tree.this if isinstance(tree, exp.Filter) else tree
    name = aggregate_named(call.name) if is_aggregate(call) else None
    if name not in ("sum", "avg") or len(call.expressions) != 1 or isinstance(call.expressions[0], exp.Literal | exp.Distinct):
        return None
    value = call.expressions[0]
    try:
        if compile_expression(to_sql(relation.rewritten(value)), relation.stream.schema).type != INTERVAL:
            return None
    except EvenflowError:  # What is wrong with it is said where the call is taken.
        return None

    def of(function: str, given: exp.Expr) -> exp.Expr:
        made: exp.Expr = exp.Anonymous(this=built_in(function), expressions=[given.copy()])
        return exp.Filter(this=made, expression=tree.expression.copy()) if isinstance(tree, exp.Filter) else made

    total = of("sum", exp.Anonymous(this="_span_us", expressions=[value.copy()]))
    if name == "sum":
        return exp.Anonymous(this="_as_span", expressions=[total])
    return exp.Anonymous(this="_mean_span", expressions=[total, of("count", value)])
