"""Variants as bytes, in the format that Spark and Parquet have: what is in one, and the bytes of what shall be in one.

A variant is two texts of bytes: the names of all fields in it, each once, and the value, where a field is a number among those names. Here
a variant that was taken apart is a tree: a dict of fields, a list, or the bytes of a single value, which hold their type and have no names.
So what is not looked at is carried over as it is. This file knows no JSON, no path and no column.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from evenflow.query.sql.node import InvalidValue

Tree = Any
"""dict[str, Tree], list[Tree] or bytes."""
Bytes = tuple[bytes, bytes]
"""Value and names."""

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_VERSION: Final = 1
_MOST: Final = 128 * 1024 * 1024
_MOST_SHORT: Final = 63
_NAMES_OF_KINDS: Final = (
    "null", "true", "false", "int1", "int2", "int4", "int8", "double", "decimal4", "decimal8", "decimal16", "date", "timestamp",
    "timestamp_ntz", "float", "binary", "text", "time", "timestamp_nanos", "timestamp_ntz_nanos", "uuid",
)  # fmt: skip
_NUMBER_OF: Final = {name: number for number, name in enumerate(_NAMES_OF_KINDS)}
_SIZES: Final = {
    "null": 0, "true": 0, "false": 0, "int1": 1, "int2": 2, "int4": 4, "int8": 8, "double": 8, "float": 4, "decimal4": 5, "decimal8": 9,
    "decimal16": 17, "date": 4, "timestamp": 8, "timestamp_ntz": 8, "time": 8, "timestamp_nanos": 8, "timestamp_ntz_nanos": 8, "uuid": 16,
}  # fmt: skip
_WHOLES: Final = (("int1", 1), ("int2", 2), ("int4", 4), ("int8", 8))
_DECIMALS: Final = (("decimal4", 9, 4), ("decimal8", 18, 8), ("decimal16", 38, 16))


class MalformedVariant(InvalidValue):
    """Bytes that are no variant, as Spark's MALFORMED_VARIANT."""


# Bytes of single values


def _header(kind: str) -> bytes:
    return bytes([_NUMBER_OF[kind] << 2 | _PRIMITIVE])


NULL_VALUE: Final = _header("null")
TRUE_VALUE: Final = _header("true")
FALSE_VALUE: Final = _header("false")


def whole(value: int) -> bytes:
    """A whole number of up to eight bytes, in the fewest that there are."""
    for kind, size in _WHOLES:
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            return _header(kind) + value.to_bytes(size, "little", signed=True)
    raise MalformedVariant(f"{value} has more than eight bytes")


def fixed(value: Decimal) -> bytes:
    """A decimal of up to 38 digits, with the scale that it has."""
    sign, digits, exponent = value.as_tuple()
    scale, unscaled = -int(exponent), int("".join(map(str, digits)))
    for kind, most, size in _DECIMALS:
        if scale <= most and len(str(unscaled)) <= most:
            return _header(kind) + bytes([scale]) + (-unscaled if sign else unscaled).to_bytes(size, "little", signed=True)
    raise MalformedVariant(f"{value} has more than 38 digits")


def real(value: float) -> bytes:
    return _header("double") + struct.pack("<d", value)


def short_real(value: float) -> bytes:
    return _header("float") + struct.pack("<f", value)


def text(value: str | bytes) -> bytes:
    """A text, whose length stands in its first byte if it is short."""
    letters = value.encode() if isinstance(value, str) else value
    if len(letters) <= _MOST_SHORT:
        return bytes([len(letters) << 2 | _SHORT_TEXT]) + letters
    return _header("text") + len(letters).to_bytes(4, "little") + letters


def octets(value: bytes) -> bytes:
    return _header("binary") + len(value).to_bytes(4, "little") + value


def day(value: int) -> bytes:
    """A date, as days since 1970."""
    return _header("date") + value.to_bytes(4, "little", signed=True)


