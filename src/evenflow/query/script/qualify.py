"""QUALIFY as the WHERE of a query around it, which has each function OVER rows as a column.

Spark and Snowflake evaluate it behind HAVING and before DISTINCT and ORDER BY, so these go to the query around.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from evenflow.query.script.lowering import Lower, is_aggregate
from evenflow.query.script.relation import Relation, is_column, own_column
from evenflow.query.sql.titles import title_of

HIDDEN: Final = "_qualify"
"""How columns begin that only the condition reads."""
_BY_NAME: Final = "qualified_by"


def without_qualify(lower: Lower, tree: exp.Select) -> exp.Select:
    """The query with its QUALIFY as a WHERE of a query around it; the tree itself if it has none."""
    qualify = tree.args.get("qualify")
    if qualify is None:
        return tree
    inner = tree.copy()
    if not any(part.find(exp.Window) for part in (qualify, *inner.expressions)):
        lower.script.fail(qualify.this, "QUALIFY without a function OVER (...), there or among the columns; write the condition in WHERE")
    condition = inner.args["qualify"].this
    for clause in ("qualify", "distinct", "with_"):  # What WITH names is known already.
        inner.set(clause, None)
    items = [named_item(item) for item in inner.expressions]
    hidden: list[exp.Alias] = []
    holder = exp.Paren(this=condition)
    by_name: list[exp.Column] = inner.meta.setdefault(_BY_NAME, [])
    for leaf in list(_leaves(holder)):
        node = leaf if is_column(leaf) else _written_out(leaf, items, by_name)
        name = _name_of(node, items, by_name)
        if name is None:
            name = next((alias.alias for alias in hidden if alias.this == node), None)
        if name is None:
            name = f"{HIDDEN}{len(hidden)}"
            hidden.append(exp.Alias(this=node.copy(), alias=exp.to_identifier(name, quoted=True)))
        leaf.replace(own_column(name, leaf))
    inner.set("expressions", [*items, *hidden])
    made = exp.Select(expressions=_shown(items, hidden), distinct=tree.args.get("distinct"))
    made.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_rows")))))
    made.set("where", exp.Where(this=holder.this))
    return made


def named_item(item: exp.Expr) -> exp.Expr:
    """An item of the list with the name that it has without one."""
    if item.is_star or isinstance(item, exp.Alias | exp.Column | exp.Dot):
        return item
    return exp.alias_(item, title_of(item), quoted=True)


def _shown(items: list[exp.Expr], hidden: list[exp.Alias]) -> list[exp.Expr]:
    """The columns of the list: by their names, or, where a star stands among them, all but those of the condition."""
    if not any(item.is_star for item in items):
        return [own_column(item.alias_or_name, item) for item in items]
    return [exp.Star(except_=[exp.to_identifier(alias.alias, quoted=True) for alias in hidden] or None)]


def check_names(lower: Lower, tree: exp.Select, relation: Relation) -> None:
    """Refuse a name that is that of an expression in the list and of a column of FROM: systems differ in which they take. tree: the query
    inside."""
    for column in tree.meta.get(_BY_NAME, ()):
        if relation.matches(column):
            lower.script.fail(column, f"{column.name!r} is a column of FROM and of the list; write the table before it, or rename one")


def _meant(node: exp.Expr, items: list[exp.Expr], by_name: list[exp.Column]) -> exp.Expr | None:
    """The item of the list whose name a column is. by_name: gets the column if it may be another one, too."""
    if not is_column(node) or node.table:
        return None
    meant = next((item for item in items if not item.is_star and item.alias_or_name.lower() == node.name.lower()), None)
    if meant is not None and not (is_column(meant.unalias()) and meant.unalias().name.lower() == node.name.lower()):
        by_name.append(node.copy())
    return meant


def _written_out(node: exp.Expr, items: list[exp.Expr], by_name: list[exp.Column]) -> exp.Expr:
    """A function OVER rows with what names of the list stand for, as in Spark."""

    def one(part: exp.Expr) -> exp.Expr:
        meant = _meant(part, items, by_name)
        return part if meant is None or meant.find(exp.Window) else meant.unalias().copy()

    return node.copy().transform(one)


def _name_of(node: exp.Expr, items: list[exp.Expr], by_name: list[exp.Column]) -> str | None:
    """The name of the item of the list that is meant: by its name, or because it is the same expression."""
    meant = _meant(node, items, by_name)
    all_of_from = any(isinstance(item, exp.Star) and not item.args.get("except_") for item in items)
    if meant is None and is_column(node) and not node.table and all_of_from:
        return node.name
    meant = meant or next((item for item in items if not item.is_star and item.unalias() == node), None)
    return None if meant is None else meant.alias_or_name


def _leaves(tree: exp.Expr) -> Iterator[exp.Expr]:
    """What the rows must have a column for: functions OVER rows and aggregates, whole, and columns outside these and of no query inside."""
    if isinstance(tree, exp.Window | exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.Column) or is_aggregate(tree):
        yield tree
    elif not isinstance(tree, exp.Subquery | exp.Select):
        for child in list(tree.iter_expressions()):
            yield from _leaves(child)


__all__ = ["HIDDEN", "check_names", "named_item", "without_qualify"]
