"""Functions OVER rows: aggregates over the last rows of a key, and the best rows of a key by row_number() <= n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from evenflow.query.aggregates import RANK
from evenflow.query.ranked import Place
from evenflow.query.script.group import END, START, check_windows, first_of
from evenflow.query.script.lowering import RANKS, Item, Lower, Tables, is_aggregate
from evenflow.query.script.placed import counted_exactly, drawn, in_time_order, order_of, placed_rows
from evenflow.query.script.relation import Relation, Visible, computed, free_name, is_column, own_column
from evenflow.query.script.running import BestRows
from evenflow.query.script.spanned import is_around, spanned_rows
from evenflow.query.sql.parser import to_sql
from evenflow.query.user.scope import built_in
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import ddl_of, quoted

_BEHIND_PLACES: Final = ("distinct", "qualify", "limit", "offset")
"""Clauses that are evaluated when the places are there, so that these are not the places of the rows that they leave."""


@dataclass(frozen=True, slots=True)
class Over:
    """What stands behind OVER, over the stream's own columns. order: (expression, descending)."""

    keys: tuple[exp.Expr, ...]
    order: tuple[tuple[exp.Expr, bool], ...]
    rows: int


def over_rows(lower: Lower, tree: exp.Select, relation: Relation, items: Sequence[Item]) -> Relation:
    """Columns with aggregates OVER (PARTITION BY ... ORDER BY event time ROWS BETWEEN n PRECEDING AND CURRENT ROW), of one frame."""
    script = lower.script
    windows = [node for _, item in items for node in item.find_all(exp.Window)]
    first = windows[0]
    if lower.changes and (is_changelog(relation.stream.schema) or relation.stream.event_time is None or not all(map(_is_of_last, windows))):
        return placed_rows(lower, relation, counted_exactly(items))
    lower.check_final(relation, first, "a function OVER rows")
    over = None if any(map(is_around, windows)) else _one_over(lower, relation, windows)
    if over is None:
        return spanned_rows(lower, relation, counted_exactly(items))
    ties = in_time_order(lower, relation, over.order, first, "OVER")
    time = str(relation.stream.event_time)
    made, keys = columns_of(over.keys, "_key", relation)
    relation = computed(relation, made)
    calls: dict[str, str] = {}
    columns = [(name, _replaced(lower, relation, item, keys, time, calls, over.rows)) for name, item in items]
    texts = [f"{text} as `{name}`" for text, name in calls.items()]
    with script.at(first):
        rows = relation.stream.group_by(*keys).rows(over.rows, 1, tie_break=ties)
        stream = rows.agg(*texts)
    result = Relation(stream, tuple(Visible(name, "", name) for name in stream.columns))
    return lower.project(result, columns)


def _one_over(lower: Lower, relation: Relation, windows: Sequence[exp.Window]) -> Over | None:
    """What all functions OVER rows have in common, if they do. lag(x, n) needs n rows and one more, and takes what the others have."""
    found = [_over(lower, relation, window) for window in windows]
    frames = [over.rows for over, window in zip(found, windows, strict=True) if not is_lag(window)]
    rows = frames[0] if frames else max(over.rows for over in found)
    for over, window in zip(found, windows, strict=True):
        fits = over.rows <= rows if is_lag(window) else over.rows == rows
        if not fits or (over.keys, over.order) != (found[0].keys, found[0].order):
            return None
    return replace(found[0], rows=rows)


def _is_of_last(window: exp.Window) -> bool:
    """Whether it is of a row and some before it: it is final when the row is there."""
    if is_lag(window):
        return True
    spec = window.args.get("spec")
    if spec is None or str(spec.args.get("kind")).upper() != "ROWS" or not isinstance(spec.args.get("start"), exp.Literal):
        return False
    return str(spec.args.get("end") or "CURRENT ROW").upper() == "CURRENT ROW" and is_aggregate(window.this)


def is_lag(window: exp.Window) -> bool:
    """Whether it is lag(x, n, default) OVER (...)."""
    return isinstance(window.this, exp.Anonymous) and window.this.name.lower() == "lag"


