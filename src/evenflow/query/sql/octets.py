"""Functions of bytes that have the names of functions of strings: parts, padding, what they begin with. Positions count bytes, from 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import Node, Value, call, lift, literal, rowwise
from evenflow.query.sql.types import BINARY, BOOL, INT


def is_octets(*given: Node) -> bool:
    """Whether all of these are bytes."""
    return all(node.type == BINARY for node in given)


def part(a: Node, position: Node, length: Node) -> Node:
    """Bytes from a position on, counted from the end where it is below 0."""
    return rowwise(_part, BINARY, a, position, length)


def _part(value: bytes, position: int, length: int) -> bytes:
    start = position - 1 if position > 0 else len(value) + position if position < 0 else 0
    return value[max(start, 0) : max(start + length, 0)]


def padded(before: bool, a: Node, width: Node, fill: Node | None) -> Node:
    """To exactly `width` bytes; by zeros, if nothing else is said."""
    mark = literal(pa.scalar(b"\0", BINARY)) if fill is None else cast(fill, BINARY)
    return rowwise(partial(_padded, before), BINARY, a, width, mark)


def _padded(before: bool, value: bytes, size: int, mark: bytes) -> bytes:
    missing = size - len(value)
    if missing <= 0:
        return value[: max(size, 0)]
    extra = (mark * (missing // len(mark) + 1))[:missing] if mark else b""
    return extra + value if before else value + extra


def backwards(a: Node) -> Node:
    """The bytes from the last one to the first."""
    return rowwise(lambda value: value[::-1], BINARY, a)


def joined(*given: Node) -> Node:
    """One behind the other; null if one of them is."""
    join = call("binary_join_element_wise", pc.JoinOptions(null_handling="emit_null"))
    return lift(join, BINARY, *given, literal(pa.scalar(b"", BINARY)), strict=False)


def test(function: Callable[[Any, Any], bool], a: Node, b: Node) -> Node:
    """Whether something is so of two values, both bytes."""
    return rowwise(function, BOOL, a, b)


def overlaid(a: Node, new: Node, at: Node, count: Node | None) -> Node:
    """With other bytes in the place of those from a position on."""

    def one(value: bytes, put: bytes, place: int, many: int = -1) -> bytes:
        length = len(put) if many < 0 else many
        return _part(value, 1, place - 1) + put + _part(value, place + length, 2**31 - 1)

    return rowwise(one, BINARY, a, new, at, *([] if count is None else [count]))


def length(a: Node) -> Node:
    """How many bytes."""
    sized: Callable[[Value], Value] = call("binary_length")
    return lift(sized, INT, a)


def as_text(name: str, a: Node) -> Node:
    """Bytes as UTF-8: `valid` says whether they are, `make` puts a mark in the place of what is not, `try` gives null, `check` raises."""
    if name == "valid":
        return rowwise(lambda value: _read(value) is not None, BOOL, a)
    if name == "make":
        return rowwise(lambda value: value.decode(errors="replace"), pa.string(), a)
    if name == "try":
        return rowwise(_read, pa.string(), a)
    return rowwise(lambda value: value.decode(), pa.string(), a, raises=True)


def _read(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
