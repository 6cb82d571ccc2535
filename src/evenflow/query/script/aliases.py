"""Names of the list of columns in later items of the same list, `price * qty AS total, total * 0.2 AS tax`, and in ORDER BY, as in Spark.

A column of FROM goes before such a name in the list, and behind it in ORDER BY. What the name stands for is written in its place, so it
may be an aggregate or OVER rows, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from evenflow.query.script.lowering import Lower, is_aggregate
from evenflow.query.script.relation import Relation, is_column
from evenflow.query.sql.parser import dotted


def with_aliases(lower: Lower, tree: exp.Select, relation: Relation) -> None:
    """The list with what earlier items are called written out in later ones."""
    named: dict[str, list[exp.Expr]] = {}
    for at, item in enumerate(list(tree.expressions)):
        for column in list(_columns(item)) if named else ():
            name, *fields = [part.name for part in column.parts]
            meant = named.get(name.lower(), [])
            if not meant or relation.matches(column) or (fields and relation.expanded(name)):
                continue
            if relation.matches(exp.column(name, quoted=True)):  # A field of a column of FROM.
                continue
            if len(meant) > 1:
                lower.script.fail(column, f"{name!r} is the name of {len(meant)} columns of this list; rename one")
            value = dotted(exp.paren(meant[0].copy(), copy=False), fields) if fields else exp.paren(meant[0].copy(), copy=False)
            if column is item:
                tree.expressions[at] = exp.alias_(value, fields[-1] if fields else name, quoted=True)
            else:
                column.replace(value)
        now = tree.expressions[at]
        if isinstance(now, exp.Alias):
            named.setdefault(now.alias.lower(), []).append(now.this)


def _columns(tree: exp.Expr) -> Iterator[exp.Column]:
    """Columns of an expression, and none of the queries in it."""
    inside = exp.Select | exp.Subquery | exp.Column
    return (node for node in tree.walk(prune=lambda node: isinstance(node, inside)) if is_column(node))


def written_out(tree: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    """The expression without names of the list, which come first, as in Spark in ORDER BY and HAVING, but for what an aggregate is of."""
    named = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}

    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in named:
            written: exp.Expr = named[node.name.lower()].copy()
            return written
        for child in () if is_aggregate(node) else list(node.iter_expressions()):
            if (made := one(child)) is not child:
                child.replace(exp.paren(made, copy=False))
        return node

    return one(tree.copy())


__all__ = ["with_aliases", "written_out"]