def _offset(lower: Lower, window: exp.Window) -> int:
    """How many rows before its own the one is that lag looks at."""
    given = window.this.expressions
    if not 1 <= len(given) <= 3:
        lower.script.fail(window, "lag takes a value, how many rows before, and what it is where there are not so many")
    if window.args.get("spec") is not None:
        lower.script.fail(window, "lag has no frame; leave ROWS BETWEEN out")
    offset = given[1] if len(given) > 1 else exp.Literal.number(1)
    if not isinstance(offset, exp.Literal) or offset.is_string or not offset.this.isdigit():
        lower.script.fail(offset, "lag looks at a fixed number of rows before; lead at one of rows that follow")
    return int(offset.this)


def _replaced(
    lower: Lower, relation: Relation, tree: exp.Expr, keys: Sequence[str], time: str, calls: dict[str, str], rows: int
) -> exp.Expr:
    """The expression over the box's columns: aggregates OVER rows are its calls, other columns are those of the last row."""

    def call(text: str) -> exp.Column:
        return own_column(calls.setdefault(text, f"_over{len(calls)}"))

    def before(window: exp.Window) -> exp.Expr:
        """lag: the first of the rows, if they are as many as it looks back; of longer frames a place in their list."""
        offset, (value, *rest) = _offset(lower, window), window.this.expressions
        text = to_sql(lower.rewritten(relation, value))
        held: exp.Expr = call(f"{built_in('first')}({text})")
        if offset < rows - 1:
            listed = call(f"{built_in('collect_list')}({built_in('named_struct')}('value', {text}))")
            found = exp.Anonymous(this=built_in("element_at"), expressions=[listed, exp.Neg(this=exp.Literal.number(offset + 1))])
            held = exp.Dot(this=found, expression=exp.to_identifier("value", quoted=True))
        there = exp.GT(this=call(f"{built_in('count')}(1)"), expression=exp.Literal.number(offset))
        made = exp.Case(ifs=[exp.If(this=there, true=held)])
        if len(rest) > 1:
            made.set("default", _replaced(lower, relation, rest[1], keys, time, calls, rows))
        return made

    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Window) and is_lag(node):
            return before(node)
        if isinstance(node, exp.Window):
            return call(to_sql(lower.rewritten(relation, node.this)))
        if isinstance(node, exp.Column):
            name = lower.rewritten(relation, node).name
            return own_column(name, node) if name in keys or name == time else call(f"{built_in('last')}(`{name}`)")
        return node

    return tree.copy().transform(one)


def _over(lower: Lower, relation: Relation, window: exp.Window) -> Over:
    script = lower.script
    if is_lag(window):
        keys = tuple(lower.rewritten(relation, key) for key in window.args.get("partition_by") or ())
        return Over(keys, ordered(lower, relation, window), _offset(lower, window) + 1)
    if not is_aggregate(window.this):
        script.fail(window, f"{to_sql(window.this)} OVER (...) is not available; an aggregate, or row_number() <= n, is")
    spec = window.args.get("spec")
    start = spec.args.get("start") if spec is not None else None
    whole = isinstance(start, exp.Literal) and not start.is_string and start.this.isdigit()
    if spec is None or str(spec.args.get("kind")).upper() != "ROWS" or not whole or str(spec.args.get("start_side")).upper() != "PRECEDING":
        script.fail(
            window,
            "OVER needs a number of rows, such as ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, or a span of time, such as "
            "RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW",
        )
    assert start is not None
    keys = tuple(lower.rewritten(relation, key) for key in window.args.get("partition_by") or ())
    return Over(keys, ordered(lower, relation, window), int(start.this) + 1)


def ordered(lower: Lower, relation: Relation, window: exp.Window | exp.MatchRecognize) -> tuple[tuple[exp.Expr, bool], ...]:
    """(expression, descending) of ORDER BY."""
    order = window.args.get("order")
    return tuple(order_of(lower, relation, order.expressions if order is not None else ()))


def columns_of(trees: Sequence[exp.Expr], stem: str, relation: Relation) -> tuple[list[Item], list[str]]:
    """What must be computed so that each expression is a column, and the columns' names."""
    made: list[Item] = []
    names: list[str] = []
    for tree in trees:
        if is_column(tree):
            names.append(tree.name)
        else:
            names.append(free_name(f"{stem}{len(made)}", relation.stream.columns))
            made.append((names[-1], tree))
    return made, names


