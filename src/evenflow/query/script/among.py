"""IN (SELECT ...) and EXISTS (SELECT ...) of WHERE as joins: a left semi join, NOT EXISTS a left anti join.

What the inner WHERE says of columns of the outer query becomes part of the join, as the bounds in time must, without which two streams
cannot be joined so.
"""

from __future__ import annotations

from sqlglot import exp

from evenflow.query.script.counted import check_may_be_empty
from evenflow.query.script.inner import column_of, named, outer, own_columns, parted
from evenflow.query.script.join import conjuncts, joined
from evenflow.query.script.lowering import Lower, Tables, is_aggregated
from evenflow.query.script.relation import Relation, free_name
from evenflow.query.user.scope import called_name

_PLAIN = frozenset({"expressions", "from_", "where", "distinct", "kind", "limit"})


def among(lower: Lower, relation: Relation, tables: Tables, pending: list[exp.Expr]) -> Relation:
    """The relation with the rows that such conditions leave. pending: conditions of WHERE, without those afterwards."""
    for part in list(pending):
        bare = part.unnest()
        kind = "ANTI" if isinstance(bare, exp.Not) else "SEMI"
        test = bare.this.unnest() if isinstance(bare, exp.Not) else bare
        if not isinstance(test, exp.Exists) and not (isinstance(test, exp.In) and test.args.get("query") is not None):
            continue
        if isinstance(test, exp.In) and kind == "ANTI" and not lower.changes:
            lower.script.fail(part, "NOT IN (SELECT ...) is null for all rows where the SELECT has a null; write NOT EXISTS (SELECT ...)")
        pending[:] = [each for each in pending if each is not part]
        relation = _joined(lower, relation, test, kind, tables)
    return relation


def _joined(lower: Lower, relation: Relation, test: exp.Expr, kind: str, tables: Tables) -> Relation:
    query = test.args["query"] if isinstance(test, exp.In) else test.this
    inner = query.this if isinstance(query, exp.Subquery) else query
    word = "IN" if isinstance(test, exp.In) else "EXISTS"
    if word == "EXISTS":
        check_may_be_empty(lower, inner)
    if lower.changes and isinstance(inner, exp.Select) and not _is_plain(inner, kind, word):
        return _with_query(lower, relation, test, inner, kind, tables)
    if not isinstance(inner, exp.Select) or any(value and clause not in _PLAIN for clause, value in inner.args.items()):
        lower.script.fail(test, f"{word} takes a SELECT with FROM and WHERE here; name another query with WITH or a view before")
    if (limit := inner.args.get("limit")) is not None and not (word == "EXISTS" and _at_least_one(limit.expression)):
        lower.script.fail(test, f"{word} does not take a SELECT with LIMIT: which rows those are would change with every row; leave it out")
    if any(is_aggregated(item) for item in inner.expressions):
        lower.script.fail(test, f"{word} takes a SELECT without aggregates here; name another query with WITH or a view before")
    source = inner.args["from_"].this if inner.args.get("from_") is not None else None
    if not isinstance(source, exp.Table):
        lower.script.fail(test, f"{word} takes a SELECT from one stream by its name; name another query with WITH or a view before")
    own = lower.table(source, tables)

    def owned(tree: exp.Expr) -> exp.Expr:
        """Columns of the inner query come first, as in Spark."""
        return tree.copy().transform(
            lambda node: exp.column(node.this.copy(), table=own.columns[0].table) if isinstance(node, exp.Column) and not node.table
            and own.matches(node) else node
        )  # fmt: skip

    where = inner.args.get("where")
    parts = [] if where is None else [owned(part) for part in conjuncts(where.this)]
    if isinstance(test, exp.In):
        parts[:0] = [exp.EQ(this=outer(relation, value), expression=owned(item)) for value, item in _pairs(lower, test, inner)]
    join = exp.Join(this=source.copy(), side="LEFT", kind=kind, on=exp.and_(*parts or [exp.true()], copy=False))
    with lower.script.at(test):
        return joined(lower, relation, join, own, [])


