"""What every clause needs of the query around it: names of columns and tables, places in the text, columns put out.

Clauses take a `Lower`: they know how to ask for a query or a table inside theirs, and not how one is read (`select`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeGuard

import pyarrow as pa
from sqlglot import exp

from evenflow.query.columns import WindowTime
from evenflow.query.expression import compile_expression
from evenflow.query.script.grammar import Script
from evenflow.query.script.relation import Relation, Visible, Windows, is_column, own_column
from evenflow.query.sql.functions import aggregate_named
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.scope import aggregate_of, is_known
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import quoted

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow


Tables = Mapping[str, Relation]
"""What names in FROM may stand for, by their lower-case name."""

OutputMode = Literal["append", "update", "changelog", "complete"]
"""When windows are put out: once; whenever rows have come into them; then, as what has changed; now and then, all there ever were.

Groups without a window come whenever they have new rows, in the last two modes as windows do.
"""

Item = tuple[str, exp.Expr]
"""A column of the result: its name, and what it is."""

WINDOW_FUNCTIONS: Final = ("window", "session_window")
RANKS: Final = ("row_number", "rank", "dense_rank")


@dataclass(frozen=True)
class Lower(ABC):
    """Turns queries into boxes of one dataflow. script: for places in messages.

    named: views and queries of WITH, by the box they come from, with their place. read: boxes that some FROM has named. mode: when results
    are put out, see `OutputMode`. every: of complete mode, how often.
    """

    flow: Dataflow
    script: Script
    mode: OutputMode = "append"
    every: str | timedelta = "1 second"
    named: dict[str, tuple[str, exp.Expr]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    @property
    def changes(self) -> bool:
        """Whether results that change are changelogs on their way."""
        return self.mode in ("changelog", "complete")

    # ------------------------------------------------ queries and tables inside a clause

    @abstractmethod
    def query(self, tree: exp.Expr, tables: Tables) -> Relation:
        """The relation that a SELECT, a UNION ALL, or one in parentheses gives."""

    @abstractmethod
    def table(self, tree: exp.Expr, tables: Tables) -> Relation:
        """One item of FROM: a name, or a query in parentheses, behind its alias."""

    def with_tables(self, tree: exp.Expr, tables: Tables) -> Tables:
        """The tables, and those that the query's WITH names."""
        clause = tree.args.get("with_")
        if clause is None:
            return tables
        if clause.args.get("recursive"):
            self.script.fail(tree, "WITH RECURSIVE is not available on streams; write the queries one after the other")
        known = dict(tables)
        for part in clause.expressions:
            before = len(self.flow.network)
            relation = self.renamed(self.query(part.this, known), part.args["alias"])
            known[part.alias.lower()] = self.called(part.alias, relation, part, new=len(self.flow.network) > before)
        return known

    def called(self, name: str, relation: Relation, tree: exp.Expr, *, new: bool) -> Relation:
        """Remember that a relation has a name, by which something ought to read it. new: its last box is its own, and is called so too."""
        if new:
            relation.stream.name(self.flow.free(name))
        self.named.setdefault(relation.stream.box.name, (name, tree))
        return relation

    def renamed(self, relation: Relation, alias: exp.Expr) -> Relation:
        """The relation with the columns' names of `AS t (a, b)`, if there are any."""
        names = [column.name for column in alias.args.get("columns") or ()]
        if not names:
            return relation
        given = [visible for visible in relation.columns if not visible.qualified]
        if len(names) != len(given):
            self.script.fail(alias, f"{len(names)} names for {len(given)} columns; name each of them once")
        return replace(relation, columns=tuple(replace(v, name=name) for v, name in zip(given, names, strict=True)))

    # ------------------------------------------------ columns

    def rewritten(self, relation: Relation, tree: exp.Expr) -> exp.Expr:
        """The expression over the stream's columns. Errors have its place."""
        for node in tree.find_all(exp.Anonymous):
            if is_window(node):
                self.script.fail(node, f"{node.name}(...) makes groups; write it in GROUP BY")
        for query in tree.find_all(exp.Subquery, exp.Select):
            self.script.fail(query, "a query inside an expression is not available on streams; JOIN it instead")
        with self.script.at(tree):
            return relation.rewritten(tree)

    def filtered(self, relation: Relation, condition: exp.Expr) -> Relation:
        """The rows for which a condition of WHERE is true."""
        if is_aggregated(condition):
            self.script.fail(condition, "an aggregate cannot be in WHERE; write the condition in HAVING")
        own = to_sql(self.rewritten(relation, condition))
        with self.script.at(condition):
            # A state that is left out would not replace the one before.
            return replace(relation, stream=relation.stream.where(own), identity=None)

    def project(self, relation: Relation, items: Sequence[Item]) -> Relation:
        """Exactly these columns. items: over the stream's own columns. Event time and windows go on under their new names."""
        stream, shown = relation.stream, [name for name, _ in items]
        if is_changelog(stream.schema) and CHANGE not in shown:
            items = [*items, (CHANGE, own_column(CHANGE))]  # What a row does goes with it, unseen.
        names = [name for name, _ in items]
        plain = {item.name: name for name, item in reversed(items) if is_column(item)}
        kept = [(name, item.name) for name, item in items if is_column(item)]
        columns: list[tuple[str, str | WindowTime]] = []
        time = stream.event_time
        new_time = None if time is None else time if (time, time) in kept else plain.get(time)
        if new_time is None and time is not None and relation.windows is not None:
            new_time = plain.get(relation.windows.end)  # No row comes whose window has passed, as none comes whose time has.
        for name, item in items:
            item = _without_window_time(item, stream.schema)
            if is_window_time(item):
                columns.append((name, self._window_time(relation, item)))
                new_time = name  # What counts at that time goes by it from here on.
                continue
            with self.script.at(item):
                if not is_column(item):
                    compile_expression(to_sql(item), stream.schema)
            columns.append((name, item.name if is_column(item) else to_sql(item)))
        if names != stream.columns or len(kept) != len(items) or any(name != column for name, column in kept):
            with self.script.at(items[0][1]):
                params = {"columns": tuple(columns), **({"event_time": new_time} if new_time is not None else {})}
                stream = self.flow.add("select", params, (stream,), None, "select")
        windows = relation.windows
        if windows is not None:
            end = plain.get(windows.end)
            windows = (
                None if end is None else Windows(plain.get(windows.start, ""), end, windows.size_us, windows.slide_us, windows.from_us)
            )
        identity = relation.identity
        if identity is not None:
            identity = tuple(plain[column] for column in identity) if all(column in plain for column in identity) else None
        return Relation(stream, tuple(Visible(name, "", name) for name in shown), windows, relation.running, identity)

    def _window_time(self, relation: Relation, tree: exp.Anonymous) -> WindowTime:
        """The last microsecond of each window that the relation's rows are results of."""
        windows, given = relation.windows, tree.expressions
        if len(given) != 1 or not is_column(given[0]) or windows is None or given[0].name != windows.end:
            self.script.fail(
                tree,
                "window_time is of the window that its query groups by, window_time(window), or of the column that has the end of windows "
                "which each come once, as window_time(window_end)",
            )
        return WindowTime(given[0].name)

    def check_final(self, relation: Relation, tree: exp.Expr, what: str) -> None:
        """Refuse rows that later rows replace, where each would count."""
        if relation.running:
            self.script.fail(
                tree,
                f"{what} would count every state of a running aggregate as a row of its own; "
                "give the GROUP BY before it a window(...), so that each of its results comes once",
            )