def best_rows(lower: Lower, tree: exp.Select, tables: Tables, pending: list[exp.Expr]) -> Relation | None:
    """The best rows of each key, if that is what the query says; else None.

    It says so by `FROM (SELECT ..., row_number() OVER (PARTITION BY ... ORDER BY ...) AS place FROM ...) WHERE place <= n`.
    """
    source = tree.args["from_"].this
    inner = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(inner, exp.Select) or tree.args.get("joins") or any(map(inner.args.get, _BEHIND_PLACES)):
        return None
    ranks = [item for item in inner.expressions if isinstance(item, exp.Alias) and _is_rank(item.this)]
    if not ranks:
        return None
    rank = ranks[0]
    found = [(condition, most) for condition in pending if (most := _most(condition, rank.alias)) is not None]
    if len(ranks) > 1 or not found or rank.this.this.name.lower() != "row_number" or found[0][1] < 1:
        return None  # Places of all rows, which they have for ever if they are in order of event time, or in changes.
    condition, most = found[0]
    pending[:] = [other for other in pending if other is not condition]
    return _best(lower, source, inner, rank, most, tables, _named(tree, pending))


def _named(tree: exp.Select, pending: Sequence[exp.Expr]) -> set[str] | None:
    """Columns that a query and what is left of its conditions name, in small letters, and what may be one: `p` of `p.v` is a table or a
    structure. None: all, there is a star."""
    parts = [*tree.expressions, *pending]
    parts += [part for part in (tree.args.get("where"), tree.args.get("group"), tree.args.get("having")) if part is not None]
    if any(part.find(exp.Star) for part in parts):
        return None
    return {each.name.lower() for part in parts for column in part.find_all(exp.Column) for each in column.parts}


def _best(
    lower: Lower, source: exp.Subquery, inner: exp.Select, rank: exp.Alias, most: int, tables: Tables, named: set[str] | None
) -> Relation:
    """The query without its rank, its best rows, and the place as the column of the rank's name. named: columns of it that are wanted."""
    script = lower.script
    plain = inner.copy()
    plain.set("expressions", [item for item in plain.expressions if not (isinstance(item, exp.Alias) and item.alias == rank.alias)])
    plain.set("with_", None)
    window, hidden = _over_columns(rank.this, plain)
    relation = lower.query(plain, lower.with_tables(source, lower.with_tables(inner, tables)))
    if not is_changelog(relation.stream.schema):
        lower.check_final(relation, rank.this, "row_number()")
    visible = tuple(v for v in relation.columns if v.name not in hidden)
    keys = [lower.rewritten(relation, key) for key in window.args.get("partition_by") or ()]
    order = ordered(lower, relation, window)
    if not order:
        script.fail(rank.this, "row_number() OVER needs ORDER BY; say which rows are the best")
    alias = source.args.get("alias")
    windows = relation.windows
    if windows is not None and any(is_column(key) and key.name in (windows.start, windows.end) for key in keys):
        shown = _best_in_windows(lower, rank.this, relation, visible, keys, order, most, rank.alias)
        return shown if alias is None else lower.renamed(shown, alias).called(alias.name)
    made, names = columns_of([*keys, *(part for part, _ in order)], "_by", relation)
    if is_changelog(relation.stream.schema):
        places = [(name, desc) for name, (_, desc) in zip(names[len(keys) :], order, strict=True)]
        first = Place(free_name(rank.alias, relation.stream.columns), "row_number")
        found = drawn(lower, relation, made, names[: len(keys)], places, [first], rank.this, (first.name, 1, most))
        shown = Relation(found.stream, (*(replace(v, table="") for v in visible), Visible(rank.alias, "", first.name)), running=True)
        return shown if alias is None else lower.renamed(shown, alias).called(alias.name)
    if not keys:
        made.append(("_all", exp.Literal.number(0)))
    if named is not None and (alias is None or not alias.args.get("columns")):
        visible = tuple(v for v in visible if v.name.lower() in named)
    with script.at(rank.this):
        stream = computed(relation, made).stream
        wanted = {*names, *(v.column for v in visible), *(name for name, _ in made)}
        if not wanted >= set(stream.columns):
            # What is kept of a row is what somebody reads of it.
            stream = stream.select(*(quoted(name) for name in stream.columns if name in wanted))
        by = tuple((name, desc) for name, (_, desc) in zip(names[len(keys) :], order, strict=True))
        place = free_name(rank.alias, stream.columns)
        keyed = stream.key_by(*(names[: len(keys)] or ["_all"]))
        best = keyed.process(BestRows(most, by, ddl_of(stream.schema), place, lower.changes), order="arrival")
    columns = (*visible, Visible(rank.alias, "", place))
    identity = (*names[: len(keys)], *((place,) if most > 1 else ()))
    shown = Relation(best, tuple(replace(v, table="") for v in columns), running=True, identity=identity)
    return shown if alias is None else lower.renamed(shown, alias).called(alias.name)


