"""EXISTS (SELECT ...) and x IN (SELECT ...) inside expressions, `CASE WHEN EXISTS (...) THEN`, as queries that count.

They leave no rows out, so a semi join cannot answer them: how many rows there are does.
"""

from __future__ import annotations

from sqlglot import exp

from evenflow.query.script.lowering import Lower, is_aggregated

_PLAIN = frozenset({"expressions", "from_", "joins", "where", "distinct", "kind", "limit"})


def as_counts(lower: Lower, place: exp.Expr) -> exp.Expr:
    """The expression with counts in the place of such tests."""
    inside = exp.Subquery | exp.Select | exp.Exists
    found = [node for node in place.walk(prune=lambda node: isinstance(node, inside)) if _is_test(node)]
    for test in found:
        negated = test.parent if isinstance(test, exp.In) and isinstance(test.parent, exp.Not) and test is not place else None
        if isinstance(test, exp.In):
            made = _among(lower, test, negated=negated is not None)
        else:
            made = _some(_query(lower, test, test.this))
        where = negated if negated is not None else test
        made = exp.paren(made, copy=False)
        if where is place:
            return made
        where.replace(made)
    return place


def _is_test(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def _some(query: exp.Select) -> exp.Expr:
    """(SELECT count(*) ...) > 0"""
    made = query.copy()
    made.set("expressions", [exp.Anonymous(this="count", expressions=[exp.Star()])])
    return exp.GT(this=exp.Subquery(this=made), expression=exp.Literal.number(0))


def _among(lower: Lower, test: exp.In, *, negated: bool) -> exp.Expr:
    """As in Spark IN is true or false here, and NOT IN true where each row differs for sure."""
    query, value = _query(lower, test, test.args["query"]), test.this.unnest()
    if len(query.expressions) != 1 or isinstance(value, exp.Tuple) or query.expressions[0].is_star:
        lower.script.fail(test, "IN inside an expression takes one value and a SELECT of one column; write EXISTS with a WHERE")
    item = query.expressions[0].unalias()
    equal, empty = query.copy(), query.copy()
    equal.where(exp.EQ(this=item.copy(), expression=value.copy()), copy=False)
    if not negated:
        return _some(equal)
    empty.where(exp.Is(this=item.copy(), expression=exp.Null()), copy=False)
    nothing = exp.And(this=exp.Is(this=value.copy(), expression=exp.Null()), expression=_some(query))
    return exp.not_(exp.or_(_some(equal), _some(empty), nothing))


def _query(lower: Lower, test: exp.Expr, query: exp.Expr) -> exp.Select:
    found = query.unnest() if isinstance(query, exp.Subquery) else query
    if not lower.changes:
        lower.script.fail(
            test, "a query inside an expression has an answer that changes; use changelog or complete mode, or JOIN it instead"
        )
    if not isinstance(found, exp.Select) or any(v and k not in _PLAIN for k, v in found.args.items()) or _is_grouped(found):
        lower.script.fail(test, "a query inside an expression is a SELECT with FROM and WHERE; JOIN any other")
    made = found.copy()
    made.set("limit", None)
    made.set("distinct", None)
    return made


def _is_grouped(query: exp.Select) -> bool:
    return any(map(is_aggregated, query.expressions))


__all__ = ["as_counts"]
