"""Two queries as one: UNION, INTERSECT and EXCEPT, with ALL and without; and the distinct rows of what changes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from evenflow.query.alike import draw_alike, whole
from evenflow.query.changed_pairs import Alike
from evenflow.query.changing import as_changes
from evenflow.query.script.lateral import is_generator
from evenflow.query.script.lowering import Item, Lower, Tables
from evenflow.query.script.relation import Relation, free_name, own_column
from evenflow.query.sql.types import common, name_of
from evenflow.query.user.scope import built_in
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import quoted

_WORDS: Final[dict[type[exp.SetOperation], str]] = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}
_ALL: Final[dict[Alike, Alike]] = {"both": "both all", "first": "first all"}
_ORDERED: Final = "say it of the query around, in complete mode"


def united(lower: Lower, tree: exp.SetOperation, tables: Tables) -> Relation:
    """What the two queries give together."""
    every = not tree.args.get("distinct", True)
    word = _WORDS[type(tree)] + " ALL" * every
    if tree.args.get("by_name"):
        lower.script.fail(tree, "BY NAME is not available; list the columns of both sides in the same order")
    for clause in ("order", "limit"):
        if tree.args.get(clause):
            lower.script.fail(tree.args[clause], f"{clause.upper()} of {word} is not available; {_ORDERED}")
    if not isinstance(tree, exp.Union) and not lower.changes:
        remedy = "use changelog or complete mode, since its rows come and go" + ("" if every else ", or a join with EXISTS")
        lower.script.fail(tree, f"{word} is not available here; {remedy}")
    first, second = _sides(lower, tree, word, tables)
    with lower.script.at(tree.expression):
        if not isinstance(tree, exp.Union):
            how: Alike = "both" if isinstance(tree, exp.Intersect) else "first"
            return Relation(draw_alike(first.stream, second.stream, _ALL[how] if every else how), first.columns, running=True)
        one, other = first.stream, second.stream
        if is_changelog(one.schema) != is_changelog(other.schema):
            one, other = as_changes(one), as_changes(other)
        relation = Relation(one.union(other), first.columns, running=first.running or second.running)
    return relation if every else distinct(lower, relation, tree)


def distinct(lower: Lower, relation: Relation, where: exp.Expr) -> Relation:
    """Each row once. Of what changes, as long as it is there at least once."""
    time = relation.stream.event_time
    if lower.mode == "complete" and any(visible.column == time for visible in relation.columns):
        relation = relation.where(as_changes(relation.stream))  # No row is late: those that were there are kept, whatever their time is.
    if not is_changelog(relation.stream.schema):
        lower.check_final(relation, where, "SELECT DISTINCT or UNION")
        with lower.script.at(where):
            zeros = {field.name: whole(field) for field in relation.stream.schema if pa.types.is_floating(field.type)}
            stream = relation.stream.with_columns(zeros) if zeros else relation.stream
            return relation.where(stream.drop_duplicates())
    names = list(dict.fromkeys(visible.column for visible in relation.columns))
    with lower.script.at(where):
        times = free_name("_times", names)
        stream = relation.stream.group_by(*names).agg(f"{built_in('count')}(*) as {quoted(times)}", mode="changelog")
    made = lower.project(Relation(stream, (), running=True), [(v.name, own_column(v.column)) for v in relation.columns])
    return Relation(made.stream, made.columns, running=True)


def _sides(lower: Lower, tree: exp.SetOperation, word: str, tables: Tables) -> tuple[Relation, Relation]:
    """Both queries with the first one's names and the types in which they meet."""
    left, nulls = _with_nulls(lower, tree.this, tables)
    right, others = _with_nulls(lower, _with_names(tree.expression), tables)
    if len(left.columns) != len(right.columns):
        message = f"{word} of {len(left.columns)} and {len(right.columns)} columns; select as many on both sides"
        lower.script.fail(tree.expression, message)
    sides: list[list[Item]] = [[], []]
    with lower.script.at(tree.expression):
        for at, (a, b) in enumerate(zip(left.columns, right.columns, strict=True)):
            types = left.stream.schema.field(a.column).type, right.stream.schema.field(b.column).type
            if at in nulls and at in others:
                lower.script.fail(tree.expression, f"column {a.name!r} of {word} is NULL on both sides; cast one, CAST(NULL AS string)")
            type_ = types[1] if at in nulls else types[0] if at in others else common(types, f"column {a.name!r} of {word}")
            for side, visible, given, empty in zip(sides, (a, b), types, (nulls, others), strict=True):
                side.append((a.name, _cast(exp.Null(), type_) if at in empty else _as(visible.column, given, type_)))
        first, second = (lower.project(relation, items) for relation, items in zip((left, right), sides, strict=True))
    return first, second


def _with_names(query: exp.Expr) -> exp.Expr:
    """The second query with a name for each column that has none: its names are not those of the result, so any will do."""
    if not isinstance(query.unnest(), exp.Select):
        return query
    query = query.copy()
    select = query.unnest()
    for at, item in enumerate(select.expressions):
        if not isinstance(item, exp.Alias | exp.Aliases | exp.Column | exp.Dot) and not item.is_star and not is_generator(item):
            select.expressions[at] = exp.alias_(item, f"_column{at}", quoted=True)
    return query


def _with_nulls(lower: Lower, query: exp.Expr, tables: Tables) -> tuple[Relation, frozenset[int]]:
    """The relation of a query, and which of its columns are NULL and no more: these are of the type of the other query's."""
    select = query.unnest()
    items = select.expressions if isinstance(select, exp.Select) and not any(item.is_star for item in select.expressions) else []
    empty = frozenset(at for at, item in enumerate(items) if isinstance(item.unalias(), exp.Null))
    if empty:
        query = query.copy()
        for at in empty:
            item = query.unnest().expressions[at]
            query.unnest().expressions[at] = exp.alias_(exp.cast(exp.Null(), "boolean"), item.alias or f"NULL{at}", quoted=True)
    return lower.query(query, tables), empty


def _as(column: str, given: pa.DataType, wanted: pa.DataType) -> exp.Expr:
    """The column, cast if it must be."""
    own = own_column(column)
    return own if given == wanted else _cast(own, wanted)


def _cast(tree: exp.Expr, wanted: pa.DataType) -> exp.Cast:
    return exp.Cast(this=tree, to=exp.DataType.build(name_of(wanted), dialect="spark"))


__all__ = ["distinct", "united"]
