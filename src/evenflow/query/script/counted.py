"""EXISTS (SELECT ...) and x IN (SELECT ...) inside expressions, `CASE WHEN EXISTS (...) THEN`, as queries that count.

They leave no rows out, so a semi join cannot answer them: how many rows there are does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from evenflow.query.script.inner import column_of
from evenflow.query.script.lowering import Lower, is_aggregated
from evenflow.query.script.relation import UNSEEN, Relation, Visible
from evenflow.query.user.scope import built_in

_PLAIN = frozenset({"expressions", "from_", "joins", "where", "distinct", "kind", "limit"})
_OUTSIDE: Final = f"{UNSEEN}_outside"


def as_counts(lower: Lower, place: exp.Expr, relation: Relation) -> tuple[exp.Expr, Relation]:
    """The expression with counts in the place of such tests, and the relation with names for what stands before IN."""
    inside = exp.Subquery | exp.Select | exp.Exists
    found = [node for node in place.walk(prune=lambda node: isinstance(node, inside)) if _is_test(node)]
    for test in found:
        if isinstance(test, exp.In):
            relation, value = _outside(lower, relation, test.this.unnest())
            made = _among(lower, test, value, negated=_is_negated(test, place))
        else:
            check_may_be_empty(lower, test.this)
            made = _some(_query(lower, test, test.this))
        made = exp.paren(made, copy=False)
        if test is place:
            return made, relation
        test.replace(made)
    return place, relation


def _is_negated(test: exp.Expr, place: exp.Expr) -> bool:
    """Whether NOT stands around it, which Spark takes into parentheses, past AND and OR: NOT (x IN (...)) is x NOT IN (...)."""
    negated, node = False, test
    while node is not place and isinstance(node.parent, exp.Paren | exp.Not | exp.And | exp.Or):
        node = node.parent
        negated ^= isinstance(node, exp.Not)
    return negated


def _outside(lower: Lower, relation: Relation, value: exp.Expr) -> tuple[Relation, exp.Expr]:
    """What stands before IN, by names that no table of the query behind it has: there it would be taken for columns of that query."""
    names = {visible.column: visible for visible in relation.columns if visible.table == _OUTSIDE}
    known = len(names)

    def one(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node.copy() if isinstance(node, exp.Select) else node
        column = relation.find(node).column
        visible = names.setdefault(column, Visible(f"{_OUTSIDE}{len(names)}", _OUTSIDE, column))
        return column_of(visible.table, visible.name)

    with lower.script.at(value):
        made = relation.dotted(value).transform(one)
    return replace(relation, columns=(*relation.columns, *list(names.values())[known:])), made


def _is_test(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def _some(query: exp.Select) -> exp.Expr:
    """(SELECT count(*) ...) > 0"""
    made = query.copy()
    made.set("expressions", [exp.Anonymous(this=built_in("count"), expressions=[exp.Star()])])
    return exp.GT(this=exp.Subquery(this=made), expression=exp.Literal.number(0))


def _among(lower: Lower, test: exp.In, value: exp.Expr, *, negated: bool) -> exp.Expr:
    """As in Spark IN is true or false here, and NOT IN true where each row differs for sure. negated: IN behind NOT."""
    query = _query(lower, test, test.args["query"])
    if len(query.expressions) != 1 or isinstance(value, exp.Tuple) or query.expressions[0].is_star:
        lower.script.fail(test, "IN inside an expression takes one value and a SELECT of one column; write EXISTS with a WHERE")
    sources = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or ())] if query.args.get("from_") else []
    if value.find(exp.Column) is not None and not all(isinstance(source, exp.Table) for source in sources):
        lower.script.fail(
            test, "IN inside an expression takes a SELECT from streams by their names; name the query with WITH or a view before"
        )
    item = query.expressions[0].unalias()
    equal, empty = query.copy(), query.copy()
    equal.where(exp.EQ(this=item.copy(), expression=value.copy()), copy=False)
    if not negated:
        return _some(equal)
    empty.where(exp.Is(this=item.copy(), expression=exp.Null()), copy=False)
    nothing = exp.And(this=exp.Is(this=value.copy(), expression=exp.Null()), expression=_some(query))
    return exp.or_(_some(equal), _some(empty), nothing)


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


def check_may_be_empty(lower: Lower, query: exp.Expr) -> None:
    """Refuse EXISTS of a query that has a row whatever there is."""
    found = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(found, exp.Select) and _is_grouped(found) and not any(map(found.args.get, ("group", "having", "limit", "offset"))):
        lower.script.fail(
            query, "an aggregate without GROUP BY is one row, of no rows, too, so EXISTS is true and NOT EXISTS false; leave it out, or "
            "SELECT the rows themselves"
        )  # fmt: skip


def _is_grouped(query: exp.Select) -> bool:
    return any(map(is_aggregated, query.expressions))


__all__ = ["as_counts", "check_may_be_empty"]
