"""Whether a message of Avro bounds what is read of it, by the schema that it was written with.

With a registry whoever writes a message chooses its schema, and fastavro follows that in C, as deep as it goes, and counts as far as the
message says. So the schema must bound both by the bytes that there are. None is read in which

    a record holds itself               a level for each byte is more than a stack has
    types are nested too deeply         by names as well, where records hold those that were named before them
    items of an array take no bytes     so there are as many as the message says, in none: null, a record of nulls, fixed of size 0
    too many values take no bytes       each of 60 records may hold the one before it twice

Items of a map have a key, of a byte at least. What is in a union has its number, of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MOST_LEVELS: Final = 100
"""As Protobuf has it."""
MOST_EMPTY: Final = 100
"""Values that take no bytes, in one that is read: as many steps are made for a byte."""


class Unreadable(Exception):
    """What of a schema has no bounds."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a type.

    levels: as deep as types are nested in it. empty: at most so many values that take no bytes are read with one of it. bytes: whether it
    takes any itself. unheard: whether fastavro skips one where the message has ended as if it were there. counted: whether an array in it
    has such items.
    """

    levels: int = 1
    empty: int = 0
    bytes: bool = True
    unheard: bool = False
    counted: bool = False


UNHEARD: Final = Shape(unheard=True)
PRIMITIVES: Final = {
    "null": Shape(empty=1, bytes=False, unheard=True), "boolean": UNHEARD, "float": UNHEARD, "double": UNHEARD, "int": Shape(),
    "long": Shape(), "bytes": Shape(), "string": Shape(), "enum": Shape(),
}  # fmt: skip


def shape_of(schema: Any) -> Shape:
    """The shape of a schema that fastavro has parsed, which has all names in full. Raises Unreadable."""
    return _shape(schema, {}, 1)


def _shape(said: Any, named: dict[str, Shape | None], level: int) -> Shape:
    """named: the types that were named before this one; None: it is in that one."""
    if isinstance(said, str):
        found = PRIMITIVES[said] if said in PRIMITIVES else named[said]
        if found is None:
            raise Unreadable(f"{said!r} holds itself, so nothing says how deep a message of it may be")
        return found
    if level > MOST_LEVELS:
        raise Unreadable(f"types are nested in each other more than {MOST_LEVELS} deep")
    kind = "union" if isinstance(said, list) else said["type"]
    name = said["name"] if kind in ("record", "error", "fixed", "enum") else None
    if name is not None:
        named[name] = None
    found = _of_kind(kind, said, named, level)
    if found.levels > MOST_LEVELS:
        raise Unreadable(f"types are nested in each other more than {MOST_LEVELS} deep")
    if found.empty > MOST_EMPTY:
        raise Unreadable(f"more than {MOST_EMPTY} values of {name or kind!r} take no bytes of a message")
    if name is not None:
        named[name] = found
    return found


def _of_kind(kind: str, said: Any, named: dict[str, Shape | None], level: int) -> Shape:
    if kind == "fixed":
        there = isinstance(said["size"], int) and said["size"] > 0
        return Shape(empty=int(not there), bytes=there, unheard=True)
    if kind == "array":
        items = _shape(said["items"], named, level + 1)
        if not items.bytes:
            raise Unreadable("items of an array take no bytes of a message, so nothing says how many there may be")
        return Shape(items.levels + 1, items.empty, counted=items.counted or items.unheard)
    if kind == "map":
        items = _shape(said["values"], named, level + 1)
        return Shape(items.levels + 1, items.empty, counted=items.counted)
    if kind == "union":
        parts = [_shape(each, named, level + 1) for each in said]
        return Shape(_levels(parts), max([each.empty for each in parts], default=0), counted=any(each.counted for each in parts))
    if kind in ("record", "error"):
        parts = [_shape(each["type"], named, level + 1) for each in said["fields"]]
        there = any(each.bytes for each in parts)
        empty = sum(each.empty for each in parts) or int(not there)
        return Shape(_levels(parts), empty, there, all(each.unheard for each in parts), any(each.counted for each in parts))
    return PRIMITIVES[kind]


def _levels(parts: Sequence[Shape]) -> int:
    return 1 + max([each.levels for each in parts], default=0)


__all__ = ["Shape", "Unreadable", "shape_of"]