def _pairs(lower: Lower, test: exp.In, inner: exp.Select) -> list[tuple[exp.Expr, exp.Expr]]:
    """(value before IN, the column of the SELECT that it is compared with): `(a, b) IN (SELECT x, y ...)` has two."""
    given, items = test.this.unnest(), [item.unalias() for item in inner.expressions]
    values = [given]
    if isinstance(given, exp.Tuple):
        values = [value.unalias() for value in given.expressions]
    elif isinstance(given, exp.Anonymous) and called_name(given.name) == "named_struct" and len(items) > 1:
        values = list(given.expressions[1::2])  # So the parser has struct(a, b), which Spark takes for (a, b) here.
    if len(items) != len(values) or any(item.is_star for item in items):
        of = "one column" if len(values) == 1 else f"the {len(values)} columns that stand before it"
        lower.script.fail(test, f"IN takes a SELECT of {of}; name as many, and no *")
    return list(zip(values, items, strict=True))


def _at_least_one(count: exp.Expr) -> bool:
    return isinstance(count, exp.Literal) and not count.is_string and count.this.isdecimal() and int(count.this) > 0


def _is_plain(inner: exp.Select, kind: str, word: str) -> bool:
    """Whether it is one stream by its name, and rows of it."""
    from_ = inner.args.get("from_")
    where = inner.args.get("where")
    if from_ is None or any(value and clause not in _PLAIN for clause, value in inner.args.items()):
        return False
    if where is not None and where.find(exp.Select) is not None:
        return False
    return isinstance(from_.this, exp.Table) and not any(map(is_aggregated, inner.expressions)) and (word, kind) != ("IN", "ANTI")


def _with_query(lower: Lower, relation: Relation, test: exp.Expr, inner: exp.Select, kind: str, tables: Tables) -> Relation:
    """With any query, in modes in which its rows may change: it is a table of its own, of what the conditions want to know of it."""
    script = lower.script
    if inner.args.get("limit") is not None or inner.args.get("order") is not None:
        script.fail(test, "which rows ORDER BY and LIMIT leave would change with every row; leave them out")
    tables = lower.with_tables(inner, tables)
    found = parted(lower, inner, relation, tables)
    groups = inner.args.get("group") is not None or inner.args.get("having") is not None or any(map(is_aggregated, inner.expressions))
    if groups and (found.equal or found.others):
        script.fail(test, "a query with groups cannot be about the row around it here; name its keys, and write IN (SELECT ...)")
    table = free_name("_in", [visible.table for visible in relation.columns])
    query, conditions, items = found.query, list[exp.Expr](), list[exp.Expr]()

    def shown(tree: exp.Expr) -> exp.Column:
        """A column of the query's result."""
        items.append(exp.alias_(tree.copy(), f"_c{len(items)}", quoted=True))
        return column_of(table, f"_c{len(items) - 1}")

    if isinstance(test, exp.In):
        equal = [exp.EQ(this=outer(relation, value), expression=shown(item)) for value, item in _pairs(lower, test, inner)]
        # NOT IN is true where the equality is false with each row; null is not false.
        conditions += equal if kind == "SEMI" else [exp.func("coalesce", exp.and_(*equal, copy=False), exp.true())]
    conditions += [each.of(relation, shown(each.own)) for each in found.equal]
    names = {column: shown(column) for column in own_columns(lower, inner, found.others, tables)} if found.others else {}
    conditions += [outer(relation, named(part, names)) for part in found.others]
    query.set("with_", None)
    query.set("distinct", None)
    one = exp.alias_(exp.Literal.number(1), "_c0", quoted=True)
    if groups and not items:
        query = _around(query, one)
    else:
        query.set("expressions", items or [one])
    with script.at(test):
        rows = lower.query(query, tables).called(table)
        join = exp.Join(this=test.copy(), side="LEFT", kind=kind, on=exp.and_(*conditions, copy=False) if conditions else None)
        return joined(lower, relation, join, rows, [])


def _around(query: exp.Select, item: exp.Expr) -> exp.Select:
    """An item for each group of a query, whose own list says what the groups are: it may have an aggregate, and GROUP BY its numbers."""
    taken: list[str] = []
    for at, given in enumerate(query.expressions):
        if given.is_star:
            continue
        taken.append(free_name(given.alias_or_name or f"_c{at}", taken))
        if taken[-1] != given.alias_or_name:
            query.expressions[at] = exp.alias_(given.unalias(), taken[-1], quoted=True)
    made = exp.Select(expressions=[item])
    made.set("from_", exp.From(this=exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("_groups")))))
    return made
