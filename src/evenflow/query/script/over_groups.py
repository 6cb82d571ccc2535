"""Functions OVER the groups of a query, `rank() OVER (ORDER BY sum(price) DESC)` beside GROUP BY, as a query around the groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from evenflow.query.script.lowering import is_aggregate, is_aggregated
from evenflow.query.script.qualify import named_item
from evenflow.query.script.relation import own_column
from evenflow.query.script.sets import by_all


def without_groups(tree: exp.Select) -> exp.Select:
    """The query with its groups, HAVING too, as a query in FROM; the tree itself if nothing is OVER their rows.

    A star is left as it is, and refused with the groups.
    """
    group, items = tree.args.get("group"), [named_item(item) for item in tree.expressions]
    over = [item for item in items if item.find(exp.Window)]
    grouped = group is not None or tree.args.get("having") is not None or any(map(is_aggregated, items))
    if not over or not grouped or any(item.is_star for item in items):
        return tree
    inner = tree.copy()
    if group is not None and group.args.get("all"):
        named = by_all(item.unalias().copy() for item in items)
        inner.set("group", named if named.expressions else None)
    for clause in ("distinct", "with_"):  # What WITH names is known already.
        inner.set(clause, None)
    keys = _keys(inner, items)
    kept = [item for item in items if not item.find(exp.Window)]
    hidden: list[exp.Expr] = []
    shown: list[exp.Expr] = []
    for item in items:
        made = item.copy()
        for node in list(_leaves(made.unalias(), keys)) if item.find(exp.Window) else ():
            found = next((each.alias_or_name for each in (*kept, *hidden) if each.unalias() == node), None)
            if found is None:
                found = f"_group{len(hidden)}"
                hidden.append(exp.Alias(this=node.copy(), alias=exp.to_identifier(found, quoted=True)))
            node.replace(own_column(found, node))
        shown.append(made if item.find(exp.Window) else own_column(item.alias_or_name, item))
    inner.set("expressions", [*(item.copy() for item in kept), *hidden] or [exp.alias_(exp.Literal.number(1), "_group0", quoted=True)])
    outer = exp.Select(expressions=shown, distinct=tree.args.get("distinct"))
    outer.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_groups")))))
    return outer


def _keys(inner: exp.Select, items: Sequence[exp.Expr]) -> list[exp.Expr]:
    """What the groups are by, and the items that its names mean. Numbers of items are written out."""
    group = inner.args.get("group")
    for part in list(group.expressions) if group is not None else ():
        if isinstance(part, exp.Literal) and not part.is_string and part.this.isdigit() and 0 < int(part.this) <= len(items):
            part.replace(items[int(part.this) - 1].unalias().copy())
    keys = [key for part in (group.iter_expressions() if group is not None else ()) for key in _each(part)]
    names = {key.name.lower() for key in keys if isinstance(key, exp.Column) and not key.table}
    return [*keys, *(item.unalias() for item in items if item.alias_or_name.lower() in names)]


def _each(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The keys in one or in sets of them."""
    if isinstance(tree, exp.Tuple | exp.Paren | exp.Rollup | exp.Cube | exp.GroupingSets):
        for part in tree.iter_expressions():
            yield from _each(part)
    else:
        yield tree


def _leaves(tree: exp.Expr, keys: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """What of an expression is of a group: keys, aggregates and columns, and none that is the function OVER rows itself."""
    if isinstance(tree, exp.Window):
        function = tree.this
        while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            if isinstance(function, exp.Filter):
                yield from _leaves(function.expression, keys)
            function = function.this
        parts = [*function.iter_expressions(), *(part for part in tree.iter_expressions() if part is not tree.this)]
    elif tree in keys or isinstance(tree, exp.Column | exp.Filter) or is_aggregate(tree) or _is_of_sets(tree):
        yield tree
        return
    else:
        parts = [] if isinstance(tree, exp.Subquery | exp.Select) else list(tree.iter_expressions())
    for part in parts:
        yield from _leaves(part, keys)


def _is_of_sets(tree: exp.Expr) -> bool:
    """Whether it says which keys a group is without, of ROLLUP and the like."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in ("grouping", "grouping_id")


__all__ = ["without_groups"]
