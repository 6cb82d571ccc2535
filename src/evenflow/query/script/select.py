"""A query to boxes: FROM, WHERE, the list of columns, UNION ALL, WITH. Groups and joins have files of their own.

SQL is read clause by clause, in the order in which it is evaluated, and every clause is a call of the builder; what the builder refuses
is reported at the clause's place in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from sqlglot import exp

from evenflow.query.changing import as_changes
from evenflow.query.expression import fields_of
from evenflow.query.script.aliases import with_aliases, written_out
from evenflow.query.script.among import among
from evenflow.query.script.beside import beside
from evenflow.query.script.best import best_rows, over_rows
from evenflow.query.script.foreign import no_stream, with_first_of_each, with_lateral_views
from evenflow.query.script.gap_fill import gap_filled, is_gap_fill
from evenflow.query.script.group import Grouping
from evenflow.query.script.join import conjuncts, joined_all
from evenflow.query.script.lateral import of_windows, viewed, with_windows, without_generator
from evenflow.query.script.lowering import (
    Item,
    Lower,
    Tables,
    is_aggregated,
)
from evenflow.query.script.match import recognized
from evenflow.query.script.over_groups import without_groups
from evenflow.query.script.pivoted import pivoted
from evenflow.query.script.placed import cut, number_of, with_named_windows
from evenflow.query.script.qualify import check_names, without_qualify
from evenflow.query.script.relation import Relation, Visible, is_column
from evenflow.query.script.scalars import with_scalars, without_having
from evenflow.query.script.table_windows import with_windows_of_tables
from evenflow.query.script.united import distinct as distinct_rows
from evenflow.query.script.united import united
from evenflow.query.script.unread import without_unread_maps
from evenflow.query.script.values import source_of
from evenflow.query.sql.parser import dotted, to_sql
from evenflow.query.sql.stars import with_columns_for_stars
from evenflow.query.sql.titles import title_of

if TYPE_CHECKING:
    from evenflow.query.builder import Stream

_CLAUSES: Final = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "with_", "distinct", "kind", "match", "laterals", "qualify", "hint"}
)
_REMEDIES: Final = {
    "order": "a stream has no end to sort at; leave it out, and sort what comes out of the sink, or use complete mode",
    "limit": "a stream has no end; leave it out, keep the best rows of a key with row_number() OVER (...) <= n, or use changelog mode",
}

_IN_FROM: Final = {
    "sample": "write a condition on a hash, WHERE abs(hash(key)) % 100 < 10",
}


@dataclass(frozen=True)
class Lowering(Lower):
    """Turns queries into boxes of one dataflow: see `Lower`."""

    # ------------------------------------------------ queries

    def finished(self, relation: Relation, tree: exp.Expr, order_by: Sequence[str] = (), limit: int | None = None) -> Stream:
        """The stream of a relation that is put out: in complete mode, of its whole tables, in an order."""
        if self.mode != "complete":
            return relation.stream
        with self.script.at(tree):  # Rows that come once stay in the table, all of them.
            return as_changes(relation.stream).complete(self.every, order_by=order_by, limit=limit)

    def query(self, tree: exp.Expr, tables: Tables) -> Relation:
        """The relation that a SELECT, a UNION ALL, or one in parentheses gives."""
        tables = self.with_tables(tree, tables)
        if isinstance(tree, exp.Select):
            tree = with_first_of_each(self, tree)
        if self.changes and any(tree.args.get(clause) for clause in ("order", "limit", "offset")):
            return self._some(tree, tables)
        if isinstance(tree, exp.Subquery):
            return self.query(tree.this, tables)
        if isinstance(tree, exp.Union | exp.Intersect | exp.Except):
            return united(self, tree, tables)
        if isinstance(tree, exp.Select):
            return self._select(tree, tables)
        raise self.script.error(tree, f"{type(tree).__name__.upper()} is not available on streams; write a SELECT, or UNION of several")

    def _some(self, tree: exp.Expr, tables: Tables) -> Relation:
        """A query with ORDER BY, LIMIT or OFFSET. What is in no order, as a changelog, is in any."""
        order = tree.args.get("order")
        parts = [part.copy() for part in (order.expressions if order is not None else ())]
        limit, offset = (number_of(self, tree.args.get(clause), clause.upper()) for clause in ("limit", "offset"))
        plain = tree.copy()
        for clause in ("order", "limit", "offset", "with_"):  # What WITH names is known already.
            plain.set(clause, None)
        if limit is None and not offset:
            return self.query(plain, tables)
        hidden = _shown_by(plain, parts) if isinstance(plain, exp.Select) else 0
        relation = self.query(plain, tables)
        self._number(parts, relation.columns[: len(relation.columns) - hidden])
        return cut(self, relation, parts, hidden, limit, offset or 0, tree.args.get("limit") or tree.args["offset"])

    def _number(self, parts: Sequence[exp.Expr], shown: Sequence[Visible]) -> None:
        """Write the columns of the result where ORDER BY has their numbers, from 1."""
        for part in parts:
            by = part.this
            if _is_number(by):
                if not 1 <= int(by.this) <= len(shown):
                    self.script.fail(by, f"ORDER BY {by.this}: there is no such column; the query has {len(shown)}")
                part.set("this", exp.column(shown[int(by.this) - 1].name, quoted=True))

    def check_read(self, last: Stream) -> None:
        """QueryError for a name that nothing reads: its rows would go nowhere. last: what the script gives is read by its user."""
        for box, (name, tree) in self.named.items():
            if box not in self.read and box != last.box.name:
                self.script.fail(tree, f"nothing reads {name!r}; leave it out, or write a query that reads it")

    def _select(self, tree: exp.Select, tables: Tables) -> Relation:
        tree = with_windows_of_tables(tree)
        with_named_windows(self, tree)
        with_lateral_views(tree)
        self._check_clauses(tree)
        if tree.args.get("from_") is None:
            self.script.fail(tree, "a SELECT without FROM is one row and no stream; say which stream it reads")
        for around in (
            without_qualify(self, tree),
            without_groups(tree),
            without_having(tree),
        ):  # The last that is evaluated comes first.
            if around is not tree:
                return self._select(around, tables)
        where = tree.args.get("where")
        pending = [] if where is None else conjuncts(where.this)
        match = tree.args.get("match")
        if match is not None:
            relation = recognized(self, self._from(tree, tables, []), tree, match)
        else:
            found = best_rows(self, tree, tables, pending)
            relation = self._from(tree, tables, pending) if found is None else self._left(found, tree, tables, pending)
        relation = with_scalars(self, tree, relation, pending, tables)
        with_aliases(self, tree, relation)
        tree.set("expressions", [self._spread(relation, item) for item in tree.expressions])
        for clause in ("expressions", "group", "having"):
            given = tree.args.get(clause)
            if isinstance(given, list):
                tree.set(clause, [relation.dotted(each) for each in given])
            elif given:
                tree.set(clause, relation.dotted(self._spread(relation, given)))
        for condition in pending:
            condition = relation.dotted(self._spread(relation, condition))
            relation = self.filtered(relation, of_windows(self, relation, condition))
        relation = with_windows(self, tree, relation)
        tree, relation = without_generator(self, tree, relation)
        items = self.items(tree, relation)
        grouped = tree.args.get("group") is not None or tree.args.get("having") is not None
        if grouped or any(is_aggregated(item) for _, item in items):
            return self._distinct(tree, Grouping(self, tree, relation, items).result())
        check_names(self, tree, relation)
        if any(item.find(exp.Window) for _, item in items):
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
        return distinct_rows(self, relation, distinct if distinct.expressions else tree)

    # ------------------------------------------------ FROM

    def _from(self, tree: exp.Select, tables: Tables, pending: list[exp.Expr]) -> Relation:
        """pending: conditions of WHERE that are still to be met; those that joins meet are taken out."""
        relation = self.table(tree.args["from_"].this, tables)
        relation = joined_all(self, relation, tree.args.get("joins") or (), tables, pending, beside, self._met)
        return self._left(relation, tree, tables, pending)

    def _met(self, relation: Relation, conditions: list[exp.Expr], tables: Tables) -> Relation:
        """The rows for which conditions of ON are true that are more than a join's: those with queries, and of LATERAL."""
        relation = among(self, relation, tables, conditions)
        relation = with_scalars(self, exp.Select(), relation, conditions, tables)
        for condition in conditions:
            relation = self.filtered(relation, relation.dotted(condition))
        return relation

    def _left(self, relation: Relation, tree: exp.Select, tables: Tables, pending: list[exp.Expr]) -> Relation:
        """Those of the rows that conditions with queries leave, and rows of their arrays."""
        relation = among(self, relation, tables, pending)
        for view in tree.args.get("laterals") or ():
            relation = viewed(self, relation, view)
        return relation

    def table(self, tree: exp.Expr, tables: Tables) -> Relation:
        """One item of FROM: a name, or a query in parentheses, behind its alias."""
        return without_unread_maps(self, tree, self._table(tree, tables))

    def _table(self, tree: exp.Expr, tables: Tables) -> Relation:
        if tree.args.get("pivots"):
            bare = tree.copy()
            bare.set("pivots", None)
            return pivoted(self, tree, self._table(bare, tables), tables)
        if isinstance(tree, exp.Subquery):
            for clause, value in tree.args.items():
                if value and clause not in ("this", "alias", "with_"):
                    self.script.fail(tree, f"{_word(clause)} of a subquery is not available; {_IN_FROM.get(clause, 'leave it out')}")
            alias = tree.args.get("alias")
            relation = self.query(tree.this, self.with_tables(tree, tables))
            return relation.called("") if alias is None else self.renamed(relation, alias).called(alias.name)
        if isinstance(tree, exp.Values):
            return source_of(self, tree)
        if isinstance(tree, exp.Table) and is_gap_fill(tree):
            return gap_filled(self, tree, tables)
        if not isinstance(tree, exp.Table) or not isinstance(tree.this, exp.Identifier):
            self.script.fail(tree, no_stream(tree))
        name = tree.name
        if tree.db or name.lower() not in tables:
            known = ", ".join(tables) or "none"
            self.script.fail(
                tree, f"there is no stream {to_sql(_bare(tree))!r}; the streams are {known}. Pass it in streams=, or CREATE VIEW it"
            )
        for clause, value in tree.args.items():
            if value and clause not in ("this", "alias", "db", "catalog"):
                self.script.fail(tree, f"{_word(clause)} of a table is not available on streams; {_IN_FROM.get(clause, 'leave it out')}")
        alias = tree.args.get("alias")
        relation = tables[name.lower()]
        self.read.add(relation.stream.box.name)
        return relation.called(name) if alias is None else self.renamed(relation, alias).called(alias.name or name)

    # ------------------------------------------------ pieces that clauses share

    def items(self, tree: exp.Select, relation: Relation) -> list[Item]:
        """Names and expressions of the list of columns, * written out. Without a name it is called as it is written."""
        made: list[Item] = []
        for item in tree.expressions:
            if item.is_star:
                made += self._starred(relation, item)
            elif isinstance(item, exp.Alias):
                made.append((item.alias, item.this))
            elif is_column(item):
                made.append((item.name, item))
            elif isinstance(item, exp.Dot) and isinstance(item.expression, exp.Identifier):
                made.append((item.expression.name, item))
            else:
                made.append((title_of(item), item))
        names = [name.lower() for name, _ in made]
        for at, (name, item) in enumerate(made):
            if name.lower() in names[:at]:
                self.script.fail(item, f"two columns are called {name!r}; rename one with AS")
        return made

    def _starred(self, relation: Relation, item: exp.Expr) -> list[Item]:
        """What * or t.* stands for."""
        star = item.this if isinstance(item, exp.Column) else item
        if star.args.get("replace") or star.args.get("rename"):
            self.script.fail(item, "* REPLACE and * RENAME are not available; list the columns")
        table = item.table if isinstance(item, exp.Column) else ""
        shown = relation.expanded(table)
        if not shown and isinstance(item, exp.Column) and (fields := self._fields(relation, item)):
            return fields
        if not shown:
            self.script.fail(item, f"there is no table {table!r} in FROM")
        shown = self._without(shown, star.args.get("except_") or ())
        return [(v.name, exp.column(v.name, table=v.table or None, quoted=True)) for v in shown]

    def _spread(self, relation: Relation, tree: exp.Expr) -> exp.Expr:
        """The expression with columns in the place of the stars that are arguments."""
        return with_columns_for_stars(tree, lambda star: [value for _, value in self._starred(relation, star)])

    def _without(self, shown: Sequence[Visible], left_out: Sequence[exp.Expr]) -> list[Visible]:
        """What * EXCEPT (...) stands for."""
        names = {each.name.lower(): each for each in left_out}
        for name, each in names.items():
            if name not in (visible.name.lower() for visible in shown):
                self.script.fail(each, f"there is no column {each.name!r} to leave out")
        kept = [visible for visible in shown if visible.name.lower() not in names]
        if not kept:
            self.script.fail(left_out[0], "* EXCEPT leaves no column; name fewer")
        return kept

    def _fields(self, relation: Relation, star: exp.Column) -> list[Item]:
        """What s.* stands for, where s is a structure."""
        owner, *fields = [part.name for part in star.parts[:-1]]
        column = relation.dotted(exp.column(fields[0], table=owner, quoted=True) if fields else exp.column(owner, quoted=True))
        column = dotted(column, fields[1:])
        if not relation.matches(next(column.find_all(exp.Column))):
            return []
        with self.script.at(star):
            return [(name, dotted(column.copy(), [name])) for name in fields_of(to_sql(relation.rewritten(column)), relation.stream.schema)]