def moment(value: int, zoned: bool) -> bytes:
    """A timestamp, as microseconds since 1970."""
    return _header("timestamp" if zoned else "timestamp_ntz") + value.to_bytes(8, "little", signed=True)


# What is in the bytes of a single value


def kind_of(tree: Tree) -> str:
    """What a value is: object, array, null, boolean, whole, double, float, decimal, date, timestamp, timestamp_ntz, text, binary, uuid."""
    if isinstance(tree, dict):
        return "object"
    if isinstance(tree, list):
        return "array"
    if tree[0] & 3 == _SHORT_TEXT:
        return "text"
    name = _kind(tree[0])
    if name in ("true", "false"):
        return "boolean"
    return "whole" if name.startswith("int") else "decimal" if name.startswith("decimal") else name


def _kind(first: int) -> str:
    if first & 3 == _PRIMITIVE and first >> 2 < len(_NAMES_OF_KINDS):
        return _NAMES_OF_KINDS[first >> 2]
    raise MalformedVariant(f"the byte {first:#x} begins no value of a variant")


def plain(tree: bytes) -> Any:
    """A single value: None, bool, int (dates and times too), float, Decimal as it is written, str, or bytes."""
    if tree[0] & 3 == _SHORT_TEXT:
        return _letters(tree[1:])
    name, body = _kind(tree[0]), tree[1:]
    if name in ("double", "float"):
        return struct.unpack("<d" if name == "double" else "<f", body)[0]
    if name.startswith("decimal"):
        return Decimal(int.from_bytes(body[1:], "little", signed=True)).scaleb(-body[0], _EXACT)
    if name in ("text", "binary"):
        return _letters(body[4:]) if name == "text" else body[4:]
    if name == "uuid":
        return body
    return {"null": None, "true": True, "false": False}.get(name, int.from_bytes(body, "little", signed=True))


def _letters(body: bytes) -> str:
    return body.decode(errors="replace")


_EXACT: Final = Context(prec=60)

# Bytes of a whole one


def tree_of(row: Mapping[str, bytes]) -> Tree:
    """The tree of a variant as Arrow gives it. Raises MalformedVariant."""
    return taken_apart(row["value"], row["metadata"])


def taken_apart(value: bytes, names: bytes) -> Tree:
    """The tree of a variant. Raises MalformedVariant."""
    try:
        if not names or names[0] & 15 != _VERSION:
            raise MalformedVariant("the names of a variant begin with its version, 1")
        return _tree(value, 0, _names(names))[0]
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedVariant(f"bytes that are no variant: {error}") from None


def _names(given: bytes) -> Callable[[int], str]:
    size = (given[0] >> 6 & 3) + 1
    count = _number(given, 1, size)
    begin = 1 + size * (count + 2)

    def name(at: int) -> str:
        if at >= count:
            raise MalformedVariant(f"there is no name {at} among {count}")
        low, high = (_number(given, 1 + size * (1 + at + k), size) for k in (0, 1))
        if begin + high > len(given):
            raise MalformedVariant("the names of a variant end before what it says is in them")
        return given[begin + low : begin + high].decode()

    return name


def _number(given: bytes, at: int, size: int) -> int:
    if at + size > len(given):
        raise MalformedVariant("a variant ends before what it says is in it")
    return int.from_bytes(given[at : at + size], "little")


def _tree(given: bytes, at: int, name: Callable[[int], str]) -> tuple[Tree, int]:
    """The value that begins there, and where it ends."""
    first = given[at]
    basic, rest = first & 3, first >> 2
    if basic == _OBJECT:
        return _object(given, at, (rest >> 4 & 1, (rest >> 2 & 3) + 1, (rest & 3) + 1), name)
    if basic == _ARRAY:
        return _array(given, at, (rest >> 2 & 1, (rest & 3) + 1), name)
    end = at + 1 + rest if basic == _SHORT_TEXT else at + _length(given, at)
    if end > len(given):
        raise MalformedVariant("a variant ends before what it says is in it")
    return given[at:end], end


