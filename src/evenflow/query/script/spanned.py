"""Functions OVER rows around each one, of rows that come once: neighbours, frames of ROWS, and of RANGE by a span of event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from evenflow.query.ranked import FRAMED, NEIGHBOURS, PLACES, Place, misfit
from evenflow.query.script.lowering import Item, Lower
from evenflow.query.script.placed import in_time_order, placed_rows, together
from evenflow.query.script.relation import Relation, Visible, computed, own_column
from evenflow.query.spanned import Spanned, params_in_time, unfit
from evenflow.stream.schema import ddl_of, quoted


def is_around(window: exp.Window) -> bool:
    """Whether it is of a span of time, of all rows so far, or of other rows than the last ones up to its own."""
    spec, call = window.args.get("spec"), window.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name in NEIGHBOURS:
        return name == "lead"
    if name in PLACES or spec is None:
        return True
    ends = str(spec.args.get("end") or "CURRENT ROW").upper() != "CURRENT ROW"
    return ends or str(spec.args.get("kind")).upper() == "RANGE" or not isinstance(spec.args.get("start"), exp.Expr)


def spanned_rows(lower: Lower, relation: Relation, items: Sequence[Item]) -> Relation:
    """The query's columns, of which some have functions OVER rows in order of event time, each perhaps another one. What waits for a number
    of rows stands last: nobody knows when these come, so no box behind it can go by its rows' event time."""
    groups = sorted(together(items), key=lambda windows: any(map(_waits, windows)))
    waiting = [window for windows in groups for window in windows if _waits(window)]
    if len(groups) > 1 and any(map(_waits, groups[-2])):
        lower.script.fail(waiting[-1], "rows that follow by number are waited for in one OVER (...) of a query; in another one use RANGE")
    return placed_rows(lower, _read(relation, items), items, groups, _drawn)


def _read(relation: Relation, items: Sequence[Item]) -> Relation:
    """The relation without columns that the query does not read: what is kept of a row that waits is all of it."""
    names = {relation.find(column).column for _, item in items for column in item.find_all(exp.Column)} | {relation.stream.event_time}
    if names >= set(relation.stream.columns):
        return relation
    stream = relation.stream.select(*(quoted(name) for name in relation.stream.columns if name in names))
    return replace(relation, stream=stream, columns=tuple(v for v in relation.columns if v.column in names))


def _waits(window: exp.Window) -> bool:
    """Whether it is of rows that follow, by number."""
    spec, call = window.args.get("spec"), window.this
    if isinstance(call, exp.Anonymous) and call.name.lower() == "lead":
        return True
    if spec is None or str(spec.args.get("kind")).upper() != "ROWS":
        return False
    return str(spec.args.get("end_side") or "").upper() == "FOLLOWING"


def _drawn(
    lower: Lower, relation: Relation, new: Sequence[Item], keys: Sequence[str], by: Sequence[tuple[str, bool]], places: Sequence[Place],
    where: exp.Expr,
) -> Relation:  # fmt: skip
    rank = next((place.function for place in places if place.function in PLACES), None)
    if rank is not None and (not by or by[0] != (relation.stream.event_time, False)):
        such = "order them by event time, or keep the best rows: SELECT ... FROM (SELECT *, row_number() OVER (...) AS place FROM ...)"
        lower.script.fail(where, f"{rank} of every row would change with every row to come; {such} WHERE place <= n")
    ties = in_time_order(lower, relation, [(own_column(name), desc) for name, desc in by], where, "OVER")
    first, rest = (places, []) if not _waits_for(places) else _apart(places)
    for some in (first, rest):
        relation = _box(lower, relation, new, keys, ties, some, where) if some else relation
    return relation


def _waits_for(places: Sequence[Place]) -> bool:
    return any(place.function == "lead" or (place.function in FRAMED and not place.span and (place.high or 0) > 0) for place in places)


def _apart(places: Sequence[Place]) -> tuple[list[Place], list[Place]]:
    """Ranks, which go by rows that are equal in the order and are there with theirs; and what may be of rows that wait."""
    return [place for place in places if place.function in PLACES], [place for place in places if place.function not in PLACES]


def _box(
    lower: Lower, relation: Relation, new: Sequence[Item], keys: Sequence[str], ties: Sequence[str] | None, places: Sequence[Place],
    where: exp.Expr,
) -> Relation:  # fmt: skip
    time = str(relation.stream.event_time)
    with lower.script.at(where):
        stream = computed(relation, [item for item in new if item[0] not in relation.stream.columns]).stream
        schema = pa.schema([stream.schema.field(name) for name in stream.columns])
        answered = tuple(_answered(lower, place, schema, where, tied=ties is not None) for place in places)
        described = Spanned(ddl_of(schema), time, answered, tuple(ties or ()))
        box = lower.flow.add("process", params_in_time(keys, described, ties), (stream,), None, "over")
    return Relation(box, (*relation.columns, *(Visible(place.name, "_over", place.name) for place in places)))


def _answered(lower: Lower, place: Place, schema: pa.Schema, where: exp.Expr, *, tied: bool) -> Place:
    """The place, if a stream can have it."""
    wrong = unfit(place) or (None if place.column is None else misfit(place, schema.field(place.column).type))
    if wrong is not None:
        lower.script.fail(where, wrong)
    if place.from_first:
        return place
    if place.peers and tied:
        lower.script.fail(where, "RANGE of rows that are equal in several columns is not available; write ORDER BY the event time alone")
    return replace(place, peers=False, span=True) if place.peers else place


__all__ = ["is_around", "spanned_rows"]
