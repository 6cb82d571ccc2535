"""Queries of one value inside expressions: `price > (SELECT avg(price) FROM bids)`, also about the row around them, and in HAVING.

Each becomes a left join with the one row that it has, by what it says to be equal. Where there is no row yet, its aggregates are what they
are of no rows: null, and 0 for counts. The value changes while rows come, so these are for changelog and complete mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlglot import exp

from evenflow.query.script.counted import as_counts
from evenflow.query.script.inner import Parted, column_of, no_values, parted
from evenflow.query.script.join import joined
from evenflow.query.script.lowering import Lower, Tables, is_aggregate, is_aggregated
from evenflow.query.script.relation import UNSEEN, Relation
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.titles import title_of

_PARTS: Final = frozenset({"expressions", "from_", "joins", "where", "with_", "kind"})
_COUNTS: Final = ("count", "approx_count_distinct")
_STRICT: Final = (exp.Paren, exp.Neg, exp.Cast, exp.Dot, exp.Add, exp.Sub, exp.Mul, exp.Div)
_OF_NOTHING: Final = ("_bitmap", "_bitmap_or", "_bitmap_and", "_top_k")
"""Of what aggregates with all their values are made, those that are not null of none."""


def with_scalars(lower: Lower, tree: exp.Select, relation: Relation, pending: list[exp.Expr], tables: Tables) -> Relation:
    """The relation with a column for each such query in WHERE and, where there are no groups, in the list of columns, in whose place it is
    written. pending: conditions of WHERE."""
    grouped = tree.args.get("group") is not None or any(is_aggregated(item) for item in tree.expressions)
    for places in (pending, [] if grouped else tree.expressions):
        for at, given in enumerate(list(places)):
            said = title_of(given) if places is not pending and given.find(exp.Select) else ""
            place, relation = as_counts(lower, given, relation)
            for query in list(_scalars(place)):
                relation, value = _joined(lower, relation, query, tables)
                if query is place:
                    place = value
                else:
                    query.replace(value)
            unnamed = said and not isinstance(place, exp.Alias)
            places[at] = exp.alias_(place, said, quoted=True) if unnamed else place
    return relation


def without_having(tree: exp.Select) -> exp.Select:
    """A HAVING with queries inside as a WHERE of a query around it, where DISTINCT is, too; the tree itself if there is none.

    The name of a column of the result stands for what that column is, but where groups are by a column of that name.
    """
    having = tree.args.get("having")
    if having is None or not _has_query(having):
        return tree
    inner = tree.copy()
    condition, distinct = inner.args["having"].this, inner.args.get("distinct")
    for clause in ("having", "with_", "distinct"):
        inner.set(clause, None)
    keys = {key.name.lower() for key in (inner.args.get("group") or exp.Group()).expressions if isinstance(key, exp.Column)}
    shown = {item.alias.lower(): item.this for item in inner.expressions if isinstance(item, exp.Alias)}
    items = [
        item if isinstance(item, exp.Alias | exp.Column) else exp.alias_(item, title_of(item), quoted=True) for item in inner.expressions
    ]
    names = [item.alias_or_name for item in items]
    hidden: list[exp.Expr] = []
    holder = exp.Paren(this=condition)
    for node in list(_leaves(holder)):
        name = f"_having{len(hidden)}"
        plain = isinstance(node, exp.Column) and not node.table and node.name.lower() not in keys
        hidden.append(exp.alias_((shown.get(node.name.lower(), node) if plain else node).copy(), name, quoted=True))
        node.replace(exp.column(name, quoted=True))
    inner.set("expressions", [*items, *hidden])
    made = exp.Select(expressions=[exp.column(name, quoted=True) for name in names])
    made.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("_groups")))))
    made.set("where", exp.Where(this=holder))
    made.set("distinct", distinct)
    return made


def _scalars(tree: exp.Expr) -> Iterator[exp.Subquery]:
    """Queries in an expression that stand for a value, and not those inside them."""
    inside = exp.Subquery | exp.Select | exp.Exists | exp.In
    for node in tree.walk(prune=lambda node: isinstance(node, inside)):
        if isinstance(node, exp.Subquery):
            yield node
        elif isinstance(node, exp.In):
            for part in (node.this, *node.expressions):
                yield from _scalars(part)


def _has_query(having: exp.Having) -> bool:
    """Whether a query stands in it, for a value or behind IN or EXISTS."""
    return having.find(exp.Subquery, exp.Exists) is not None or any(each.args.get("query") is not None for each in having.find_all(exp.In))


def _leaves(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Aggregates of a condition with all that belongs to them, and columns outside these."""
    if isinstance(tree, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.Column) or is_aggregate(tree):
        yield tree
    elif not isinstance(tree, exp.Subquery | exp.Select):
        for child in list(tree.iter_expressions()):
            yield from _leaves(child)


