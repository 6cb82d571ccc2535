"""Values of declared types as bytes, and back: what is read is what the types say, or an error; reading runs nothing.

    length of the JSON (4) | JSON | bytes that are in it, one after the other

In the JSON a value of a union of classes is [class name, fields...], any other dataclass or named tuple [fields...] in
their order, a mapping [[key, value], ...], `Any` whatever JSON can say, and bytes are their number: they follow behind
the JSON in the order in which they are met. The types are those that the classes declare for their fields.

This file knows no message. See `control` for those.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, NewType, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from evenflow.world.spark.net.framing import Piece

LENGTH: Final = struct.Struct("<I")
_TEXT: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

Write = Callable[[Any, list[Piece]], Any]
"""(value, bytes that follow the JSON: append) -> what JSON can say."""
Read = Callable[[Any, "Bytes"], Any]


class Bytes:
    """The bytes behind the JSON, taken from the front."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, count: Any) -> bytes:
        if type(count) is not int or not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"{count!r:.40} bytes of {len(self._data) - self._at}")
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    @property
    def left(self) -> int:
        return len(self._data) - self._at


@dataclasses.dataclass(frozen=True, slots=True)
class Coder:
    """How values of one type are written and read."""

    write: Write
    read: Read

    def encode(self, value: Any) -> list[Piece]:
        """In pieces, so that what is large is not copied."""
        behind: list[Piece] = []
        text = _TEXT(self.write(value, behind)).encode()
        return [LENGTH.pack(len(text)) + text, *behind]

    def decode(self, data: bytes | memoryview) -> Any:
        """Inverse of `encode`. Raises ValueError, TypeError, KeyError, struct.error or RecursionError for anything else."""
        view = memoryview(data)
        (length,) = LENGTH.unpack_from(view)
        text = view[LENGTH.size : LENGTH.size + length]
        behind = Bytes(view[LENGTH.size + length :])
        value = self.read(json.loads(bytes(text)), behind)
        if behind.left:
            raise ValueError(f"{behind.left} bytes are left over")
        return value


SPECIAL: Final[dict[Any, Coder]] = {}
"""Types that have a way of their own."""


@cache
def coder(of: Any) -> Coder:
    """The coder of a type. Raises TypeError for one that cannot be sent."""
    if of in SPECIAL:
        return SPECIAL[of]
    if isinstance(of, NewType):
        return coder(of.__supertype__)
    if of in (int, str, bool, float):
        return _scalar(of)
    origin, arguments = get_origin(of), get_args(of)
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        return _row(arguments[0]) if arguments[1:] == (...,) else _fields(lambda *values: values, [coder(each) for each in arguments])
    if origin in (dict, Mapping):
        return _mapping(*arguments)
    if isinstance(of, type) and (dataclasses.is_dataclass(of) or issubclass(of, tuple)):
        return _record(of)
    if isinstance(of, type) and issubclass(of, StrEnum):
        return Coder(lambda value, behind: str(value), lambda value, behind: of(value))
    raise TypeError(f"{of} has no form in which it could be sent")


def _as_it_is(value: Any, behind: list[Piece]) -> Any:
    return value


def _scalar(of: type) -> Coder:
    accepted = (int, float) if of is float else (of,)

    def read(value: Any, behind: Bytes) -> Any:
        if type(value) not in accepted:
            raise TypeError(f"{value!r:.60} is no {of.__name__}")
        return value

    return Coder(_as_it_is, read)


def _literal(words: tuple[Any, ...]) -> Coder:
    def read(value: Any, behind: Bytes) -> Any:
        if value not in words:
            raise ValueError(f"{value!r:.60} is none of {words}")
        return value

    return Coder(_as_it_is, read)


def _row(of: Any) -> Coder:
    """A tuple of any length."""
    if of is int or getattr(of, "__supertype__", None) is int:

        def numbers(value: Any, behind: Bytes) -> Any:
            if type(value) is not list or set(map(type, value)) - {int}:
                raise TypeError(f"{value!r:.60} are no integers")
            return tuple(value)

        return Coder(_as_it_is, numbers)
    write, read_one = coder(of).write, coder(of).read

    def read(value: Any, behind: Bytes) -> Any:
        if type(value) is not list:
            raise TypeError(f"{value!r:.60} is no list")
        return tuple([read_one(each, behind) for each in value])

    return Coder(lambda value, behind: [write(each, behind) for each in value], read)


def _fields(make: Callable[..., Any], coders: list[Coder], take: Callable[[Any], Any] = iter) -> Coder:
    """So many values, each of its type."""
    writes, reads = [each.write for each in coders], [each.read for each in coders]

    def read(value: Any, behind: Bytes) -> Any:
        if type(value) is not list or len(value) != len(reads):
            raise TypeError(f"{value!r:.60} are not {len(reads)} values")
        return make(*[read_one(each, behind) for read_one, each in zip(reads, value)])

    return Coder(lambda value, behind: [write(each, behind) for write, each in zip(writes, take(value))], read)


def _record(of: type) -> Coder:
    hints = get_type_hints(of)
    if not dataclasses.is_dataclass(of):
        return _fields(of, [coder(hints[name]) for name in of._fields])  # type: ignore[attr-defined]
    names = [field.name for field in dataclasses.fields(of)]
    return _fields(of, [coder(hints[name]) for name in names], lambda value: [getattr(value, name) for name in names])


def _mapping(key: Any, value: Any) -> Coder:
    pairs = _row(tuple[key, value])
    return Coder(lambda mapping, behind: pairs.write(mapping.items(), behind), lambda found, behind: dict(pairs.read(found, behind)))


def _union(of: tuple[Any, ...]) -> Coder:
    """Of one type and None, or of classes that have names."""
    some = [each for each in of if each is not NoneType]
    if len(some) == 1:
        write_it, read_it = coder(some[0]).write, coder(some[0]).read
        return Coder(
            lambda value, behind: None if value is None else write_it(value, behind),
            lambda value, behind: None if value is None else read_it(value, behind),
        )
    coders = {each.__name__: coder(each) for each in some}

    def write(value: Any, behind: list[Piece]) -> Any:
        name = type(value).__name__
        return [name, *coders[name].write(value, behind)]

    def read(value: Any, behind: Bytes) -> Any:
        name, *fields = value
        return coders[name].read(fields, behind)

    return Coder(write, read)


def _write_bytes(value: Any, behind: list[Piece]) -> Any:
    behind.append(value)
    return len(value)


SPECIAL[Any] = Coder(
    _as_it_is, lambda value, behind: value
)  # What JSON can say, as it is: it runs nothing either, and who reads it looks at it.
SPECIAL[bytes] = Coder(_write_bytes, lambda value, behind: behind.take(value))
SPECIAL[pa.Schema] = Coder(
    lambda schema, behind: _write_bytes(schema.serialize().to_pybytes(), behind),
    lambda value, behind: pa.ipc.read_schema(pa.py_buffer(behind.take(value))),
)
