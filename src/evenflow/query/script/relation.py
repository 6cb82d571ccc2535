"""What a table is while a statement is turned into boxes: a stream, and the names by which SQL knows its columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeGuard

from sqlglot import exp

from evenflow.errors import ExpressionError, UnknownColumn
from evenflow.query.sql.parser import dotted, to_sql
from evenflow.stream.change import is_changelog

if TYPE_CHECKING:
    from evenflow.query.builder import Stream


UNSEEN: Final = "_query"
"""How tables begin whose columns * does not stand for: queries inside expressions."""


@dataclass(frozen=True, slots=True)
class Visible:
    """A column as SQL sees it. name: as it was written first. table: its qualifier, or "". column: what the stream calls it.

    qualified: it is only meant behind its table's name, `t.k` and `t.*`: a column of USING of the side whose one is not put out.
    """

    name: str
    table: str
    column: str
    qualified: bool = False


@dataclass(frozen=True, slots=True)
class Windows:
    """Of rows that are results of time windows: the stream's columns with the bounds, start "" if it was not kept. Lengths in
    microseconds; slide_us 0: sessions, which have no fixed length. from_us: windows begin at multiples of slide_us plus this."""

    start: str
    end: str
    size_us: int
    slide_us: int
    from_us: int = 0


@dataclass(frozen=True, slots=True)
class Relation:
    """running: rows are states so far, each replacing the one before of its group: the result of an aggregate without a window.

    identity: columns in which a state and the one that replaces it are equal, if all states are there; else None. until: columns of
    times that the event time of a row is never above, so that no row of a moment there is to come when the watermark has passed it.
    """

    stream: Stream
    columns: tuple[Visible, ...]
    windows: Windows | None = None
    running: bool = False
    identity: tuple[str, ...] | None = None
    until: tuple[str, ...] = ()

    @staticmethod
    def of(stream: Stream, table: str = "") -> Relation:
        """All columns of a stream, by their own names."""
        return Relation(stream, tuple(Visible(name, table, name) for name in stream.columns), running=is_changelog(stream.schema))

    def called(self, table: str) -> Relation:
        """The same behind an alias."""
        return replace(self, columns=tuple(replace(column, table=table) for column in self.columns if not column.qualified))

    def where(self, stream: Stream) -> Relation:
        """The same columns of another stream."""
        return replace(self, stream=stream)

    # ------------------------------------------------ names

    def matches(self, column: exp.Column) -> list[Visible]:
        """What a column of the text may mean, whatever the case of its letters."""
        name, table = column.name.lower(), column.table.lower()
        if column.args.get("db") is not None:
            return []
        return [v for v in self.columns if v.name.lower() == name and (v.table.lower() == table if table else not v.qualified)]

    def find(self, column: exp.Column) -> Visible:
        """The one column that is meant. Raises UnknownColumn, or ExpressionError if there are several."""
        found = self.matches(column)
        if len(found) == 1:
            return found[0]
        if found:
            raise ExpressionError(f"column {column.name!r} is ambiguous: write {' or '.join(f'{v.table}.{v.name}' for v in found)}")
        names = [f"{v.table}.{v.name}" if column.table and v.table else v.name for v in self.columns]
        near = difflib.get_close_matches(to_sql(column).lower(), [name.lower() for name in names], n=1)
        hint = next((f" (did you mean {name!r}?)" for name in names if near and name.lower() == near[0]), "")
        raise UnknownColumn(f"there is no column {to_sql(column)!r}{hint}; the columns are {', '.join(dict.fromkeys(names)) or '(none)'}")

    def dotted(self, tree: exp.Expr) -> exp.Expr:
        """The expression in which `a.b` is a field wherever `a` is no table with a column `b`, but a column. The parser cannot tell."""

        def field(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or not node.table or isinstance(node.this, exp.Star) or self.matches(node):
                return node
            names = [part.name for part in node.parts]
            for table, owner, fields in ((names[0], names[1], names[2:]), ("", names[0], names[1:])):
                column = exp.column(owner, table=table or None, quoted=True)
                if fields and self.matches(column):
                    column.this.meta.update(next((part.meta for part in node.parts if part.meta), {}))
                    return dotted(column, fields)
            return node

        return tree.transform(field)

    def rewritten(self, tree: exp.Expr) -> exp.Expr:
        """The expression over the stream's own column names. Raises as `find`."""

        def own(node: exp.Expr) -> exp.Expr:
            return own_column(self.find(node).column, node) if isinstance(node, exp.Column) else node

        return tree.copy().transform(own)

    def owners(self, tree: exp.Expr) -> set[str]:
        """Tables that the columns of an expression belong to."""
        return {self.find(column).table for column in tree.find_all(exp.Column)}

    def expanded(self, table: str = "") -> list[Visible]:
        """What * or table.* stands for. Of a table, its columns of USING come first, as in Spark."""
        seen = [v for v in self.columns if not v.table.startswith(UNSEEN)]
        if not table:
            return [v for v in seen if not v.qualified]
        return sorted((v for v in seen if v.table.lower() == table.lower()), key=lambda v: not v.qualified)


def own_column(name: str, where: exp.Expr | None = None) -> exp.Column:
    """A column of a stream, as a tree, with the place in the text of what it stands for."""
    column = exp.column(name, quoted=True)
    place = next((node.meta for node in where.walk() if "start" in node.meta), None) if where is not None else None
    if place is not None:
        column.this.meta.update(place)
    return column


def is_column(tree: exp.Expr) -> TypeGuard[exp.Column]:
    """Whether an expression is a column and nothing else."""
    return isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star)


def free_name(stem: str, taken: Iterable[str]) -> str:
    """`stem`, or the first of `stem_2`, `stem_3`, ... that is not taken."""
    used = {name.lower() for name in taken}
    name, number = stem, 1
    while name.lower() in used:
        number += 1
        name = f"{stem}_{number}"
    return name


def computed(relation: Relation, made: Sequence[tuple[str, exp.Expr]]) -> Relation:
    """The same with further columns that SQL cannot see, computed from the stream's own."""
    if not made:
        return relation
    return relation.where(relation.stream.with_columns({name: to_sql(tree) for name, tree in made}))
