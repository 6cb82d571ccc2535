"""Joins as they are drawn and checked: what `stream.join(...)` says, and what a join box makes of its inputs.

kind        params
join        join: Join; two inputs, left and right
table_join  join: Join, table: pyarrow.Table or RefreshedTable
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import QueryError
from evenflow.query import whose
from evenflow.query.changing import draw_changing
from evenflow.query.drawing import Aliased
from evenflow.query.duration import duration_us
from evenflow.query.given import box_name, names_of, spelled
from evenflow.query.handle import HandledStream
from evenflow.query.join import (
    Join,
    parse_how,
    split_condition,
)
from evenflow.query.kinds.judging import naming
from evenflow.query.kinds.kind import StreamType
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.spark_column import is_spark_column, meaning, name_of, text_of
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.tables import RefreshedTable, table_of
from evenflow.stream.change import is_changelog

S = TypeVar("S", bound=HandledStream)
SUFFIX: Final = "_right"
"""Of columns that both sides have, where the join is told by columns of PySpark. There they both have the name, and `b.k` says which."""

# ---------------------------------------------------------------- drawing


def draw_join(
    left: S, right: Any, on: str | Sequence[str] | None, how: str, condition: str | None,
    within: str | timedelta | None, suffix: str | None, unbounded: bool, name: str | None,
) -> S:  # fmt: skip
    """See `Stream.join`."""
    box = left.flow.free("join") if name is None else box_name(name, "join")
    with naming(box):
        aliases = _aliases_of(right)
        on, condition, told = _without_columns(left, right, aliases, on, condition)
        names = _names(box, on)
        suffix = SUFFIX if suffix is None and told else suffix
        join = Join(parse_how(how), (), (), suffix=suffix, unbounded=unbounded)
    if isinstance(right, type(left)):
        with naming(box):
            join = _by(join, names, left.schema, right.schema)
        if is_changelog(left.schema) or is_changelog(right.schema):
            if within is not None:
                raise QueryError(f"box {box!r} joins results that change, which have no time of their own; leave out within")
            with naming(box):
                split = _split(join, condition, left.schema, right.schema, None, None)
            return draw_changing(left, right, split, box)
        with naming(box):
            join = _timed(join, left.type, right.type, condition, within)
        return left._drawn("join", {"join": join}, (left, right), name, "join")
    if within is not None or unbounded:
        raise QueryError(f"box {box!r}: a table has no event time and is held whole; leave out within and unbounded")
    table = right if isinstance(right, RefreshedTable) else table_of(box, right)
    if isinstance(table, RefreshedTable) and any(
        other.name == table.name and other is not table for other in refreshed_tables(left.flow.network)
    ):
        raise QueryError(f"box {box!r}: two tables are called {table.name!r}; give one of them another name")
    with naming(box):
        join = _split(_by(join, names, left.schema, table.schema), condition, left.schema, table.schema, None, None)
    drawn = left._drawn("table_join", {"join": join, "table": table}, (left,), name, "join")
    for alias in aliases:
        left.flow.aliases.setdefault(alias, []).append(Aliased(drawn.handle, 0, table=True))
    return drawn


def _without_columns(left: HandledStream, right: Any, table: Sequence[str], on: Any, condition: Any) -> tuple[Any, Any, bool]:
    """Columns of PySpark that `on` has, as a condition: whose each is says the stream, the DataFrame or the alias that it was taken from,
    `a.k == b.k`, or who has a column of that name. And whether it has some: then `b.k` is told from `a.k` behind the join, too. table:
    aliases of a right side that is one."""
    given = list(on) if isinstance(on, list | tuple) else [on]
    told = bool(given) and all(is_spark_column(each) and name_of(each) is None for each in given)
    aliases = {*left.flow.aliases, *table}
    texts = [condition] if isinstance(condition, str) and (told or aliases) else []
    if not told and not texts:
        return on, condition, False
    stream = right if isinstance(right, HandledStream) else None
    names = {"l": left.schema.names, "r": _columns(right)}

    def sided(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or (node.table and (node.table in names or node.table not in aliases)):
            return node
        if node.table:
            return whose.of_side(left, stream, table, node)
        owners = [side for side, columns in names.items() if spelled(node.name, columns) in columns]
        if len(owners) != 1:
            who = "both sides have" if owners else "no side has"
            raise QueryError(f"{who} a column {node.name!r}; say whose it is, as in a.join(b, a.k == b.k) or condition='l.k = r.k'")
        return exp.column(node.name, table=owners[0], quoted=True)

    if told:
        with meaning(whose.InJoin(left, stream)):
            texts = [*map(text_of, given), *texts]
    trees = [parse(text).transform(sided) for text in texts]
    return None if told else on, to_sql(exp.and_(*trees)), told


def _columns(right: Any) -> list[str]:
    """Of a stream or a table, without asking Spark for its rows."""
    schema = getattr(right, "schema", None)
    return list(schema.names if isinstance(schema, pa.Schema) else right.columns)


def _aliases_of(right: Any) -> tuple[str, ...]:
    """Of a DataFrame of Spark."""
    if not hasattr(right, "_jdf"):
        return ()
    plan = right._jdf.queryExecution().analyzed()
    while plan.getClass().getSimpleName() == "ResolvedHint":
        plan = plan.child()
    return (str(plan.alias()),) if plan.getClass().getSimpleName() == "SubqueryAlias" else ()


def _names(box: str, on: str | Sequence[str] | None) -> tuple[str, ...]:
    for column in () if on is None or isinstance(on, str) else on if isinstance(on, list | tuple) else (on,):
        if not isinstance(column, str):
            raise QueryError(f"`on` has names of columns that both sides have, not {column!r:.60}; write condition='l.a = r.b'")
    return () if on is None else names_of(box, "on", on)


def _by(join: Join, names: Sequence[str], left: pa.Schema, right: pa.Schema) -> Join:
    """The join by columns of these names, of each side as it spells them."""
    ours, theirs = (tuple(spelled(name, side.names) for name in names) for side in (left, right))
    return replace(join, left_keys=ours, right_keys=theirs, using=ours)


def _timed(join: Join, left: StreamType, right: StreamType, condition: str | None, within: str | timedelta | None) -> Join:
    """The join with its bounds in event time."""
    join = _split(join, condition, left.schema, right.schema, left.event_time, right.event_time)
    lows, highs = [join.low_us], [join.high_us]
    if within is not None:
        span_us = duration_us(within)
        if left.event_time is None or right.event_time is None:
            raise QueryError("`within` is about event time; declare .with_watermark('ts', '10 seconds') on both streams")
        lows, highs = [*lows, -span_us], [*highs, span_us]
    if any(pair == (left.event_time, right.event_time) for pair in zip(join.left_keys, join.right_keys, strict=True)):
        lows, highs = [*lows, 0], [*highs, 0]
    low_us = max((low for low in lows if low is not None), default=None)
    return replace(join, low_us=low_us, high_us=min((high for high in highs if high is not None), default=None))


def _split(join: Join, condition: str | None, left: pa.Schema, right: pa.Schema, left_time: str | None, right_time: str | None) -> Join:
    if condition is None:
        return join
    if not isinstance(condition, str):
        raise QueryError(f"the condition {condition!r} is not a string; write an expression such as 'l.price > r.least'")
    found = split_condition(condition, left, right, left_time, right_time)
    left_keys = (*join.left_keys, *(key for key, _ in found.keys))
    right_keys = (*join.right_keys, *(key for _, key in found.keys))
    return replace(join, left_keys=left_keys, right_keys=right_keys, low_us=found.low_us, high_us=found.high_us, condition=found.rest)
