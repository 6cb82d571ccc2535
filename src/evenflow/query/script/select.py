"""A query to boxes: FROM, WHERE, the list of columns, UNION ALL, WITH. Groups and joins have files of their own.

SQL is read clause by clause, in the order in which it is evaluated, and every clause is a call of the builder; what the builder refuses
is reported at the clause's place in the text.
"""

from __future__ import annotations

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
from evenflow.query.sql.functions import AGGREGATES
from evenflow.query.sql.parser import to_sql
from evenflow.query.sql.types import common, name_of
from evenflow.query.user.scope import aggregate_of
from evenflow.stream.change import CHANGE, is_changelog

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow, Stream

Tables = Mapping[str, Relation]
"""What names in FROM may stand for, by their lower-case name."""

OutputMode = Literal["append", "update", "changelog", "complete"]
"""When windows are put out: once; whenever rows have come into them; then, as what has changed; now and then, all there ever were.

Groups without a window come whenever they have new rows, in the last two modes as windows do.
"""

Item = tuple[str, exp.Expr]
"""A column of the result: its name, and what it is."""

_CLAUSES: Final = frozenset({"expressions", "from_", "joins", "where", "group", "having", "with_", "distinct", "kind", "match"})
_REMEDIES: Final = {
    "order": "a stream has no end to sort at; leave it out, and sort what comes out of the sink, or use complete mode",
    "limit": "a stream has no end; leave it out, keep the best rows of a key with row_number() OVER (...) <= n, or use complete mode",
    "qualify": "write it as a condition on row_number() in a query around this one",
    "laterals": "LATERAL VIEW is not available; use a Python function in the dataflow",
}
WINDOW_FUNCTIONS: Final = ("window", "session_window")
RANKS: Final = ("row_number", "rank", "dense_rank")


