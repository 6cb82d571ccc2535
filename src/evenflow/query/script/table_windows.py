"""Windows as Flink and RisingWave write them, as Spark's `window(time, size[, slide[, start]])`.

`FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), size))` and `FROM HOP(t, time, slide, size)`, whose rows have `window_start` and `window_end`;
and `GROUP BY TUMBLE(time, size)`, with `TUMBLE_START(time, size)`. A query that groups the rows of such a table by one of these bounds
groups by the window, so that each of its results comes once. Any other reads rows that have the bounds as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp

from evenflow.query.user.scope import built_in, is_known

_EDGES: Final = {"window_start": "start", "window_end": "end"}
_BOUNDS: Final[Mapping[str, exp.Expr]] = {
    "start": exp.column("start", table="window"), "end": exp.column("end", table="window"),
    "rowtime": exp.Anonymous(this="window_time", expressions=[exp.column("window")]),
}  # fmt: skip
"""What TUMBLE_START and the like are of the window that is grouped by."""
_SPANS: Final = {"tumble": 1, "hop": 2}
"""By name, how many spans it has, and it may have an offset behind them."""


def with_windows_of_tables(tree: exp.Select) -> exp.Select:
    """The query with Spark's windows in the place of these; the tree itself if it has none."""
    items = [part for part in _parts(tree) if _window_of(part.this) is not None]
    keys = [key for key in _keys(tree) if _call(key, 1) is not None]
    if not items and not keys:
        return tree
    made = tree.copy()
    if keys:
        made.args["group"].set("expressions", [_call(key, 1) or key for key in _keys(made)])
        _rename_calls(made, keys)
    if items and not made.args.get("joins") and any(_edge(key) for key in _keys(made)):
        _group_by_window(made)
    for part in _parts(made):
        if (window := _window_of(part.this)) is not None:
            part.set("this", _with_bounds(part.this, window))
    return made


def _parts(tree: exp.Select) -> list[exp.Expr]:
    """What stands in FROM, and the joins."""
    return [part for part in (tree.args.get("from_"), *(tree.args.get("joins") or ())) if part is not None]


def _keys(tree: exp.Select) -> list[exp.Expr]:
    group = tree.args.get("group")
    return [] if group is None else list(group.expressions)


def _call(tree: exp.Expr, before: int) -> exp.Expr | None:
    """window(...) for TUMBLE(time, size[, offset]) or HOP(time, slide, size[, offset]). before: how many arguments, with the time as the
    last, are before the spans. None for anything else."""
    count = _SPANS.get(tree.name.lower()) if isinstance(tree, exp.Anonymous) and not is_known(tree.name) else None
    if count is None or len(tree.expressions) - before not in (count, count + 1):
        return None
    time, *spans = tree.expressions[before - 1 :]
    if isinstance(time, exp.Anonymous) and time.name.lower() == "descriptor" and len(time.expressions) == 1:
        time = time.expressions[0]
    size, slide, offset = spans[count - 1], spans[0], spans[count:]
    sliding = [slide] if count == 2 or offset else []
    return exp.Anonymous(this=built_in("window"), expressions=[each.copy() for each in (time, size, *sliding, *offset)])


def _window_of(item: exp.Expr) -> tuple[exp.Identifier, exp.Expr] | None:
    """(name of the table, window of its rows) of an item of FROM; None if it is no table with windows."""
    call = item.this if isinstance(item, exp.Table) else None
    if isinstance(call, exp.Anonymous) and call.name.lower() == "table" and len(call.expressions) == 1:
        call = call.expressions[0]
    window = _call(call, 2) if isinstance(call, exp.Anonymous) and len(call.expressions) > 1 else None
    table = call.expressions[0] if window is not None and isinstance(call, exp.Anonymous) else None
    if window is None or not isinstance(table, exp.Table | exp.Column) or not isinstance(table.this, exp.Identifier):
        return None
    return table.this, window


def _edge(tree: exp.Expr) -> str | None:
    return _EDGES.get(tree.name.lower()) if isinstance(tree, exp.Column) else None


def _group_by_window(tree: exp.Select) -> None:
    """Group the rows of the table by the window itself, and not by the columns that have its bounds."""
    item = tree.args["from_"].this
    found = _window_of(item)
    assert found is not None
    name, window = found
    tree.args["from_"].set("this", exp.Table(this=name.copy(), alias=item.args.get("alias")))
    tree.args["group"].set("expressions", [window, *(key for key in _keys(tree) if _edge(key) is None)])
    tree.set("expressions", [exp.alias_(each, each.name) if _edge(each) else each for each in tree.expressions])
    for column in [node for node in _outside(tree) if _edge(node)]:
        column.replace(_bound(str(_edge(column))))


def _rename_calls(tree: exp.Select, keys: Sequence[exp.Expr]) -> None:
    """TUMBLE_START(...) and the like of a window that is grouped by as its bounds. keys: these, as they were written."""
    for node in list(_outside(tree)):
        name, _, bound = node.name.lower().partition("_") if isinstance(node, exp.Anonymous) and not is_known(node.name) else ("", "", "")
        if any(key.name.lower() == name and key.expressions == node.expressions for key in keys) and bound in _BOUNDS:
            node.replace(_BOUNDS[bound].copy())


def _outside(tree: exp.Select) -> Iterator[exp.Expr]:
    """Nodes of the query's own clauses, and none of the queries in it."""
    return (node for node in tree.walk(prune=lambda node: node is not tree and isinstance(node, exp.Select | exp.Subquery)))


def _bound(edge: str) -> exp.Column:
    return exp.column(edge, table="window")


def _with_bounds(item: exp.Expr, found: tuple[exp.Identifier, exp.Expr]) -> exp.Subquery:
    name, window = found
    bounds = [exp.alias_(exp.Dot(this=window.copy(), expression=exp.to_identifier(edge)), column) for column, edge in _EDGES.items()]
    rows = exp.Select(expressions=[exp.Star(), *bounds], from_=exp.From(this=exp.Table(this=name.copy())))
    alias = item.args.get("alias") or exp.TableAlias(this=name.copy())
    return exp.Subquery(this=rows, alias=alias.copy())


__all__ = ["with_windows_of_tables"]