def _joined(lower: Lower, relation: Relation, query: exp.Subquery, tables: Tables) -> tuple[Relation, exp.Expr]:
    """The relation with the query's value beside each row, and the expression that is this value."""
    script, inner = lower.script, query.this
    if not lower.changes:
        script.fail(query, "a query inside an expression has a value that changes; use changelog or complete mode, or JOIN it instead")
    if not isinstance(inner, exp.Select) or len(inner.expressions) != 1 or any(v and k not in _PARTS for k, v in inner.args.items()):
        script.fail(query, "a query inside an expression is a SELECT of one aggregate, FROM and WHERE; JOIN any other")
    item = inner.expressions[0].unalias()
    if not is_aggregated(item):
        script.fail(query, "a query inside an expression may have many rows; write an aggregate, such as max(...), or JOIN it instead")
    tables = lower.with_tables(inner, tables)
    found = parted(lower, inner, relation, tables)
    if found.others:
        script.fail(found.others[0], "a query inside an expression is about the row around it by equalities only; JOIN it instead")
    table = f"{UNSEEN}{len({v.table for v in relation.columns if v.table.startswith(UNSEEN)})}"
    value = lower.query(_one_row(found, item), tables).called(table)
    equal = [each.of(relation, column_of(table, f"_key{at}")) for at, each in enumerate(found.equal)]
    join = exp.Join(this=query.copy(), side="LEFT", on=exp.and_(*equal, copy=False) if equal else None)
    with script.at(query):
        relation = joined(lower, relation, join, value, [])
    shown: exp.Expr = column_of(table, "_value")
    nothing = of_no_rows(item.copy(), no_values(lower, inner, tables))
    if not isinstance(nothing, exp.Null):  # Else the join's own null is what it is of no rows.
        shown = exp.Case(ifs=[exp.If(this=column_of(table, "_there"), true=shown)], default=nothing)
    return relation, exp.paren(shown, copy=False)


def _one_row(found: Parted, item: exp.Expr) -> exp.Select:
    """The query with its keys, which it is grouped by, its value, and a column that says that it has a row."""
    query = found.query
    keys = [each.own for each in found.equal]
    made = [exp.alias_(key.copy(), f"_key{at}", quoted=True) for at, key in enumerate(keys)]
    there = exp.alias_(exp.true(), "_there", quoted=True)
    query.set("expressions", [*made, exp.alias_(item.copy(), "_value", quoted=True), there])
    query.set("with_", None)
    if keys:
        query.set("group", exp.Group(expressions=[key.copy() for key in dict.fromkeys(keys)]))
    return query


def of_no_rows(tree: exp.Expr, no_values: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """An expression of aggregates, as it is of no rows: they are null, counts 0 and lists empty. Null itself wherever that makes it null.
    no_values: the empty list of what an expression gives. Changes the tree."""
    if isinstance(tree, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        return of_no_rows(tree.this, no_values)
    if is_aggregate(tree):
        function = aggregate_named(tree.name)
        if function == "collect_list":
            return no_values(tree.expressions[0])
        return exp.cast(exp.Literal.number(0), "bigint") if function in _COUNTS else exp.Null()
    for name, part in list(tree.args.items()):
        if isinstance(part, exp.Expr):
            tree.set(name, of_no_rows(part, no_values))
        elif isinstance(part, list):
            tree.set(name, [of_no_rows(each, no_values) if isinstance(each, exp.Expr) else each for each in part])
    of_values = isinstance(tree, exp.Anonymous) and tree.name.startswith("_") and tree.name.lower() not in _OF_NOTHING
    strict = isinstance(tree, _STRICT) and any(isinstance(tree.args.get(side), exp.Null) for side in ("this", "expression"))
    return exp.Null() if of_values or strict else tree


__all__ = ["of_no_rows", "with_scalars", "without_having"]
