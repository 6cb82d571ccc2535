"""FROM GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL '1' MINUTE, ...) to a resample box, as BigQuery spells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from evenflow.query.script.lowering import Lower, Tables
from evenflow.query.script.relation import Relation, Visible, computed, free_name, own_column
from evenflow.query.script.spans import span_us

_ARGUMENTS: Final = ("ts_column", "bucket_width", "partitioning_columns", "value_columns", "max_gap")
_METHODS: Final = {"locf": "previous", "linear": "linear", "null": "previous"}


def is_gap_fill(tree: exp.Expr) -> bool:
    """Whether an item of FROM is a call of GAP_FILL."""
    return isinstance(tree, exp.Table) and isinstance(tree.this, exp.Anonymous) and tree.this.name.lower() == "gap_fill"


def gap_filled(lower: Lower, tree: exp.Table, tables: Tables) -> Relation:
    """A row of each key at every multiple of the width from its first to its last: the time, the keys, the values."""
    script, call = lower.script, tree.this
    relation, given = _source(lower, tree, tables), _arguments(lower, tree)
    lower.check_final(relation, tree, "GAP_FILL")
    time = relation.stream.event_time
    named = _found(lower, relation, given["ts_column"])
    if named.column != time:
        column = "one with a watermark" if time is None else next((v.name for v in relation.columns if v.column == time), time)
        script.fail(given["ts_column"], f"GAP_FILL goes by event time; its ts_column is {column} (of windows, their end)")
    keys = [_found(lower, relation, each) for each in _listed(lower, given.get("partitioning_columns"))]
    values = [_method(lower, relation, each) for each in _listed(lower, given.get("value_columns"))]
    seen = free_name("_seen", relation.stream.columns)
    made = computed(relation, [(seen, own_column(named.column))])
    filled = dict.fromkeys(visible.column for visible, _ in values)
    for visible, method in values:
        if filled[visible.column] is not None:
            script.fail(call, f"GAP_FILL has two methods for {visible.name!r}; name it once")
        filled[visible.column] = _METHODS[method]
    gap = given.get("max_gap")
    with script.at(tree):
        stream = made.stream.group_by(*(key.column for key in keys)).resample(
            f"{span_us(lower, given['bucket_width'])} us", *filled, seen, how={**filled, seen: "previous"},  # type: ignore[dict-item]
            max_gap=None if gap is None else f"{span_us(lower, gap)} us",
        )  # fmt: skip
    shown = [Visible(v.name, "", v.column) for v in (named, *keys, *(visible for visible, _ in values))]
    there = exp.EQ(this=own_column(seen), expression=own_column(named.column))
    alone = {visible.column for visible, method in values if method == "null"}
    items = [
        (v.name, exp.Case(ifs=[exp.If(this=there.copy(), true=own_column(v.column))]) if v.column in alone else own_column(v.column))
        for v in shown
    ]
    result = lower.project(Relation(stream, tuple(shown)), items)
    alias = tree.args.get("alias")
    return result if alias is None else lower.renamed(result, alias).called(alias.name)


def _source(lower: Lower, tree: exp.Table, tables: Tables) -> Relation:
    """What is filled: TABLE name, TABLE(name), TABLE(SELECT ...) or a query in parentheses."""
    first = tree.this.expressions[0] if tree.this.expressions else None
    if isinstance(first, exp.Anonymous) and first.name.lower() == "table" and len(first.expressions) == 1:
        first = first.expressions[0]
    if isinstance(first, exp.Column):
        first = exp.Table(this=first.this)
    if isinstance(first, exp.Select):
        return lower.query(first, tables)
    if isinstance(first, exp.Table | exp.Subquery):
        return lower.table(first, tables)
    raise lower.script.error(tree, "GAP_FILL begins with what it fills: GAP_FILL(TABLE t, ts_column => 'ts', ...)")


def _arguments(lower: Lower, tree: exp.Table) -> Mapping[str, exp.Expr]:
    found: dict[str, exp.Expr] = {}
    for each in tree.this.expressions[1:]:
        name = each.this.name.lower() if isinstance(each, exp.Kwarg) else ""
        if name not in _ARGUMENTS or name in found:
            lower.script.fail(tree, f"GAP_FILL takes, each once and by name, {', '.join(_ARGUMENTS)}, such as ts_column => 'ts'")
        found[name] = each.expression
    for name in _ARGUMENTS[:2]:
        if name not in found:
            lower.script.fail(tree, f"GAP_FILL needs {name}; write ts_column => 'ts', bucket_width => INTERVAL '1' MINUTE")
    return found


def _listed(lower: Lower, tree: exp.Expr | None) -> list[exp.Expr]:
    """What is in ['a', 'b'] or array('a', 'b')."""
    if tree is None:
        return []
    if isinstance(tree, exp.Array) or (isinstance(tree, exp.Anonymous) and tree.name.lower() == "array"):
        return list(tree.expressions)
    raise lower.script.error(tree, "GAP_FILL takes lists here, such as ['a', 'b']")


def _found(lower: Lower, relation: Relation, tree: exp.Expr) -> Visible:
    """The column that a text names."""
    if not isinstance(tree, exp.Literal) or not tree.is_string:
        lower.script.fail(tree, "GAP_FILL takes the names of columns as texts, such as 'ts'")
    with lower.script.at(tree):
        return relation.find(exp.column(tree.name, quoted=True))


def _method(lower: Lower, relation: Relation, tree: exp.Expr) -> tuple[Visible, str]:
    """(column, method) of ('column', 'method')."""
    parts = tree.expressions if isinstance(tree, exp.Tuple) else []
    if len(parts) != 2 or parts[1].name.lower() not in _METHODS:
        lower.script.fail(tree, f"GAP_FILL takes a column and one of {', '.join(_METHODS)}, such as ('x', 'locf')")
    return _found(lower, relation, parts[0]), parts[1].name.lower()


__all__ = ["gap_filled", "is_gap_fill"]
