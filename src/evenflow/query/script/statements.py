"""A script, statement by statement: views and tables get names, queries become boxes, INSERT INTO sends their rows to a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from evenflow.query.script.foreign import with_first_of_each
from evenflow.query.script.options import Options, sink_of, source_of
from evenflow.query.script.relation import Relation, is_column
from evenflow.query.script.select import Lowering

if TYPE_CHECKING:
    from evenflow.query.builder import Stream
    from evenflow.sinks.sink import Sink


class Statements:
    """One run through a script. Names are the same whatever the case of their letters."""

    def __init__(self, lower: Lowering, streams: Mapping[str, Stream], sinks: Mapping[str, Sink]) -> None:
        self._lower, self._flow, self._script = lower, lower.flow, lower.script
        self._tables = {name.lower(): Relation.of(stream) for name, stream in streams.items()}
        self._sinks = {name.lower(): sink for name, sink in sinks.items()}
        self._given: dict[str, dict[str, Any]] = {}

    def run(self) -> Stream:
        """Draw all statements; returns the stream of the last one."""
        last: Stream | None = None
        for number, statement in enumerate(self._script.statements):
            final = number == len(self._script.statements) - 1
            last = self._statement(statement, final=final)
        assert last is not None, "a script has a statement"
        self._lower.check_read(last)
        return last

    def _statement(self, tree: exp.Expr, *, final: bool) -> Stream | None:
        if isinstance(tree, exp.Query):
            if not final:
                self._script.fail(
                    tree, "the result of this SELECT goes nowhere; write INSERT INTO a sink or CREATE TEMPORARY VIEW name AS before it"
                )
            return self._result(tree)
        if isinstance(tree, exp.Create):
            made = self._create(tree, final=final)
            if made is None and final:
                self._script.fail(tree, "the script ends without a query; write INSERT INTO this table a SELECT, or a SELECT")
            return made
        if isinstance(tree, exp.Insert):
            return self._insert(tree)
        word = type(tree).__name__.upper() if not isinstance(tree, exp.Command) else str(tree.this).upper()
        raise self._script.error(
            tree, f"{word} is not available on streams; a script has SELECT, CREATE VIEW, CREATE TABLE ... USING and INSERT INTO"
        )

    def _result(self, tree: exp.Expr) -> Stream:
        """What a query puts out. A table that comes whole can be sorted and cut short, unlike a stream."""
        by: list[str] = []
        limit = None
        if isinstance(tree, exp.Select):
            tree = with_first_of_each(self._lower, tree)
        if self._lower.mode == "complete":
            tree = tree.copy()
            whole = tree.copy() if tree.args.get("offset") is not None else None
            by, limit = self._order_of(tree), self._limit_of(tree)
            if whole is not None:  # Which rows there are is decided before they are sorted.
                tree, limit = whole, None
        return self._shown(self._lower.query(tree, self._tables), tree, by, limit)

    def _order_of(self, tree: exp.Expr) -> list[str]:
        """What ORDER BY says, as `Stream.complete` wants it; the clause is taken away."""
        order, found = tree.args.get("order"), []
        for part in order.expressions if order is not None else ():
            desc = bool(part.args.get("desc"))
            if not is_column(part.this) or part.this.args.get("table") or bool(part.args.get("nulls_first")) == desc:
                self._script.fail(part, "the whole table is sorted by names of its columns, with nulls as in Spark where nothing is said")
            found.append(f"{part.this.name} {'desc' if desc else 'asc'}")
        tree.set("order", None)
        return found

    def _limit_of(self, tree: exp.Expr) -> int | None:
        limit = tree.args.get("limit")
        if limit is None:
            return None
        number = limit.expression
        if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdigit():
            self._script.fail(limit, "LIMIT takes a number")
        tree.set("limit", None)
        return int(number.this)

    def _shown(self, relation: Relation, tree: exp.Expr, by: Sequence[str] = (), limit: int | None = None) -> Stream:
        """The stream with the columns that SQL sees, and no others."""
        shown = self._lower.project(relation, [(v.name, _own(v.column)) for v in relation.columns])
        return self._lower.finished(shown, tree, by, limit)

    # ------------------------------------------------ CREATE

    def _create(self, tree: exp.Create, *, final: bool) -> Stream | None:
        """The stream of a view; None for a table, which is a sink."""
        script = self._script
        kind = str(tree.args.get("kind")).upper()
        if kind not in ("VIEW", "TABLE"):
            script.fail(tree, f"CREATE {kind} is not available on streams; CREATE TEMPORARY VIEW and CREATE TABLE ... USING are")
        target = tree.this
        columns: list[exp.Expr] = []
        if isinstance(target, exp.Schema):
            target, columns = target.this, target.expressions
        name = target.name
        taken = self._tables if kind == "VIEW" else self._sinks
        if name.lower() in taken and not tree.args.get("replace"):
            script.fail(tree, f"{name!r} is there already; write CREATE OR REPLACE, or another name")
        query, before = tree.args.get("expression"), len(self._flow.network)
        options = Options(script, tree)
        if kind == "TABLE":
            if query is not None:
                script.fail(
                    tree, f"a table with a query is written CREATE TABLE {name} USING parquet OPTIONS (...); INSERT INTO {name} SELECT ..."
                )
            self._sinks[name.lower()], self._given[name.lower()] = sink_of(options)
            return None
        if query is None:
            relation = Relation.of(source_of(self._flow, name, options, columns))
        else:
            if options.format:
                script.fail(tree, "a view is either AS SELECT or USING a source, not both")
            alias = exp.TableAlias(this=exp.to_identifier(name), columns=columns) if columns else exp.TableAlias()
            relation = self._lower.renamed(self._lower.query(query, self._tables), alias)
        self._tables[name.lower()] = self._lower.called(name, relation, tree, new=query is not None and len(self._flow.network) > before)
        return self._shown(relation, tree) if final else relation.stream

    # ------------------------------------------------ INSERT

    def _insert(self, tree: exp.Insert) -> Stream:
        script, target = self._script, tree.this
        if isinstance(target, exp.Schema):
            script.fail(tree, "INSERT INTO with a list of columns is not available; select them in the sink's order")
        if tree.args.get("overwrite"):
            script.fail(tree, "INSERT OVERWRITE is not available on streams; write INSERT INTO")
        if not isinstance(tree.expression, exp.Query):
            script.fail(tree, "INSERT INTO takes a SELECT; VALUES are no stream")
        name = target.name
        sink = self._sinks.get(name.lower())
        if sink is None:
            known = ", ".join(self._sinks) or "none"
            script.fail(tree, f"there is no sink {name!r}; the sinks are {known}. CREATE TABLE {name} USING ..., or pass it in sinks=")
        stream = self._result(tree.expression)
        with script.at(tree):
            return stream.to(sink, **self._given.get(name.lower(), {}), name=self._flow.free(name))


def _own(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


__all__ = ["Statements"]
