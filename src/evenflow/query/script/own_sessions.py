"""Sessions with a gap of each row's own in changelog and complete mode, where a row that comes late moves their bounds.

In append mode a session comes once, when it is over, and has an operator of its own. Where results change it is gaps and islands: rows are
in order of their time, one begins a session if it is later than all ends before it, and how many have begun is the number of the row's.
Both are functions OVER results that change (`placed`), so a row that comes between two sessions makes them one, whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

from sqlglot import exp

from evenflow.query.changing import as_changes
from evenflow.query.ranked import Place
from evenflow.query.script.lowering import Item, Lower, is_window
from evenflow.query.script.placed import drawn
from evenflow.query.script.relation import Relation, Visible, computed, free_name, is_column
from evenflow.query.sql.parser import parse, struct_call, to_sql
from evenflow.query.user.scope import built_in

_TABLE = "_over"


def is_own(tree: exp.Expr) -> TypeGuard[exp.Anonymous]:
    """Whether it is session_window with a gap that is no constant."""
    return (
        isinstance(tree, exp.Anonymous)
        and is_window(tree)
        and tree.name.lower() == "session_window"
        and not isinstance(tree.expressions[-1], exp.Literal | exp.Interval)
    )


def with_sessions(
    lower: Lower, tree: exp.Select, relation: Relation, items: Sequence[Item], meant: Callable[[exp.Expr], exp.Expr]
) -> tuple[exp.Select, Relation, list[Item]] | None:
    """The query grouped by the session's number in place of its session_window, its rows with that number, and its columns; None if it has
    no such window. meant: what an item of GROUP BY stands for."""
    group = tree.args.get("group")
    given = [meant(each) for each in group.expressions] if group is not None and lower.changes else []
    calls = [each for each in given if is_own(each)]
    if not calls or len(calls[0].expressions) != 2:
        return None
    call, keys = calls[0], [key for key in given if not is_own(key)]
    if len(calls) > 1 or any(map(is_window, keys)):
        lower.script.fail(call, "there are two windows in one GROUP BY; group by one in an inner query first")
    moment = call.expressions[0]
    if not is_column(lower.rewritten(relation, moment)):
        lower.script.fail(moment, f"session_window is over a column; compute {to_sql(moment)!r} in a query inside this one")
    relation, until, number = _numbered(lower, relation, call, [lower.rewritten(relation, key) for key in keys])
    start, end = (exp.Anonymous(this=built_in(name), expressions=[of]) for name, of in (("min", moment.copy()), ("max", until)))
    made = tree.copy()
    made.set("group", exp.Group(expressions=[*(key.copy() for key in keys), number]))
    bounds = _Bounds(call, relation, start, end)
    if (having := made.args.get("having")) is not None:
        having.set("this", bounds.put(having.this))
    return made, relation, [(name, bounds.put(item)) for name, item in items]


def _numbered(lower: Lower, relation: Relation, call: exp.Anonymous, keys: Sequence[exp.Expr]) -> tuple[Relation, exp.Column, exp.Column]:
    """The rows that are of a session, and the columns with the end of each row's own and with the session's number among its keys."""
    time, gap = (lower.rewritten(relation, each) for each in call.expressions)
    relation = relation.where(as_changes(relation.stream))
    until = free_name("_until", relation.stream.columns)
    with lower.script.at(call):
        relation = computed(relation, [(until, parse(f"_session_end({to_sql(time)}, {to_sql(gap)})"))])
        relation = relation.where(relation.stream.where(f"`{until}` > {to_sql(time)}"))
    new: list[Item] = []
    names: list[str] = []
    for key in keys:
        if not is_column(key):
            new.append((free_name(f"_of{len(new)}", relation.stream.columns), key))
        names.append(key.name if is_column(key) else new[-1][0])
    before, begins, number = (free_name(name, relation.stream.columns) for name in ("_before", "_begins", "_session"))
    by = [(time.name, False)]
    relation = drawn(lower, relation, new, names, by, [Place(before, "max", until, None, -1, False)], call)
    with lower.script.at(call):
        relation = computed(relation, [(begins, parse(f"{built_in('if')}(`{before}` IS NULL OR {to_sql(time)} > `{before}`, 1, 0)"))])
    relation = drawn(lower, relation, (), names, by, [Place(number, "sum", begins, None, 0, True)], call)
    relation = replace(relation, columns=(*relation.columns, Visible(until, _TABLE, until)))
    return relation, exp.column(until, table=_TABLE, quoted=True), exp.column(number, table=_TABLE, quoted=True)


class _Bounds:
    """What session_window and its fields are in such a query: aggregates of the session's rows."""

    def __init__(self, call: exp.Anonymous, relation: Relation, start: exp.Expr, end: exp.Expr) -> None:
        self._call, self._relation = call, relation
        self._fields = {"start": start, "end": end}

    def put(self, tree: exp.Expr) -> exp.Expr:
        return tree.copy().transform(self._one)

    def _one(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Dot) and node.this == self._call:
            return self._fields[node.expression.name.lower()].copy() if node.expression.name.lower() in self._fields else node
        column = node if is_column(node) and not self._relation.matches(node) else None
        if node == self._call or (column is not None and not column.table and column.name.lower() == "session_window"):
            fields = self._fields.items()
            return struct_call([exp.PropertyEQ(this=exp.to_identifier(name), expression=each.copy()) for name, each in fields])
        if column is not None and column.table.lower() == "session_window" and column.name.lower() in self._fields:
            return self._fields[column.name.lower()].copy()
        return node


__all__ = ["is_own", "with_sessions"]
