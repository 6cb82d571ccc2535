"""Joins of results that change: what a join of two changelogs leaves is the join of what they leave.

Such a join is drawn with boxes that are there already, as `latest` is: both sides get the same columns and are united, and a processor
keeps the rows of both sides by key. A row of plain rows is one that comes and stays. There is no event time behind it, since a pair may
come or go whenever either of its rows does; and nothing is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.built import params_of
from evenflow.query.changed_pairs import BACK, KEY, LEFT, Pairs
from evenflow.query.columns import Nulls
from evenflow.query.handle import HandledStream
from evenflow.query.join import Join, check_keys, out_columns
from evenflow.query.kinds.judging import check_key_type, known
from evenflow.query.sql.types import common, name_of
from evenflow.stream.change import CHANGE, CHANGE_FIELD, is_changelog
from evenflow.stream.schema import ddl_of, has_map, quoted, type_name

S = TypeVar("S", bound=HandledStream)

_TAKEN: Final = f"{CHANGE} IN ('update_before', 'delete')"


def draw_changing(left: S, right: S, join: Join, box: str) -> S:
    """The changelog of a join in which at least one side changes. join: without bounds in time. box: its name.

    Raises QueryError, UnknownColumn or TypeMismatch.
    """
    sides = [pa.schema([field for field in stream.schema if field.name != CHANGE]) for stream in (left, right)]
    kinds = _keys(box, join, *sides)
    for schema in sides:
        for field in schema:
            if has_map(field.type):
                raise TypeMismatch(f"box {box!r}: {field.name!r} is {field.type}, by which rows cannot be told apart; leave it out before")
    out = out_columns(join, *sides)
    output = pa.schema([*(column.field for column in out), CHANGE_FIELD])
    pairs = Pairs(
        ddl_of(output), ddl_of(sides[0]), ddl_of(sides[1]), join.how, len(kinds), join.condition,
        tuple((column.left, column.right) for column in out),
    )  # fmt: skip
    with left.flow.whole():
        texts = [
            [f"CAST({quoted(name)} AS {kind})" for name, kind in zip(names, kinds, strict=False)]
            for names in (join.left_keys, join.right_keys)
        ]
        return draw_sides(left, right, texts, pairs, box)


def draw_sides(
    left: S, right: S, keys: Sequence[Sequence[str]], pairs: Pairs, box: str, value: Callable[[pa.Field], str] = attrgetter("name")
) -> S:  # fmt: skip
    """The box of `pairs` with both sides in front of it. keys: of each side, the expressions by which rows meet; none: all do. value: what
    is kept of a column."""
    names = [f"{KEY}{number}" for number in range(max(len(keys[0]), 1))]
    sides = [[field for field in stream.schema if field.name != CHANGE] for stream in (left, right)]
    drawn = []
    for number, stream in enumerate((left, right)):
        made: list[tuple[str, Any]] = list(zip(names, keys[number], strict=True)) if keys[number] else [(names[0], "0")]
        made += [(LEFT, "true" if number == 0 else "false"), (BACK, _TAKEN if is_changelog(stream.schema) else "false")]
        for side, fields in zip("lr", sides, strict=True):
            own = side == "lr"[number]
            made += [(f"{side}{at}__", value(field) if own else Nulls(type_name(field.type))) for at, field in enumerate(fields)]
        drawn.append(stream._drawn("select", {"columns": tuple(made)}, (stream,), f"{box}.{'left' if number == 0 else 'right'}", ""))
    both = left._drawn("union", {}, drawn, f"{box}.both", "")
    return both._drawn("process", params_of(names, pairs), (both,), box, "")


def as_changes(stream: S) -> S:
    """Plain rows as a changelog, of which each comes and stays."""
    if is_changelog(stream.schema):
        return stream
    columns = (*((name, name) for name in stream.schema.names), (CHANGE, "'insert'"))
    return stream._drawn("select", {"columns": columns}, (stream,), None, "changes")


def _keys(box: str, join: Join, left: pa.Schema, right: pa.Schema) -> Sequence[str]:
    """The types, as SQL, in which keys of both sides meet."""
    for schema, keys in ((left, join.left_keys), (right, join.right_keys)):
        for key in keys:
            check_key_type(box, key, known(box, key, schema).type)
    check_keys(join, left, right)
    pairs = zip(join.left_keys, join.right_keys, strict=True)
    return [name_of(common((left.field(a).type, right.field(b).type), f"the key {a!r}")) for a, b in pairs]


__all__ = ["as_changes", "draw_changing", "draw_sides"]
