"""Spark's hashes of values, `hash` (32 bits of Murmur 3) and `xxhash64`, in Python's whole numbers.

A value is hashed as its whole numbers or its bytes are, a list and a structure as their parts one after the other. A null changes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.query.sql.types import name_of
from evenflow.stream.schema import has_map

Step = Callable[[Any, int], int]
"""From a value, which is not null, and a seed to a hash, as an unsigned number."""

_EXACT: Final = Context(prec=80)
_M32: Final = 0xFFFF_FFFF
_M64: Final = 0xFFFF_FFFF_FFFF_FFFF


def _rotated(value: int, by: int, bits: int) -> int:
    return (value << by | value >> (bits - by)) & ((1 << bits) - 1)


# Murmur 3


def _mixed(hash_: int, part: int) -> int:
    part = _rotated(part * 0xCC9E2D51 & _M32, 15, 32) * 0x1B873593 & _M32
    return (_rotated(hash_ ^ part, 13, 32) * 5 + 0xE6546B64) & _M32


def murmur(kind: str, value: Any, seed: int) -> int:
    """kind: int, long or bytes. Bytes beyond the last whole four count one by one, with their sign, as in Spark."""
    hash_ = seed & _M32
    if kind == "int":
        hash_, size = _mixed(hash_, value & _M32), 4
    elif kind == "long":
        hash_, size = _mixed(_mixed(hash_, value & _M32), value >> 32 & _M32), 8
    else:
        size = len(value)
        whole = size - size % 4
        for (part,) in struct.iter_unpack("<I", value[:whole]):
            hash_ = _mixed(hash_, part)
        for byte in value[whole:]:
            hash_ = _mixed(hash_, (byte - 256 if byte > 127 else byte) & _M32)
    hash_ ^= size
    hash_ = (hash_ ^ hash_ >> 16) * 0x85EBCA6B & _M32
    hash_ = (hash_ ^ hash_ >> 13) * 0xC2B2AE35 & _M32
    return hash_ ^ hash_ >> 16


# xxHash

_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def _round(state: int, part: int) -> int:
    return _rotated((state + part * _P2) & _M64, 31, 64) * _P1 & _M64


def xxhash(kind: str, value: Any, seed: int) -> int:
    """kind: int, long or bytes."""
    seed &= _M64
    if kind == "int":
        return _avalanche(_four((seed + _P5 + 4) & _M64, value & _M32))
    if kind == "long":
        return _avalanche(_eight((seed + _P5 + 8) & _M64, value & _M64))
    at, hash_ = 0, (seed + _P5) & _M64
    if len(value) >= 32:
        states = [(seed + _P1 + _P2) & _M64, (seed + _P2) & _M64, seed, (seed - _P1) & _M64]
        while at + 32 <= len(value):
            states = [_round(s, part) for s, part in zip(states, struct.unpack_from("<4Q", value, at), strict=True)]
            at += 32
        hash_ = sum(_rotated(s, by, 64) for s, by in zip(states, (1, 7, 12, 18), strict=True)) & _M64
        for state in states:
            hash_ = ((hash_ ^ _round(0, state)) * _P1 + _P4) & _M64
    hash_ = (hash_ + len(value)) & _M64
    while at + 8 <= len(value):
        hash_, at = _eight(hash_, struct.unpack_from("<Q", value, at)[0]), at + 8
    if at + 4 <= len(value):
        hash_, at = _four(hash_, struct.unpack_from("<I", value, at)[0]), at + 4
    for byte in value[at:]:
        hash_ = _rotated(hash_ ^ byte * _P5 & _M64, 11, 64) * _P1 & _M64
    return _avalanche(hash_)


def _eight(hash_: int, part: int) -> int:
    return (_rotated(hash_ ^ _round(0, part), 27, 64) * _P1 + _P4) & _M64


def _four(hash_: int, part: int) -> int:
    return (_rotated(hash_ ^ part * _P1 & _M64, 23, 64) * _P2 + _P3) & _M64


def _avalanche(hash_: int) -> int:
    hash_ = (hash_ ^ hash_ >> 33) * _P2 & _M64
    hash_ = (hash_ ^ hash_ >> 29) * _P3 & _M64
    return hash_ ^ hash_ >> 32


# Of values

_WIDTHS: Final = {"f": "<i", "d": "<q"}


def hashed(function: Callable[[str, Any, int], int], type_: Any, shown: str) -> Step:
    """How a value of the type is hashed; times are given as their whole numbers. TypeMismatch for a map, as in Spark."""
    if pa.types.is_integer(type_) and type_.bit_width < 64 or pa.types.is_boolean(type_) or pa.types.is_date(type_):
        return lambda value, seed: function("int", int(value), seed)
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_duration(type_) or pa.types.is_null(type_):
        return lambda value, seed: function("long", value, seed)
    if pa.types.is_floating(type_):
        letter = "f" if type_.bit_width == 32 else "d"
        return lambda value, seed: function("int" if letter == "f" else "long", _bits(letter, value), seed)
    if pa.types.is_string(type_):
        return lambda value, seed: function("bytes", value.encode(), seed)
    if pa.types.is_binary(type_):
        return lambda value, seed: function("bytes", value, seed)
    if pa.types.is_decimal(type_):
        scale, short = type_.scale, type_.precision <= 18
        return lambda value, seed: function(*_digits(int(value.scaleb(scale, _EXACT)), short), seed)
    if (pa.types.is_list(type_) or pa.types.is_struct(type_)) and not _has_times(type_) and not has_map(type_):
        return _of_parts(function, type_, shown)
    raise TypeMismatch(f"{shown} is {name_of(type_)}, which cannot be hashed here")


def _of_parts(function: Callable[[str, Any, int], int], type_: Any, shown: str) -> Step:
    if pa.types.is_list(type_):
        inner = hashed(function, type_.value_type, shown)
        return lambda values, seed: _folded([(inner, value) for value in values], seed)
    steps = [(field.name, hashed(function, field.type, shown)) for field in type_]
    return lambda row, seed: _folded([(step, row[name]) for name, step in steps], seed)


def _folded(parts: list[tuple[Step, Any]], seed: int) -> int:
    for step, value in parts:
        seed = seed if value is None else step(value, seed)
    return seed


def _has_times(type_: Any) -> bool:
    """Whether Python would make objects of times inside, whose years end before Spark's."""
    if pa.types.is_list(type_):
        return _has_times(type_.value_type)
    return any(_has_times(field.type) for field in type_) if pa.types.is_struct(type_) else bool(pa.types.is_temporal(type_))


def _bits(letter: str, value: float) -> int:
    value = float("nan") if value != value else value + 0.0 if value == 0 else value
    found: int = struct.unpack(_WIDTHS[letter], struct.pack("<" + letter, value))[0]
    return found


def _digits(number: int, short: bool) -> tuple[str, Any]:
    """Of a decimal: its digits as a bigint, or as bytes where the type has more of them than that holds."""
    return (
        ("long", number)
        if short
        else ("bytes", number.to_bytes(((number if number >= 0 else ~number).bit_length()) // 8 + 1, "big", signed=True))
    )
