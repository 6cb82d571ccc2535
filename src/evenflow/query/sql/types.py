"""Types as Spark's ANSI mode sees them: names, precedence, the common type of several, and what fits where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from evenflow.errors import TypeMismatch
from evenflow.stream.schema import VARIANT

BOOL: Final = pa.bool_()
INT: Final = pa.int32()
LONG: Final = pa.int64()
FLOAT: Final = pa.float32()
DOUBLE: Final = pa.float64()
STRING: Final = pa.string()
BINARY: Final = pa.binary()
DATE: Final = pa.date32()
TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
INTERVAL: Final = pa.duration("us")
MONTHS: Final = pa.month_day_nano_interval()
"""Of a constant of years and months, which moves a time by the calendar. No column is of it."""
TIME: Final = pa.time64("us")
"""Of a constant time of a day, TIME '12:30:00'. No column is of it."""
NULL: Final = pa.null()

NUMBERS: Final = (pa.int8(), pa.int16(), INT, LONG, FLOAT, DOUBLE)
"""By precedence: the type of `a + b` is the later of the two."""

_NAMES: Final = {
    BOOL: "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", INT: "int", LONG: "bigint", FLOAT: "float", DOUBLE: "double",
    STRING: "string", BINARY: "binary", DATE: "date", TIMESTAMP: "timestamp", TIMESTAMP_NTZ: "timestamp_ntz",
    INTERVAL: "interval", MONTHS: "interval of months", NULL: "void", VARIANT: "variant",
    TIME: "time",
}  # fmt: skip


def name_of(type: pa.DataType) -> str:
    """The type's name in Spark SQL."""
    if type == VARIANT or (not pt.is_nested(type) and not pt.is_decimal(type)):
        return _NAMES.get(type, str(type))
    if pt.is_map(type):
        return f"map<{name_of(type.key_type)},{name_of(type.item_type)}>"
    if pt.is_list(type):
        return f"array<{name_of(type.value_type)}>"
    if pt.is_struct(type):
        return f"struct<{','.join(f'{field_name(field.name)}:{name_of(field.type)}' for field in type)}>"
    return f"decimal({type.precision},{type.scale})" if pt.is_decimal(type) else str(type)


def field_name(name: str) -> str:
    """The name of a field as SQL takes it in a type."""
    return name if name.isidentifier() and name.isascii() else f"`{name.replace('`', '``')}`"


def integral(type: pa.DataType) -> bool:
    return bool(pt.is_signed_integer(type))


def floating(type: pa.DataType) -> bool:
    return bool(pt.is_floating(type))


def numeric(type: pa.DataType) -> bool:
    return type in NUMBERS or bool(pt.is_decimal(type))


def decimal(type: pa.DataType) -> bool:
    return bool(pt.is_decimal(type))


def stringy(type: pa.DataType) -> bool:
    return bool(pt.is_string(type) or pt.is_large_string(type))


def timestampy(type: pa.DataType) -> bool:
    return bool(pt.is_timestamp(type))


def bounds(type: Any) -> tuple[int, int]:
    """Smallest and largest value of a signed integer type."""
    half = 1 << (type.bit_width - 1)
    return -half, half - 1


def common(types: Sequence[pa.DataType], what: str) -> pa.DataType:
    """The type that all of `types` are cast to when they meet. TypeMismatch if Spark has none."""
    result: pa.DataType = NULL
    for type in types:
        met = meet(result, type)
        if met is None:
            raise TypeMismatch(f"{what} mixes {name_of(result)} and {name_of(type)}; cast one of them")
        result = met
    return result


def meet(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The common type of two (Spark's ANSI coercion: a string meets an atomic type in that type), or None."""
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    for one, other in ((a, b), (b, a)):
        if stringy(one):
            return _meet_string(other)
        if one == DATE and timestampy(other):
            return other
    if timestampy(a) and timestampy(b):
        return a if a.tz else b
    if VARIANT in (a, b):
        return None
    if pt.is_nested(a) and pt.is_nested(b):
        return _meet_nested(a, b)
    return _meet_numbers(a, b) if numeric(a) and numeric(b) else None


def _meet_nested(a: Any, b: Any) -> pa.DataType | None:
    """Lists with lists, maps with maps, structures with those of the same names, by the common types of their parts."""
    if pt.is_list(a) and pt.is_list(b):
        inner = meet(a.value_type, b.value_type)
        return None if inner is None else pa.list_(inner)
    if pt.is_map(a) and pt.is_map(b):
        key, item = meet(a.key_type, b.key_type), meet(a.item_type, b.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if not pt.is_struct(a) or not pt.is_struct(b) or [f.name.lower() for f in a] != [f.name.lower() for f in b]:
        return None
    fields = [(one.name, meet(one.type, other.type)) for one, other in zip(a, b, strict=True)]
    return None if any(type is None for _, type in fields) else pa.struct(fields)


def _meet_string(other: pa.DataType) -> pa.DataType | None:
    if integral(other):
        return LONG
    if floating(other) or decimal(other):
        return DOUBLE
    if stringy(other):
        return STRING
    return other if other in (BOOL, DATE, BINARY) or timestampy(other) else None


def _meet_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if decimal(a) and decimal(b):
        scale = max(a.scale, b.scale)
        return pa.decimal128(min(38, scale + max(a.precision - a.scale, b.precision - b.scale)), scale)
    if decimal(a) or decimal(b):
        fixed, other = (a, b) if decimal(a) else (b, a)
        return DOUBLE if floating(other) else _meet_numbers(fixed, _DIGITS[other])
    wider = NUMBERS[max(NUMBERS.index(a), NUMBERS.index(b))]
    # An integer and a float meet in double, because float cannot hold every int.
    return DOUBLE if wider == FLOAT else wider


def with_names(type: Any, of: Any) -> pa.DataType:
    """The type with the names of another one's fields, wherever both have structures of as many fields."""
    if type == of:
        return type
    if pt.is_struct(type) and pt.is_struct(of) and type.num_fields == of.num_fields:
        return pa.struct([(other.name, with_names(one.type, other.type)) for one, other in zip(type, of, strict=True)])
    if pt.is_list(type) and pt.is_list(of):
        return pa.list_(with_names(type.value_type, of.value_type))
    return type


_DIGITS: Final = {
    pa.int8(): pa.decimal128(3, 0), pa.int16(): pa.decimal128(5, 0), INT: pa.decimal128(10, 0), LONG: pa.decimal128(20, 0),
}  # fmt: skip