@dataclass(frozen=True)
class Lowering:
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

    # ------------------------------------------------ queries

    def finished(self, relation: Relation, tree: exp.Expr, order_by: Sequence[str] = (), limit: int | None = None) -> Stream:
        """The stream of a relation that is put out: in complete mode, of its whole tables, in an order."""
        if self.mode != "complete":
            return relation.stream
        if not is_changelog(relation.stream.schema):
            self.script.fail(tree, "complete mode puts out the groups of an aggregate again and again, and here is none; use append mode")
        with self.script.at(tree):
            return relation.stream.complete(self.every, order_by=order_by, limit=limit)

    def query(self, tree: exp.Expr, tables: Tables) -> Relation:
        """The relation that a SELECT, a UNION ALL, or one in parentheses gives."""
        tables = self.with_tables(tree, tables)
        if isinstance(tree, exp.Subquery):
            return self.query(tree.this, tables)
        if isinstance(tree, exp.Union):
            return self._union(tree, tables)
        if isinstance(tree, exp.Select):
            return self._select(tree, tables)
        raise self.script.error(tree, f"{type(tree).__name__.upper()} is not available on streams; write a SELECT, or UNION ALL of several")

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

    def check_read(self, last: Stream) -> None:
        """QueryError for a name that nothing reads: its rows would go nowhere. last: what the script gives is read by its user."""
        for box, (name, tree) in self.named.items():
            if box not in self.read and box != last.box.name:
                self.script.fail(tree, f"nothing reads {name!r}; leave it out, or write a query that reads it")

    def renamed(self, relation: Relation, alias: exp.Expr) -> Relation:
        """The relation with the columns' names of `AS t (a, b)`, if there are any."""
        names = [column.name for column in alias.args.get("columns") or ()]
        if not names:
            return relation
        if len(names) != len(relation.columns):
            self.script.fail(alias, f"{len(names)} names for {len(relation.columns)} columns; name each of them once")
        return replace(relation, columns=tuple(replace(v, name=name) for v, name in zip(relation.columns, names, strict=True)))

    def _union(self, tree: exp.Union, tables: Tables) -> Relation:
        if tree.args.get("distinct", True):
            self.script.fail(tree, "UNION would have to remember every row; write UNION ALL")
        if tree.args.get("by_name"):
            self.script.fail(tree, "BY NAME is not available; list the columns of both sides in the same order")
        for clause in ("order", "limit"):
            if tree.args.get(clause):
                self.script.fail(tree.args[clause], f"{clause.upper()} is not available: {_REMEDIES[clause]}")
        left, right = self.query(tree.this, tables), self.query(tree.expression, tables)
        if len(left.columns) != len(right.columns):
            message = f"UNION ALL of {len(left.columns)} and {len(right.columns)} columns; select as many on both sides"
            self.script.fail(tree.expression, message)
        sides: list[list[Item]] = [[], []]
        with self.script.at(tree.expression):
            for a, b in zip(left.columns, right.columns, strict=True):
                types = left.stream.schema.field(a.column).type, right.stream.schema.field(b.column).type
                type_ = common(types, f"column {a.name!r} of UNION ALL")
                for side, visible, given in zip(sides, (a, b), types, strict=True):
                    side.append((a.name, _as(visible.column, given, type_)))
            first, second = (self.project(relation, items) for relation, items in zip((left, right), sides, strict=True))
            if is_changelog(first.stream.schema) != is_changelog(second.stream.schema):
                self.script.fail(
                    tree.expression, "UNION ALL of results that change and of rows that stay; write two queries into two sinks"
                )
            stream = first.stream.union(second.stream)
        return Relation(stream, first.columns, running=left.running or right.running)

    def _select(self, tree: exp.Select, tables: Tables) -> Relation:
        from evenflow.query.script.best import best_rows, over_rows
        from evenflow.query.script.group import Grouping
        from evenflow.query.script.join import conjuncts
        from evenflow.query.script.match import recognized

        self._check_clauses(tree)
        if tree.args.get("from_") is None:
            self.script.fail(tree, "a SELECT without FROM is one row and no stream; say which stream it reads")
        where = tree.args.get("where")
        pending = [] if where is None else conjuncts(where.this)
        match = tree.args.get("match")
        if match is not None:
            relation = recognized(self, self._from(tree, tables, []), tree, match)
        else:
            relation = best_rows(self, tree, tables, pending) or self._from(tree, tables, pending)
        for condition in pending:
            relation = self.filtered(relation, condition)
        items = self.items(tree, relation)
        grouped = tree.args.get("group") is not None or tree.args.get("having") is not None
        if grouped or any(is_aggregated(item) for _, item in items):
            result = Grouping(self, tree, relation, items).result()
        elif any(item.find(exp.Window) for _, item in items):
            result = over_rows(self, tree, relation, items)
        else:
            result = self.project(relation, [(name, self.rewritten(relation, item)) for name, item in items])
        return self._distinct(tree, result)

    def _check_clauses(self, tree: exp.Select) -> None:
        for clause, value in tree.args.items():
            if value and clause not in _CLAUSES:
                word = clause.strip("_").upper()
                where = value if isinstance(value, exp.Expr) else tree
                self.script.fail(where, f"{word} is not available: {_REMEDIES.get(clause, 'leave it out')}")
        if tree.args.get("kind"):
            self.script.fail(tree, "SELECT AS STRUCT is not available; select the columns")

    def _distinct(self, tree: exp.Select, relation: Relation) -> Relation:
        distinct = tree.args.get("distinct")
        if distinct is None:
            return relation
        self.check_final(relation, distinct if distinct.expressions else tree, "SELECT DISTINCT")
        with self.script.at(tree):
            return relation.where(relation.stream.drop_duplicates())

    # ------------------------------------------------ FROM

    def _from(self, tree: exp.Select, tables: Tables, pending: list[exp.Expr]) -> Relation:
        """pending: conditions of WHERE that are still to be met; those that joins meet are taken out."""
        from evenflow.query.script.join import joined

        relation = self.table(tree.args["from_"].this, tables)
        for join in tree.args.get("joins") or ():
            relation = joined(self, relation, join, tables, pending)
        return relation

    def table(self, tree: exp.Expr, tables: Tables) -> Relation:
        """One item of FROM: a name, or a query in parentheses, behind its alias."""
        if isinstance(tree, exp.Subquery):
            for clause, value in tree.args.items():
                if value and clause not in ("this", "alias", "with_"):
                    self.script.fail(tree, f"{clause.strip('_').upper()} of a subquery is not available; leave it out")
            alias = tree.args.get("alias")
            relation = self.query(tree.this, self.with_tables(tree, tables))
            return relation.called("") if alias is None else self.renamed(relation, alias).called(alias.name)
        if not isinstance(tree, exp.Table) or not isinstance(tree.this, exp.Identifier):
            self.script.fail(tree, f"{to_sql(tree)!r} is no stream; name one, or write a query in parentheses")
        name = tree.name
        if tree.db or name.lower() not in tables:
            known = ", ".join(tables) or "none"
            self.script.fail(
                tree, f"there is no stream {to_sql(_bare(tree))!r}; the streams are {known}. Pass it in streams=, or CREATE VIEW it"
            )
        for clause, value in tree.args.items():
            if value and clause not in ("this", "alias", "db", "catalog"):
                self.script.fail(tree, f"{clause.strip('_').upper()} of a table is not available on streams; leave it out")
        alias = tree.args.get("alias")
        relation = tables[name.lower()]
        self.read.add(relation.stream.box.name)
        return relation.called(name) if alias is None else self.renamed(relation, alias).called(alias.name or name)

    # ------------------------------------------------ pieces that clauses share

    def items(self, tree: exp.Select, relation: Relation) -> list[Item]:
        """Names and expressions of the list of columns, * written out. Without a name it is called as it is written."""
        made: list[Item] = []
        for item in tree.expressions:
            star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
            if isinstance(star, exp.Star):
                if star.args.get("except_") or star.args.get("replace") or star.args.get("rename"):
                    self.script.fail(item, "* EXCEPT is not available; list the columns")
                table = item.table if isinstance(item, exp.Column) else ""
                shown = relation.expanded(table)
                if not shown:
                    self.script.fail(item, f"there is no table {table!r} in FROM")
                made += [(v.name, exp.column(v.name, table=v.table or None, quoted=True)) for v in shown]
            elif isinstance(item, exp.Alias):
                made.append((item.alias, item.this))
            elif is_column(item):
                made.append((item.name, item))
            else:
                made.append((to_sql(item).replace("`", ""), item))
        names = [name.lower() for name, _ in made]
        for at, (name, item) in enumerate(made):
            if name.lower() in names[:at]:
                self.script.fail(item, f"two columns are called {name!r}; rename one with AS")
        return made

    def rewritten(self, relation: Relation, tree: exp.Expr) -> exp.Expr:
        """The expression over the stream's columns. Errors have its place."""
        for node in tree.find_all(exp.Anonymous):
            if node.name.lower() in WINDOW_FUNCTIONS:
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
        for name, item in items:
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


def is_window_time(tree: exp.Expr) -> TypeGuard[exp.Anonymous]:
    """Whether a node is a call of window_time."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == "window_time"


def is_aggregated(tree: exp.Expr) -> bool:
    """Whether an expression calls an aggregate that is not OVER rows."""
    inside = exp.Window | exp.Select  # Aggregates of a query inside are that query's.
    return any(True for node in tree.walk(prune=lambda node: isinstance(node, inside)) if is_aggregate(node))


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether a node is the call of an aggregate function."""
    return isinstance(tree, exp.Anonymous) and (tree.name.lower() in AGGREGATES or aggregate_of(tree.name) is not None)


def _as(column: str, given: pa.DataType, wanted: pa.DataType) -> exp.Expr:
    """The column, cast if it must be."""
    own = own_column(column)
    return own if given == wanted else exp.Cast(this=own, to=exp.DataType.build(name_of(wanted), dialect="spark"))


def _bare(tree: exp.Table) -> exp.Table:
    return exp.Table(this=tree.this, db=tree.args.get("db"), catalog=tree.args.get("catalog"))


__all__ = ["Item", "Lowering", "OutputMode", "Tables", "is_aggregate", "is_aggregated", "is_window_time"]