def _shown_by(query: exp.Select, parts: Sequence[exp.Expr]) -> int:
    """Make what ORDER BY says columns of the query's result, but for numbers; how many had to be added, behind all others."""
    hidden = 0
    items = list(query.expressions)
    names = [item.alias_or_name.lower() for item in items]
    for part in parts:
        by = part.this
        if _is_number(by):
            continue
        if is_column(by) and not by.table and (by.name.lower() in names or any(item.is_star for item in items)):
            continue
        by = written_out(by, items)
        if (at := next((at for at, item in enumerate(items) if item.unalias() == by and names[at]), None)) is not None:
            part.set("this", exp.column(items[at].alias_or_name, quoted=True))
        else:
            name = f"_order{hidden}"
            query.append("expressions", exp.alias_(by, name, quoted=True))
            part.set("this", exp.column(name, quoted=True))
            hidden += 1
    return hidden


def _is_number(tree: exp.Expr) -> TypeGuard[exp.Literal]:
    return isinstance(tree, exp.Literal) and not tree.is_string and tree.this.isdigit()


def _word(clause: str) -> str:
    return clause.strip("_").upper()


def _bare(tree: exp.Table) -> exp.Table:
    return exp.Table(this=tree.this, db=tree.args.get("db"), catalog=tree.args.get("catalog"))
