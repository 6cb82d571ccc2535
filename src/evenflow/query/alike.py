"""Rows that two streams have, and those that only the first one has, by all their columns: INTERSECT and EXCEPT, with ALL and without.

Drawn as a join of what changes is (`changing`): each row is the key by which the two sides meet, nulls too, and how often it is there on
each says how often it comes out.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import pyarrow as pa

from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.changed_pairs import Alike, Pairs
from evenflow.query.changing import draw_sides
from evenflow.query.given import box_name
from evenflow.query.handle import HandledStream
from evenflow.query.sql.types import name_of
from evenflow.stream.change import CHANGE, CHANGE_FIELD
from evenflow.stream.schema import ddl_of, has_map, quoted

S = TypeVar("S", bound=HandledStream)

STEMS: Final[dict[Alike, str]] = {"both": "intersect", "both all": "intersect", "first": "subtract", "first all": "subtract"}


def draw_alike(left: S, right: Any, how: Alike, name: str | None = None) -> S:
    """The changelog of the rows that both have, or only `left` has. Raises QueryError or TypeMismatch."""
    box = left.flow.free(STEMS[how]) if name is None else box_name(name, STEMS[how])
    if not isinstance(right, type(left)):
        raise QueryError(f"box {box!r} compares streams, not {type(right).__name__} {right!r:.60}")
    sides = [pa.schema([field for field in stream.schema if field.name != CHANGE]) for stream in (left, right)]
    if [(f.name, f.type) for f in sides[0]] != [(f.name, f.type) for f in sides[1]]:
        raise TypeMismatch(
            f"box {box!r} compares streams of different columns, ({ddl_of(sides[0])}) and ({ddl_of(sides[1])}); make them equal in names, "
            "types and order with .select(...)"
        )
    for field in sides[0]:
        if has_map(field.type):
            raise TypeMismatch(f"box {box!r}: {field.name!r} is {field.type}, by which rows cannot be told apart; leave it out before")
    output = ddl_of(pa.schema([*sides[0], CHANGE_FIELD]))
    columns = tuple((field.name, None) for field in sides[0])
    pairs = Pairs(output, ddl_of(sides[0]), ddl_of(sides[1]), how, len(columns), None, columns)
    with left.flow.whole():
        return draw_sides(left, right, [[whole(field) for field in side] for side in sides], pairs, box, whole)


def whole(field: pa.Field) -> str:
    """A column as groups have it: of zeros, which may have a sign, the one without."""
    if not pa.types.is_floating(field.type):
        return str(field.name)
    return f"CASE WHEN {quoted(field.name)} = 0 THEN CAST(0 AS {name_of(field.type)}) ELSE {quoted(field.name)} END"


__all__ = ["draw_alike", "whole"]