def _without_window_time(tree: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """window_time(window) of a column that a query inside has called so: a pair of start and end. Any other tree as it is."""
    if not is_window_time(tree) or len(tree.expressions) != 1 or not is_column(tree.expressions[0]):
        return tree
    name = tree.expressions[0].name
    kind = schema.field(name).type if name in schema.names else None
    if kind is None or not pa.types.is_struct(kind) or [field.name for field in kind] != ["start", "end"]:
        return tree
    return parse(f"{quoted(name)}.`end` - INTERVAL '1' MICROSECOND")


def is_window_time(tree: exp.Expr) -> TypeGuard[exp.Anonymous]:
    """Whether a node is a call of window_time."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == "window_time"


def is_window(tree: exp.Expr) -> TypeGuard[exp.Anonymous]:
    """Whether a node is a call of window or session_window, and of no function of the user's."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in WINDOW_FUNCTIONS and not is_known(tree.name)


def is_aggregated(tree: exp.Expr) -> bool:
    """Whether an expression calls an aggregate that is not OVER rows."""
    inside = exp.Window | exp.Select  # Aggregates of a query inside are that query's.
    return any(True for node in tree.walk(prune=lambda node: isinstance(node, inside)) if is_aggregate(node))


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether a node is the call of an aggregate function."""
    return isinstance(tree, exp.Anonymous) and (aggregate_named(tree.name) or aggregate_of(tree.name)) is not None