def _over_columns(window: exp.Window, query: exp.Select) -> tuple[exp.Window, set[str]]:
    """The window over columns of the query's result, and names of those that it gets for that, because it has not got them.

    What stands in OVER is about the rows that the query reads, as are the items of its list.
    """
    window = window.copy()
    whole = any(isinstance(item, exp.Star) and not item.args.get("except_") for item in query.expressions)
    shown = {item.name.lower() for item in query.expressions if is_column(item)}
    hidden: set[str] = set()
    order = window.args.get("order")
    parts = [*(window.args.get("partition_by") or ()), *(part.this for part in (order.expressions if order is not None else ()))]
    for part in parts:
        if is_column(part) and not part.args.get("table") and (whole or part.name.lower() in shown):
            continue
        name = f"_over{len(hidden)}"
        hidden.add(name)
        query.append("expressions", exp.alias_(part.copy(), name, quoted=True, copy=False))
        part.replace(own_column(name, part))
    return window, hidden


def _best_in_windows(
    lower: Lower, where: exp.Expr, relation: Relation, visible: Sequence[Visible], keys: Sequence[exp.Expr],
    order: Sequence[tuple[exp.Expr, bool]], most: int, place: str,
) -> Relation:  # fmt: skip
    """The best rows of each of the windows that the rows are results of: they are known when the window is complete, and come once."""
    windows = relation.windows
    assert windows is not None, "there are bounds among the keys"
    check_windows(lower, windows, where)
    others = [key for key in keys if not (is_column(key) and key.name in (windows.start, windows.end))]
    made, names = columns_of(others, "_key", relation)
    relation = computed(relation, made)
    stream = relation.stream
    by = [(free_name(f"_by{number}", stream.columns), tree, desc) for number, (tree, desc) in enumerate(order)]
    hidden = {column: free_name(f"_row_{column}", stream.columns) for column in stream.columns}
    columns: list[Item] = [(hidden[name], own_column(name)) for name in stream.columns]
    columns += [(name, tree) for name, tree, _ in by]
    columns += [(START, first_of(windows)), (END, own_column(windows.end))]
    with lower.script.at(where):
        texts = tuple((name, to_sql(tree)) for name, tree in columns)
        rows = lower.flow.add("select", {"columns": texts, "event_time": END}, (stream,), None, "select")
        over = rows.group_by(*(hidden[name] for name in names)).window(f"{windows.slide_us} us", start=f"{windows.from_us} us")
        best = over.top(most, order_by=[f"{name} {'desc' if desc else 'asc'}" for name, _, desc in by])
    # The tumbling window's end is the given window's, and it is the stream's event time.
    items = [(v.name, own_column(END if v.column == windows.end else hidden[v.column])) for v in visible]
    result = lower.project(Relation(best, ()), [*items, (place, own_column(RANK))])
    end = next((name for name, tree in items if tree.name == END), "")
    start = next((v.name for v in visible if v.column == windows.start), "")
    return replace(result, windows=replace(windows, start=start, end=end) if end else None)


def _is_rank(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Window) and isinstance(tree.this, exp.Anonymous) and tree.this.name.lower() in RANKS


def _most(condition: exp.Expr, place: str) -> int | None:
    """n of `place <= n`, `place < n + 1`, `place = 1`."""
    if (
        not isinstance(condition, exp.LTE | exp.LT | exp.EQ)
        or not is_column(condition.this)
        or condition.this.name.lower() != place.lower()
    ):
        return None
    number = condition.expression
    if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdigit():
        return None
    most = int(number.this) - (1 if isinstance(condition, exp.LT) else 0)
    return most if not isinstance(condition, exp.EQ) or most == 1 else None
