"""VALUES (1, 'a'), (2, 'b') AS v(id, name): rows that stand in the text.

A stream that is joined with them has them as an array of structures in each row, of which a join keeps those that its condition holds for.
So no state is kept, and nothing waits. In FROM they are a source that ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from evenflow.query.expression import compile_expression
from evenflow.query.script.lateral import generated
from evenflow.query.script.lowering import Lower
from evenflow.query.script.relation import Relation
from evenflow.query.sql.parser import free_variable, parse, to_sql
from evenflow.query.user.scope import built_in

_HOW: Final = {
    **dict.fromkeys((("", ""), ("", "INNER"), ("", "CROSS")), "inline"), **dict.fromkeys((("LEFT", ""), ("LEFT", "OUTER")), "inline_outer"),
}  # fmt: skip


def with_values(lower: Lower, left: Relation, join: exp.Join) -> Relation:
    """left JOIN VALUES ... ON ..."""
    values, name = join.this, _HOW.get((join.side.upper(), join.kind.upper()))
    if name is None or join.args.get("method"):
        lower.script.fail(join, "rows of VALUES are joined to a stream by INNER, LEFT or CROSS JOIN, with the stream on the left")
    names, table = _names(lower, values), values.alias
    condition = join.args.get("on")
    if using := join.args.get("using"):
        condition = exp.and_(
            *(exp.EQ(this=exp.column(each.name, quoted=True), expression=exp.column(each.name, table=table or "_values")) for each in using)
        )
    rows: exp.Expr = parse(_array(lower, values, names))
    if condition is not None:
        rows = _chosen(left, rows, condition, names, table)
    relation = generated(lower, left, exp.Anonymous(this=name, expressions=[rows]), names, table)
    if not using:
        return relation
    hidden = {each.name.lower() for each in using}
    shown = [v for at, v in enumerate(relation.columns) if at < len(left.columns) or v.name.lower() not in hidden]
    return Relation(relation.stream, tuple(shown), relation.windows, running=relation.running)


def source_of(lower: Lower, values: exp.Values) -> Relation:
    """FROM VALUES ..."""
    from evenflow.sources import memory

    names = _names(lower, values)
    with lower.script.at(values):
        made = compile_expression(_array(lower, values, names), pa.schema([("_", pa.int64())]))
        rows = made(pa.record_batch({"_": pa.array([0])})).flatten()
    batch = pa.RecordBatch.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))
    stream = lower.flow.source(memory([[batch]]), name=lower.flow.free(values.alias or "values"))
    return Relation.of(stream, values.alias)


def _names(lower: Lower, values: exp.Values) -> list[str]:
    alias = values.args.get("alias")
    given = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
    widths = {len(row.expressions) if isinstance(row, exp.Tuple) else 1 for row in values.expressions}
    if len(widths) != 1 or (given and len(given) not in widths):
        lower.script.fail(values, "the rows of VALUES have as many values as each other, and as there are names of columns")
    return given or [f"col{at}" for at in range(1, widths.pop() + 1)]


def _array(lower: Lower, values: exp.Values, names: Sequence[str]) -> str:
    rows = []
    for row in values.expressions:
        parts = row.expressions if isinstance(row, exp.Tuple) else [row]
        if any(part.find(exp.Column, exp.Query) for part in parts):
            lower.script.fail(row, "a row of VALUES is made of constants")
        held = ", ".join(f"{to_sql(exp.Literal.string(name))}, {to_sql(part)}" for name, part in zip(names, parts, strict=True))
        rows.append(f"{built_in('named_struct')}({held})")
    return f"{built_in('array')}({', '.join(rows)})"


def _chosen(left: Relation, rows: exp.Expr, condition: exp.Expr, names: Sequence[str], table: str) -> exp.Expr:
    """The rows that the condition holds for."""
    known = {name.lower(): name for name in names}
    each = free_variable(f"{to_sql(condition)} {to_sql(rows)}")

    def field(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.name.lower() not in known:
            return node
        of_values = node.table.lower() in (table.lower(), "_values") if node.table else not left.matches(node)
        return exp.column(known[node.name.lower()], table=each, quoted=True) if of_values else node

    return parse(f"{built_in('filter')}({to_sql(rows)}, {each} -> {to_sql(condition.copy().transform(field))})")
