"""LATERAL (SELECT ...): a query in FROM about the rows that stand beside it.

Without FROM it is columns that are computed. With one it is joined by what its WHERE says of both. What it puts together, by an aggregate,
groups, DISTINCT or the first rows of an order, is put together for each value of what has to be equal, so its conditions about both are
equalities then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NoReturn

from sqlglot import exp

from evenflow.query.script.aliases import written_out
from evenflow.query.script.inner import Parted, about_around, column_of, named, no_values, outer, own_columns, parted
from evenflow.query.script.join import conjuncts, joined
from evenflow.query.script.lowering import Lower, Tables, is_aggregated
from evenflow.query.script.placed import number_of
from evenflow.query.script.relation import UNSEEN, Relation, Visible, computed, free_name
from evenflow.query.script.scalars import of_no_rows
from evenflow.query.script.sets import by_all
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.titles import title_of

_PARTS: Final = frozenset(
    {"expressions", "from_", "joins", "where", "with_", "kind", "group", "having", "distinct", "order", "limit", "offset"}
)


_KEY: Final = "_beside"
"""How columns begin that a query has for the join only."""


def beside(lower: Lower, left: Relation, join: exp.Join, tables: Tables, pending: list[exp.Expr]) -> Relation:
    """left JOIN LATERAL (SELECT ...) AS t. pending: conditions of WHERE; those of an inner join's ON are added to them."""
    lateral, side, on = join.this, join.side.upper(), join.args.get("on")
    inner, alias = lateral.this.unnest(), lateral.args.get("alias")
    name = alias.name if alias is not None and alias.name else free_name("_beside", [visible.table for visible in left.columns])
    if side not in ("", "LEFT") or join.kind.upper() not in ("", "INNER", "CROSS", "OUTER") or join.method or join.args.get("using"):
        lower.script.fail(join, "LATERAL stands behind a comma, JOIN, CROSS JOIN and LEFT JOIN ... ON")
    if not isinstance(inner, exp.Select) or any(value and clause not in _PARTS for clause, value in inner.args.items()):
        lower.script.fail(lateral, "LATERAL takes a SELECT with FROM, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET")
    conditions = [] if on is None or (isinstance(on, exp.Boolean) and on.this) else conjuncts(on)
    if side == "":
        pending += conditions
        conditions = []
    tables = lower.with_tables(inner, tables)
    if inner.args.get("from_") is None:
        made = _of_row(lower, left, inner, conditions, name)
    else:
        made = _of_rows(lower, left, inner, side, conditions, name, tables)
    shown = [visible for visible in made.columns if visible.table == name]
    if alias is not None and alias.columns:
        if len(alias.columns) != len(shown):
            lower.script.fail(lateral, f"{name} has {len(shown)} columns and {len(alias.columns)} names")
        names = dict(zip(shown, (each.name for each in alias.columns), strict=True))
        made = replace(made, columns=tuple(replace(v, name=names[v]) if v in names else v for v in made.columns))
    return made


def _of_row(lower: Lower, left: Relation, inner: exp.Select, conditions: Sequence[exp.Expr], name: str) -> Relation:
    """Columns computed of each row: the query has one row, whatever that says."""
    for clause in ("where", "group", "having", "distinct", "order", "limit", "offset"):
        if inner.args.get(clause):
            _refuse(lower, inner, clause.upper(), "a SELECT without FROM, which is one row")
    if conditions or any(map(is_aggregated, inner.expressions)) or any(item.is_star for item in inner.expressions):
        lower.script.fail(inner, "LATERAL without FROM computes columns of the row beside it, and joins all of them: write ON true")
    return _with_columns(lower, left, [(_name_of(item), item.unalias()) for item in inner.expressions], name)


