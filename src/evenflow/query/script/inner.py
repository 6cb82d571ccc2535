"""What a query inside a condition says of the query around it: which of its conditions are about both, and which of these are equalities.

Such a query is joined. What it says of the rows of the query around it becomes the join's condition, and the rest is a query by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from evenflow.query.expression import compile_expression
from evenflow.query.script.join import conjuncts
from evenflow.query.script.lowering import Lower, Tables
from evenflow.query.script.relation import Relation, own_column
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.types import name_of


@dataclass(frozen=True, slots=True)
class Equal:
    """Expressions that have to be equal, one of the query around it and one of its own. nulls: nulls equal each other, `<=>`."""

    around: exp.Expr
    own: exp.Expr
    nulls: bool

    def of(self, relation: Relation, column: exp.Expr) -> exp.Expr:
        """The equality, in the join, with a column of the query's result. relation: of the query around it."""
        return (exp.NullSafeEQ if self.nulls else exp.EQ)(this=outer(relation, self.around), expression=column)


@dataclass(frozen=True, slots=True)
class Parted:
    """query: without the conditions that are about both. others: conditions about both that are no equalities."""

    query: exp.Select
    equal: list[Equal] = field(default_factory=list)
    others: list[exp.Expr] = field(default_factory=list)


def parted(lower: Lower, query: exp.Select, around: Relation, tables: Tables) -> Parted:
    """Take the WHERE of a query apart. Columns are its own if it has one of that name, as in Spark."""
    own = _columns(lower, query, tables)
    found = Parted(query.copy())
    where = found.query.args.get("where")
    if own is None or where is None:
        return found
    kept = []
    for part in conjuncts(where.this):
        if not _of_around(part, own, around):
            kept.append(part)
            continue
        sides: list[exp.Expr] = [part.this, part.expression] if isinstance(part, exp.EQ | exp.NullSafeEQ) else []
        about = [(bool(_of_around(side, own, around)), _has_own(side, own)) for side in sides]
        if about == [(True, False), (False, True)]:
            found.equal.append(Equal(sides[0], sides[1], isinstance(part, exp.NullSafeEQ)))
        elif about == [(False, True), (True, False)]:
            found.equal.append(Equal(sides[1], sides[0], isinstance(part, exp.NullSafeEQ)))
        else:
            found.others.append(part)
    found.query.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
    return found


def own_columns(lower: Lower, query: exp.Select, parts: Sequence[exp.Expr], tables: Tables) -> list[exp.Column]:
    """The columns of the query's own in some conditions, each once."""
    own = _columns(lower, query, tables)
    assert own is not None, "there are conditions about both"
    return list(dict.fromkeys(column for part in parts for column in part.find_all(exp.Column) if own.matches(column)))


def about_around(lower: Lower, query: exp.Select, tree: exp.Expr, around: Relation, tables: Tables) -> bool:
    """Whether an expression of the query is about the query around it."""
    own = _columns(lower, query, tables)
    return own is not None and bool(_of_around(tree, own, around))


def named(tree: exp.Expr, names: Mapping[exp.Column, exp.Column]) -> exp.Expr:
    """The expression with other columns in the place of some."""
    return tree.copy().transform(lambda node: names[node].copy() if isinstance(node, exp.Column) and node in names else node)


def outer(relation: Relation, tree: exp.Expr) -> exp.Expr:
    """An expression of the query around it, its columns with the names of their tables."""

    def with_table(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table:
            return node
        found = relation.find(node)
        return exp.column(found.name, table=found.table or None, quoted=True)

    return tree.copy().transform(with_table)


def column_of(table: str, name: str) -> exp.Column:
    """table.name"""
    made = own_column(name)
    made.set("table", exp.to_identifier(table, quoted=True))
    return made


def no_values(lower: Lower, query: exp.Select, tables: Tables) -> Callable[[exp.Expr], exp.Expr]:
    """Makes the empty list of the values of an expression over the query's columns: of their type, if what it reads has a name."""

    def made(value: exp.Expr) -> exp.Expr:
        empty = exp.Array(expressions=[])
        read = _read(lower, query, tables)
        shown = [(relation.stream.schema.field(visible.column).type, visible) for relation in read for visible in relation.columns]
        if not shown:
            return empty
        own = replace(read[0], columns=tuple(replace(visible, column=f"c{at}") for at, (_, visible) in enumerate(shown)))
        schema = pa.schema([(f"c{at}", type_) for at, (type_, _) in enumerate(shown)])
        with lower.script.at(value):
            type_ = compile_expression(to_sql(own.rewritten(own.dotted(value))), schema).type
        return exp.Cast(this=empty, to=exp.DataType.build(name_of(pa.list_(type_)), dialect="spark"))

    return made


def _columns(lower: Lower, query: exp.Select, tables: Tables) -> Relation | None:
    """The columns of all that the query reads, if it reads what has a name; else None, and it cannot be about the query around it."""
    read = _read(lower, query, tables)
    return replace(read[0], columns=tuple(visible for relation in read for visible in relation.columns)) if read else None


def _read(lower: Lower, query: exp.Select, tables: Tables) -> list[Relation]:
    """What the query reads, if all of it has names; else nothing."""
    from_ = query.args.get("from_")
    items = [] if from_ is None else [from_.this, *(join.this for join in query.args.get("joins") or ())]
    return [lower.table(item.copy(), tables) for item in items] if all(isinstance(item, exp.Table) for item in items) else []


def _of_around(tree: exp.Expr, own: Relation, around: Relation) -> list[exp.Column]:
    return [column for column in tree.find_all(exp.Column) if not own.matches(column) and around.matches(column)]


def _has_own(tree: exp.Expr, own: Relation) -> bool:
    return any(own.matches(column) for column in tree.find_all(exp.Column))


__all__ = ["Parted", "about_around", "column_of", "named", "no_values", "outer", "own_columns", "parted"]