def _length(given: bytes, at: int) -> int:
    name = _kind(given[at])
    return 5 + _number(given, at + 1, 4) if name in ("text", "binary") else 1 + _SIZES[name]


def _object(given: bytes, at: int, sizes: tuple[int, int, int], name: Callable[[int], str]) -> tuple[Tree, int]:
    large, id_size, offset_size = sizes
    count = _number(given, at + 1, 4 if large else 1)
    ids = at + (5 if large else 2)
    offsets = ids + count * id_size
    begin = offsets + (count + 1) * offset_size
    fields = {}
    for place in range(count):
        inner = begin + _number(given, offsets + place * offset_size, offset_size)
        fields[name(_number(given, ids + place * id_size, id_size))] = _tree(given, inner, name)[0]
    return fields, begin + _number(given, offsets + count * offset_size, offset_size)


def _array(given: bytes, at: int, sizes: tuple[int, int], name: Callable[[int], str]) -> tuple[Tree, int]:
    large, size = sizes
    count = _number(given, at + 1, 4 if large else 1)
    offsets = at + (5 if large else 2)
    begin = offsets + (count + 1) * size
    items = [_tree(given, begin + _number(given, offsets + place * size, size), name)[0] for place in range(count)]
    return items, begin + _number(given, offsets + count * size, size)


def put_together(tree: Tree) -> Bytes:
    """The bytes of a tree: names in the order in which they come, values in that order too. Raises InvalidValue if they are too many."""
    numbers: dict[str, int] = {}
    value = _written(tree, numbers)
    letters = [name.encode(errors="replace") for name in numbers]
    size = _fewest(max(sum(map(len, letters)), len(letters)))
    head = bytes([_VERSION | (size - 1) << 6]) + len(letters).to_bytes(size, "little")
    names = head + _offsets([len(each) for each in letters], size) + b"".join(letters)
    if len(value) > _MOST or len(names) > _MOST:
        raise InvalidValue("a variant has at most 128 MiB")
    return value, names


def _written(tree: Tree, numbers: dict[str, int]) -> bytes:
    if isinstance(tree, bytes):
        return tree
    if isinstance(tree, list):
        items = [_written(item, numbers) for item in tree]
        large, size = len(items) > 255, _fewest(sum(map(len, items)))
        head = bytes([(large << 2 | size - 1) << 2 | _ARRAY]) + len(items).to_bytes(4 if large else 1, "little")
        return head + _offsets([len(item) for item in items], size) + b"".join(items)
    ids, items = [], []
    for name, inner in tree.items():
        ids.append(numbers.setdefault(name, len(numbers)))
        items.append(_written(inner, numbers))
    ends = _ends([len(item) for item in items])
    order = sorted(range(len(ids)), key=[_units(name) for name in tree].__getitem__)
    large, id_size, size = len(ids) > 255, _fewest(max(ids, default=0)), _fewest(ends[-1])
    head = bytes([(large << 4 | (id_size - 1) << 2 | size - 1) << 2 | _OBJECT]) + len(ids).to_bytes(4 if large else 1, "little")
    places = b"".join(ids[k].to_bytes(id_size, "little") for k in order)
    begins = b"".join(ends[k].to_bytes(size, "little") for k in [*order, len(ids)])
    return head + places + begins + b"".join(items)


def _units(name: str) -> bytes:
    """What Java compares texts by."""
    return name.encode("utf-16-be", "surrogatepass")


def sorted_names(tree: dict[str, Tree]) -> list[str]:
    """The names of an object's fields in their order."""
    return sorted(tree, key=_units)


def _offsets(lengths: list[int], size: int) -> bytes:
    return b"".join(end.to_bytes(size, "little") for end in _ends(lengths))


def _ends(lengths: list[int]) -> list[int]:
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return ends


def _fewest(value: int) -> int:
    """How many bytes a number takes, one to four."""
    return 1 if value <= 0xFF else 2 if value <= 0xFFFF else 3 if value <= 0xFFFFFF else 4