def _of_rows(
    lower: Lower, left: Relation, inner: exp.Select, side: str, conditions: list[exp.Expr], name: str, tables: Tables
) -> Relation:  # fmt: skip
    found = parted(lower, inner, left, tables)
    query = found.query
    query.set("with_", None)
    over_both = [item for item in inner.expressions if not item.is_star and about_around(lower, inner, item, left, tables)]
    grouped = any(inner.args.get(clause) for clause in ("group", "having")) or any(map(is_aggregated, inner.expressions))
    first = inner.args.get("limit") or inner.args.get("offset")
    together = grouped or inner.args.get("distinct") or first
    if together and (found.others or over_both):
        what = found.others[0] if found.others else over_both[0]
        lower.script.fail(what, "a LATERAL query with aggregates, DISTINCT or LIMIT is about the row beside it by equalities in WHERE only")
    if inner.args.get("order") is not None and first is None:
        query.set("order", None)  # Rows that are joined are in no order.
    if grouped and not inner.args.get("group"):
        if conditions:
            lower.script.fail(conditions[0], "an aggregate has a row for each row beside it; write ON true")
        _one_row(lower, query)
        return _of_totals(lower, left, found, side, name, tables)
    if inner.args.get("distinct") and first is not None:
        _as_groups(lower, query)
        grouped = True
    keys = [each.own for each in found.equal]
    hidden = [exp.alias_(key.copy(), f"{_KEY}{at}", quoted=True) for at, key in enumerate(keys)]
    if grouped and keys:
        group = query.args.get("group") or exp.Group()
        if any(group.args.get(each) for each in ("rollup", "cube", "grouping_sets")):
            _refuse(lower, group, "ROLLUP, CUBE and GROUPING SETS", "LATERAL")
        if group.args.get("all"):
            group = by_all(item.unalias().copy() for item in inner.expressions)
        query.set("group", exp.Group(expressions=[*group.expressions, *(key.copy() for key in dict.fromkeys(keys))]))
    if first is not None:
        _first_rows(lower, query, keys)
    own = own_columns(lower, inner, [*found.others, *over_both], tables) if found.others or over_both else []
    names = {column: column_of(name, f"{_KEY}{len(hidden) + at}") for at, column in enumerate(own)}
    hidden += [exp.alias_(column.copy(), names[column].name, quoted=True) for column in own]
    there = f"{_KEY}{len(hidden)}"
    hidden.append(exp.alias_(exp.true(), there, quoted=True))
    query.set("expressions", [*(item for item in query.expressions if item not in over_both), *hidden])
    equal = [each.of(left, column_of(name, f"{_KEY}{at}")) for at, each in enumerate(found.equal)]
    on = [*equal, *(outer(left, named(part, names)) for part in found.others), *conditions]
    with lower.script.at(inner):
        rows = lower.query(query, tables).called(name)
        kind = {"side": "LEFT"} if side else {}
        made = joined(lower, left, exp.Join(this=inner.copy(), on=exp.and_(*on, copy=False) if on else None, **kind), rows, [])
    if over_both:
        some = column_of(name, there)
        items = [(_name_of(item), exp.Case(ifs=[exp.If(this=some, true=outer(left, named(item.unalias(), names)))])) for item in over_both]
        made = _with_columns(lower, made, items, name)
        order = [_name_of(item).lower() for item in inner.expressions]
        if not any(item.is_star for item in inner.expressions):
            mine = sorted(
                (v for v in made.columns if v.table == name and v.name.lower() in order), key=lambda v: order.index(v.name.lower())
            )
            made = replace(made, columns=(*(v for v in made.columns if v not in mine), *mine))
    return replace(
        made, columns=tuple(replace(v, table=UNSEEN) if v.table == name and v.name.startswith(_KEY) else v for v in made.columns)
    )


def _of_totals(lower: Lower, left: Relation, found: Parted, side: str, name: str, tables: Tables) -> Relation:
    """A row of aggregates for each row, of none, too; with HAVING only where it is true of them."""
    query, items = found.query, found.query.expressions
    having = query.args.get("having")
    if having is not None:
        items = [*items, written_out(having.this, items)]
        query.set("having", None)
    if not lower.changes:
        lower.script.fail(query, "an aggregate of what is beside a row changes; use changelog or complete mode")
    keys = [each.own for each in found.equal]
    made = [exp.alias_(key.copy(), f"{_KEY}{at}", quoted=True) for at, key in enumerate(keys)]
    made += [exp.alias_(item.unalias().copy(), f"_value{at}", quoted=True) for at, item in enumerate(items)]
    query.set("expressions", [*made, exp.alias_(exp.true(), "_there", quoted=True)])
    if keys:
        query.set("group", exp.Group(expressions=[key.copy() for key in dict.fromkeys(keys)]))
    unseen = free_name(f"{UNSEEN}beside", [visible.table for visible in left.columns])
    equal = [each.of(left, column_of(unseen, f"{_KEY}{at}")) for at, each in enumerate(found.equal)]
    with lower.script.at(query):
        rows = lower.query(query, tables).called(unseen)
        on = exp.and_(*equal, copy=False) if equal else None
        relation = joined(lower, left, exp.Join(this=query.copy(), side="LEFT", on=on), rows, [])
    shown: list[tuple[str, exp.Expr]] = []
    empty = no_values(lower, query, tables)
    for at, item in enumerate(items):
        there = exp.If(this=column_of(unseen, "_there"), true=column_of(unseen, f"_value{at}"))
        shown.append((_name_of(item), exp.Case(ifs=[there], default=of_no_rows(item.unalias().copy(), empty))))
    if having is not None:
        (_, true), shown = shown[-1], shown[:-1]
        if side == "":
            with lower.script.at(having):
                relation = relation.where(relation.stream.where(to_sql(lower.rewritten(relation, true))))
        else:
            shown = [(each, exp.Case(ifs=[exp.If(this=true.copy(), true=value)])) for each, value in shown]
    return _with_columns(lower, relation, shown, name)


