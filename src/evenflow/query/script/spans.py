"""Spans of time in SQL: the size, the slide and the start of windows, gaps of sessions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from evenflow.query.duration import duration_us, offset_us
from evenflow.query.script.lowering import Lower
from evenflow.query.sql.parser import to_sql


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
    if isinstance(tree, exp.Literal) and tree.is_string:
        return str(tree.this)
    if isinstance(tree, exp.Interval) and tree.this is not None:
        sign, value = ("-", tree.this.this) if isinstance(tree.this, exp.Neg) else ("", tree.this)
        return f"{sign}{value.name} {tree.args['unit'].name}" if tree.args.get("unit") else str(value.name)
    raise lower.script.error(tree, f"{to_sql(tree)!r} is no length of time; write '10 seconds'")
