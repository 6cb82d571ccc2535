"""IN (SELECT ...) and EXISTS (SELECT ...) of WHERE as joins: a left semi join, NOT EXISTS a left anti join.

What the inner WHERE says of columns of the outer query becomes part of the join, as the bounds in time must, without which two streams
cannot be joined so.
"""

from __future__ import annotations

from sqlglot import exp

from evenflow.query.script.join import conjuncts, joined
from evenflow.query.script.lowering import Lower, Tables, is_aggregated
from evenflow.query.script.relation import Relation

_PLAIN = frozenset({"expressions", "from_", "where", "distinct", "kind", "limit"})


def among(lower: Lower, relation: Relation, tables: Tables, pending: list[exp.Expr]) -> Relation:
    """The relation with the rows that such conditions leave. pending: conditions of WHERE, without those afterwards."""
    for part in list(pending):
        bare = part.unnest()
        kind = "ANTI" if isinstance(bare, exp.Not) else "SEMI"
        test = bare.this.unnest() if isinstance(bare, exp.Not) else bare
        if not isinstance(test, exp.Exists) and not (isinstance(test, exp.In) and test.args.get("query") is not None):
            continue
        if isinstance(test, exp.In) and kind == "ANTI":
            lower.script.fail(part, "NOT IN (SELECT ...) is null for all rows where the SELECT has a null; write NOT EXISTS (SELECT ...)")
        pending[:] = [each for each in pending if each is not part]
        relation = _joined(lower, relation, test, kind, tables)
    return relation


def _joined(lower: Lower, relation: Relation, test: exp.Expr, kind: str, tables: Tables) -> Relation:
    query = test.args["query"] if isinstance(test, exp.In) else test.this
    inner = query.this if isinstance(query, exp.Subquery) else query
    word = "IN" if isinstance(test, exp.In) else "EXISTS"
    if not isinstance(inner, exp.Select) or any(value and clause not in _PLAIN for clause, value in inner.args.items()):
        lower.script.fail(test, f"{word} takes a SELECT with FROM and WHERE here; name another query with WITH or a view before")
    if (limit := inner.args.get("limit")) is not None and not (word == "EXISTS" and _at_least_one(limit.expression)):
        lower.script.fail(test, f"{word} does not take a SELECT with LIMIT: which rows those are would change with every row; leave it out")
    if any(is_aggregated(item) for item in inner.expressions):
        lower.script.fail(test, f"{word} takes a SELECT without aggregates here; name another query with WITH or a view before")
    source = inner.args["from_"].this if inner.args.get("from_") is not None else None
    if not isinstance(source, exp.Table):
        lower.script.fail(test, f"{word} takes a SELECT from one stream by its name; name another query with WITH or a view before")
    own = lower.table(source.copy(), tables)

    def named(tree: exp.Expr) -> exp.Expr:
        """Columns of the inner query come first, as in Spark."""
        return tree.copy().transform(
            lambda node: exp.column(node.this.copy(), table=own.columns[0].table) if isinstance(node, exp.Column) and not node.table
            and own.matches(node) else node
        )  # fmt: skip

    where = inner.args.get("where")
    parts = [] if where is None else [named(part) for part in conjuncts(where.this)]
    if isinstance(test, exp.In):
        if len(inner.expressions) != 1 or isinstance(inner.expressions[0], exp.Star):
            lower.script.fail(test, "IN takes a SELECT of one column")
        parts.insert(0, exp.EQ(this=_outer(relation, test.this), expression=named(inner.expressions[0].unalias())))
    if not parts:
        lower.script.fail(test, "EXISTS needs a WHERE that says which columns are equal")
    join = exp.Join(this=source.copy(), side="LEFT", kind=kind, on=exp.and_(*parts, copy=False))
    with lower.script.at(test):
        return joined(lower, relation, join, lower.table(join.this, tables), [])


def _at_least_one(count: exp.Expr) -> bool:
    return isinstance(count, exp.Literal) and not count.is_string and count.this.isdecimal() and int(count.this) > 0


def _outer(relation: Relation, tree: exp.Expr) -> exp.Expr:
    """An expression of the outer query, its columns with the names of their tables."""

    def named(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table:
            return node
        found = relation.find(node)
        return exp.column(found.name, table=found.table or None, quoted=True)

    return tree.copy().transform(named)