def _first_rows(lower: Lower, query: exp.Select, keys: Sequence[exp.Expr]) -> None:
    """LIMIT and OFFSET as the first rows, or groups, of each value of what has to be equal."""
    order, limit, offset = (query.args.get(clause) for clause in ("order", "limit", "offset"))
    if order is None:
        lower.script.fail(limit or offset or query, "LIMIT of a LATERAL query takes the first rows of an order; say ORDER BY")
    most, before = number_of(lower, limit, "LIMIT"), number_of(lower, offset, "OFFSET") or 0
    parts = [part.copy() for part in order.expressions]
    for part in parts:
        part.set("this", written_out(part.this, query.expressions))
    place = exp.Window(
        this=exp.Anonymous(this="row_number"), partition_by=[key.copy() for key in keys] or None, order=exp.Order(expressions=parts)
    )  # fmt: skip
    wanted: list[exp.Expr] = [exp.LTE(this=place, expression=exp.Literal.number(before + most))] if most is not None else []
    if before:
        wanted.append(exp.GT(this=place.copy(), expression=exp.Literal.number(before)))
    query.set("qualify", exp.Qualify(this=exp.and_(*wanted, copy=False)) if wanted else None)
    for clause in ("order", "limit", "offset"):
        query.set(clause, None)


def _as_groups(lower: Lower, query: exp.Select) -> None:
    """DISTINCT in front of LIMIT: what is distinct are groups, of which the first are taken."""
    distinct, items = query.args["distinct"], query.expressions
    if distinct.args.get("on") or any(item.is_star or is_aggregated(item) for item in items) or query.args.get("group"):
        lower.script.fail(
            query, "DISTINCT with LIMIT of a LATERAL query is of columns by their names; write what is distinct as a query in its FROM"
        )
    query.set("distinct", None)
    query.set("group", exp.Group(expressions=[item.unalias().copy() for item in items]))


def _one_row(lower: Lower, query: exp.Select) -> None:
    """ORDER BY, LIMIT and OFFSET of an aggregate without groups, which is one row."""
    if number_of(lower, query.args.get("limit"), "LIMIT") == 0 or number_of(lower, query.args.get("offset"), "OFFSET"):
        lower.script.fail(query, "an aggregate without groups is one row, and this LIMIT or OFFSET leaves none")
    for clause in ("order", "limit", "offset"):
        query.set(clause, None)


def _with_columns(lower: Lower, relation: Relation, items: Sequence[tuple[str, exp.Expr]], table: str) -> Relation:
    """Further columns of a table that is computed of the relation's."""
    made: list[tuple[str, exp.Expr]] = []
    shown: list[Visible] = []
    for name, item in items:
        with lower.script.at(item):
            value = lower.rewritten(relation, relation.dotted(item))
        made.append((free_name(name, [*relation.stream.columns, *(each for each, _ in made)]), value))
        shown.append(Visible(name, table, made[-1][0]))
    with lower.script.at(items[0][1]):
        relation = computed(relation, made)
    return replace(relation, columns=(*relation.columns, *shown))


def _name_of(item: exp.Expr) -> str:
    return item.alias_or_name or title_of(item)


def _refuse(lower: Lower, where: exp.Expr, what: str, of: str) -> NoReturn:
    lower.script.fail(where, f"{what} of {of} is not available; write the query in FROM and join it")


__all__ = ["beside"]
