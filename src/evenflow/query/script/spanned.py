"""Functions OVER rows around each one, of rows that come once: neighbours, frames of ROWS, and of RANGE by a span of event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from evenflow.query.built import params_of
from evenflow.query.ranked import NEIGHBOURS, PLACES, Place, misfit
from evenflow.query.script.lowering import Item, Lower
from evenflow.query.script.placed import in_time_order, placed_rows, together
from evenflow.query.script.relation import Relation, Visible, computed, free_name, own_column
from evenflow.query.spanned import Gathered, Spanned, params_in_time, unfit
from evenflow.query.sql.types import name_of
from evenflow.query.user.scope import called_name
from evenflow.stream.schema import ddl_of, quoted

if TYPE_CHECKING:
    from evenflow.query.builder import Stream


def is_around(window: exp.Window) -> bool:
    """Whether it is of a span of time, of all rows so far, or of other rows than the last ones up to its own."""
    spec, call = window.args.get("spec"), window.this
    if isinstance(call, exp.IgnoreNulls):
        return True
    name = called_name(call.name) if isinstance(call, exp.Anonymous) else ""
    if name in NEIGHBOURS:
        return name == "lead"
    if name in PLACES or spec is None:
        return True
    ends = str(spec.args.get("end") or "CURRENT ROW").upper() != "CURRENT ROW"
    return ends or str(spec.args.get("kind")).upper() == "RANGE" or not isinstance(spec.args.get("start"), exp.Expr)


def spanned_rows(lower: Lower, relation: Relation, items: Sequence[Item]) -> Relation:
    """The query's columns, of which some have functions OVER rows in order of event time, each perhaps another one. What waits for a number
    of rows stands last: nobody knows when these come, so no box behind it can go by its rows' event time. Several such stand beside each
    other, see `Parts`."""
    apart = [[w for w in windows if _is_known(w) == known] for windows in together(items) for known in (False, True)]
    groups = sorted(filter(None, apart), key=lambda windows: (any(map(_waits, windows)), not windows[0].args.get("partition_by")))
    relation = _read(relation, items)
    if sum(any(map(_waits, windows)) for windows in groups) < 2:
        return placed_rows(lower, relation, items, groups, _drawn)
    parts = Parts()
    return placed_rows(lower, relation, items, groups, parts.drawn, parts.gathered)


def _read(relation: Relation, items: Sequence[Item]) -> Relation:
    """The relation without columns that the query does not read: what is kept of a row that waits is all of it."""
    names = {relation.find(column).column for _, item in items for column in item.find_all(exp.Column)} | {relation.stream.event_time}
    if names >= set(relation.stream.columns):
        return relation
    stream = relation.stream.select(*(quoted(name) for name in relation.stream.columns if name in names))
    return replace(relation, stream=stream, columns=tuple(v for v in relation.columns if v.column in names))


def _is_known(window: exp.Window) -> bool:
    """Whether it is a neighbour among the rows whose value is not null: of a box that keeps these rows, however far they are apart."""
    return isinstance(window.this, exp.IgnoreNulls) and window.this.this.name.lower() in NEIGHBOURS


def _waits(window: exp.Window) -> bool:
    """Whether it is of rows that follow, by number."""
    spec = window.args.get("spec")
    call = window.this.this if isinstance(window.this, exp.IgnoreNulls) else window.this
    if isinstance(call, exp.Anonymous) and call.name.lower() in NEIGHBOURS:
        return call.name.lower() == "lead" or any(isinstance(step, exp.Neg) for step in call.expressions[1:2])
    if spec is None or str(spec.args.get("kind")).upper() != "ROWS":
        return False
    return str(spec.args.get("end_side") or "").upper() == "FOLLOWING"


def _drawn(
    lower: Lower, relation: Relation, new: Sequence[Item], keys: Sequence[str], by: Sequence[tuple[str, bool]], places: Sequence[Place],
    where: exp.Expr,
) -> Relation:  # fmt: skip
    rank = next((place.function for place in places if place.function in PLACES), None)
    if rank is not None and (not by or by[0] != (relation.stream.event_time, False)):
        such = (
            "order them by event time, or take the best: row_number() <= 10 in QUALIFY, or in WHERE around this query, with no other rank "
            "and no DISTINCT beside it"
        )
        lower.script.fail(where, f"{rank} of every row would change with every row to come; {such}")
    ties = in_time_order(lower, relation, [(own_column(name), desc) for name, desc in by], where, "OVER")
    first, rest = (places, []) if not _waits_for(places) else _apart(places)
    for some in (first, rest):
        relation = _box(lower, relation, new, keys, ties, some, where) if some else relation
    return relation


@dataclass(slots=True)
class Parts:
    """Boxes that wait for numbers of rows, each of another key or order: every one gets all rows, and a box behind them puts together what
    they have made of each. known: the columns that a row is known by: the first one's keys, and its number among their rows.
    found: what comes out of each, and the columns that are taken of it."""

    known: tuple[str, ...] = ()
    found: list[tuple[Stream, tuple[str, ...]]] = field(default_factory=list)

    def drawn(
        self, lower: Lower, relation: Relation, new: Sequence[Item], keys: Sequence[str], by: Sequence[tuple[str, bool]],
        places: Sequence[Place], where: exp.Expr,
    ) -> Relation:  # fmt: skip
        """See `placed_rows`. The rows that it returns have no places yet."""
        if not _waits_for(places):
            return _drawn(lower, relation, new, keys, by, places, where)
        relation = computed(relation, new)
        given, names = relation, tuple(place.name for place in places)
        if not self.found:
            number = free_name("_row", [*relation.stream.columns, *names])
            given = relation = _box(lower, relation, (), keys, None, [Place(number, "count", None, None, 0)], where)
            self.known = (*keys, number)
            names = (*dict.fromkeys(visible.column for visible in relation.columns if visible.column not in self.known), *names)
        else:
            needed = {*self.known, *keys, *(name for name, _ in by), *(place.column for place in places), relation.stream.event_time}
            given = relation.where(relation.stream.select(*(quoted(name) for name in relation.stream.columns if name in needed)))
        self.found.append((_drawn(lower, given, (), keys, by, places, where).stream, names))
        return replace(relation, columns=(*relation.columns, *(Visible(place.name, "_over", place.name) for place in places)))

    def gathered(self, relation: Relation) -> Relation:
        """The whole rows. relation: the names of their columns."""
        fields = {name: self.found[0][0].schema.field(name) for name in self.known}
        fields |= {name: stream.schema.field(name) for stream, names in self.found for name in names}
        part = free_name("_part", fields)
        sides = []
        for number, (stream, names) in enumerate(self.found):
            own = {*self.known, *names}
            nulls = {name: f"CAST(NULL AS {name_of(made.type)})" for name, made in fields.items()}
            columns = [f"{quoted(name) if name in own else nulls[name]} AS {quoted(name)}" for name in fields]
            sides.append(stream.select(*columns, f"{number} AS {quoted(part)}"))
        described = Gathered(ddl_of(pa.schema(list(fields.values()))), part, tuple((*self.known, *names) for _, names in self.found))
        box = sides[0].flow.add("process", params_of(self.known, described), (sides[0].union(*sides[1:]),), None, "over")
        return Relation(box, relation.columns)


def _waits_for(places: Sequence[Place]) -> bool:
    return any(place.function == "lead" or (not place.span and ((place.low or 0) > 0 or (place.high or 0) > 0)) for place in places)


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
