"""Functions OVER a span of time: RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW, of rows that come once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from evenflow.query.ranked import FRAMED, Place
from evenflow.query.script.lowering import Item, Lower
from evenflow.query.script.placed import placed_rows
from evenflow.query.script.relation import Relation, Visible, computed
from evenflow.query.spanned import Spanned, params_in_time
from evenflow.stream.schema import ddl_of


def spanned_rows(lower: Lower, relation: Relation, items: Sequence[Item]) -> Relation:
    """The query's columns, of which some have functions OVER spans of event time, each perhaps another one."""
    return placed_rows(lower, relation, items, _drawn)


def _drawn(
    lower: Lower, relation: Relation, new: Sequence[Item], keys: Sequence[str], by: Sequence[tuple[str, bool]], places: Sequence[Place],
    where: exp.Expr,
) -> Relation:  # fmt: skip
    time = relation.stream.event_time
    if time is None or list(by) != [(time, False)]:
        column = "one with a watermark" if time is None else next((v.name for v in relation.columns if v.column == time), time)
        lower.script.fail(where, f"rows come in order of event time, so OVER must say ORDER BY its column, {column}, ascending")
    for place in places:
        if place.function not in FRAMED or not place.span:
            lower.script.fail(where, "frames by rows and by time are of two queries; write one around the other")
        if place.low is None:
            lower.script.fail(where, "all rows so far would be kept for ever; write INTERVAL '10' MINUTES PRECEDING in place of UNBOUNDED")
        if place.high is None:
            lower.script.fail(where, "all rows that follow would be waited for; write AND INTERVAL '10' MINUTES FOLLOWING, or CURRENT ROW")
    with lower.script.at(where):
        stream = computed(relation, new).stream
        schema = pa.schema([stream.schema.field(name) for name in stream.columns])
        box = lower.flow.add("process", params_in_time(keys, Spanned(ddl_of(schema), time, tuple(places)), None), (stream,), None, "over")
    return Relation(box, (*relation.columns, *(Visible(place.name, "_over", place.name) for place in places)))


__all__ = ["spanned_rows"]
