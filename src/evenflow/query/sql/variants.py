"""Functions of variants: JSON to one and back, what is at a path, and casts from and to other types. Each row is looked at in Python."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import EvenflowError, TypeMismatch
from evenflow.query.sql import casts, variant_text
from evenflow.query.sql import variant_form as form
from evenflow.query.sql.node import InvalidValue, Node, attempt, lift, literal, rowwise, spread
from evenflow.query.sql.shapes import over_arrays
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.type_texts import type_of_text
from evenflow.query.sql.types import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decimal,
    floating,
    integral,
    name_of,
    stringy,
    timestampy,
)
from evenflow.query.sql.variant_edits import at_path, path_of
from evenflow.query.sql.variant_form import Tree, tree_of
from evenflow.stream.schema import VARIANT
from evenflow.stream.values import plain_values

Row = dict[str, bytes]
"""A variant as Arrow gives it."""


def needs_variant(name: str, a: Node) -> Node:
    if a.type == NULL:
        return casts.cast(a, VARIANT)
    if a.type != VARIANT:
        raise TypeMismatch(f"{name} needs a variant, but {a.text} is {name_of(a.type)}; make one with parse_json or to_variant_object")
    return a


# JSON


def _parse(tried: bool, a: Node) -> Node:
    if not stringy(a.type) and a.type != NULL:
        raise TypeMismatch(f"parse_json needs a string, but {a.text} is {name_of(a.type)}")
    text = casts.cast(a, STRING)

    def one(value: str) -> form.Bytes | None:
        try:
            return form.put_together(variant_text.read_json(value))
        except InvalidValue:
            if tried:
                return None
            raise

    return rowwise(one, VARIANT, text, raises=not tried)


def _schema(a: Node) -> Node:
    return rowwise(lambda row: variant_text.schema_of(tree_of(row)), STRING, needs_variant("schema_of_variant", a), raises=True)


def _is_null(a: Node) -> Node:
    def one(row: Row | None) -> bool:
        return row is not None and row["value"][:1] == form.NULL_VALUE

    return rowwise(one, BOOL, needs_variant("is_variant_null", a), nulls=True)


def _is_valid(a: Node) -> Node:
    def one(row: Row) -> bool:
        try:
            tree_of(row)
        except form.MalformedVariant:
            return False
        return True

    return rowwise(one, BOOL, needs_variant("is_valid_variant", a))


# What is at a path


def _get(tried: bool, a: Node, path: Node, type_: Node | None = None) -> Node:
    name = "try_variant_get" if tried else "variant_get"
    wanted = VARIANT if type_ is None else type_of_text(str(constant_of(type_, f"the type of {name}")), name)
    return got(needs_variant(name, a), path, wanted, tried)


def got(a: Node, path: Node, type_: pa.DataType, tried: bool) -> Node:
    """What is at a path of a variant, as a value of a type. tried: null where it is none of it."""
    make = reader(type_, tried)

    def one(row: Row, steps: str) -> Any:
        found = at_path(row, path_of(steps))
        try:
            return None if found is None else make(found)
        except _NO_CAST:
            shown = variant_text.to_json(found)
            raise InvalidValue(f"{shown[:200]} cannot be cast to {name_of(type_)}; use try_variant_get to get null instead") from None

    if path.constant is not None and path.constant.is_valid:
        path_of(path.constant.as_py())
    return rowwise(one, type_, a, path, raises=not tried)


class _NoCast(Exception):
    """A value is not of the type asked for."""


_NO_CAST: Final = (_NoCast, EvenflowError, pa.ArrowInvalid, OverflowError)
Make = Callable[[Tree], Any]


@lru_cache(maxsize=256)
def reader(type_: Any, tried: bool) -> Make:
    """What makes a Python value for that Arrow type of a tree; null is null. Raises one of _NO_CAST, or gives null if `tried`."""
    if type_ == VARIANT:
        return form.put_together
    if pa.types.is_map(type_) and not stringy(type_.key_type):
        raise TypeMismatch(f"a variant cannot be cast to {name_of(type_)}: names of fields are strings")
    make = _part_reader(type_, tried)

    def read(tree: Tree) -> Any:
        try:
            return None if tree == form.NULL_VALUE else make(tree)
        except _NO_CAST:
            if tried:
                return None
            raise

    return read


def _part_reader(type_: Any, tried: bool) -> Make:
    if pa.types.is_list(type_):
        item = reader(type_.value_type, tried)
        return lambda tree: [item(each) for each in _of(list, tree)]
    if pa.types.is_map(type_):
        value = reader(type_.item_type, tried)
        return lambda tree: [(name, value(tree[name])) for name in form.sorted_names(_of(dict, tree))]
    if pa.types.is_struct(type_):
        parts = [(field.name, reader(field.type, tried)) for field in type_]
        return lambda tree: tuple(None if name not in _of(dict, tree) else part(tree[name]) for name, part in parts)
    return partial(_single, type_)


def _of(kind: type, tree: Tree) -> Any:
    if not isinstance(tree, kind):
        raise _NoCast
    return tree


_SOURCES: Final = {
    "boolean": BOOL, "whole": LONG, "double": DOUBLE, "float": FLOAT, "date": DATE, "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ, "text": STRING, "binary": BINARY, "uuid": STRING,
}  # fmt: skip
_STORED: Final = {DATE: pa.int32(), TIMESTAMP: LONG, TIMESTAMP_NTZ: LONG}
_FAR: Final = 1 << 63


def _single(type_: pa.DataType, tree: Tree) -> Any:
    """A single value cast to a type without parts."""
    if not isinstance(tree, bytes):
        if stringy(type_):
            return variant_text.to_json(tree)
        raise _NoCast
    kind, value = form.kind_of(tree), form.plain(tree)
    if stringy(type_) and kind in ("text", "decimal", "whole", "uuid"):
        return variant_text.text_of(kind, value)
    if integral(type_) and kind == "whole":
        low, high = -(1 << (type_.bit_width - 1)), (1 << (type_.bit_width - 1)) - 1
        if not low <= value <= high:
            raise _NoCast
        return value
    if timestampy(type_) and kind in ("whole", "decimal"):
        if type_.tz is None:
            raise _NoCast
        micros = int(value.scaleb(6, Context(prec=60)).to_integral_value("ROUND_DOWN")) if kind == "decimal" else value * 1_000_000
        if not -_FAR <= micros < _FAR:
            raise _NoCast
        return micros
    if (kind, type_) in ((name, source) for name, source in _SOURCES.items()):
        return value
    return _converted(kind, value, type_)


def _converted(kind: str, value: Any, type_: pa.DataType) -> Any:
    """By the cast of columns, of one row."""
    if kind == "decimal":
        value = Context(prec=60).create_decimal(variant_text.shortest(value))
        scale = max(0, -int(value.as_tuple().exponent))
        source: pa.DataType = pa.decimal128(max(scale, len(value.as_tuple().digits), 1), scale)
    else:
        source = _SOURCES[kind]
    column = pa.array([value], _STORED.get(source, source)).cast(source)
    try:
        made = casts.cast(Node(source, lambda batch: batch.column(0)), type_, try_=True)
    except TypeMismatch:
        raise _NoCast from None
    found = spread(made.run(pa.record_batch([column], ["_"])), 1)
    if not found.is_valid()[0].as_py():
        raise _NoCast
    return plain_values(found)[0]


# Values as variants

Encode = Callable[[Any], Tree]


def writer(type_: Any, whole: bool, shown: str) -> Encode:
    """What makes a tree of a value as `plain_values` gives it. whole: structures and maps are objects; else they are refused."""
    make = _part_writer(type_, whole, shown)
    return lambda value: form.NULL_VALUE if value is None else make(value)


def _part_writer(type_: Any, whole: bool, shown: str) -> Encode:
    if type_ == VARIANT:
        return tree_of
    if pa.types.is_list(type_):
        item = writer(type_.value_type, whole, shown)
        return lambda value: [item(each) for each in value]
    if pa.types.is_struct(type_) and whole:
        parts = [(field.name, writer(field.type, whole, shown)) for field in type_]
        return lambda value: {name: part(value[name]) for name, part in parts}
    if pa.types.is_map(type_) and whole and stringy(type_.key_type):
        inner = writer(type_.item_type, whole, shown)
        return lambda value: {name: inner(each) for name, each in value}
    if integral(type_):
        return form.whole
    if floating(type_):
        return form.real if type_ == DOUBLE else form.short_real
    if decimal(type_):
        return form.fixed
    if timestampy(type_):
        return partial(form.moment, zoned=type_.tz is not None)
    simple: dict[pa.DataType, Encode] = {
        BOOL: lambda value: form.TRUE_VALUE if value else form.FALSE_VALUE,
        STRING: form.text, BINARY: form.octets, DATE: form.day, NULL: lambda value: form.NULL_VALUE,
    }  # fmt: skip
    if type_ not in simple:
        hint = "; to_variant_object makes one" if pa.types.is_nested(type_) and not whole else ""
        raise TypeMismatch(f"{shown} is {name_of(type_)}, which cannot be a variant{hint}")
    return simple[type_]


def to_variant(a: Node, whole: bool = False) -> Node:
    """The values of a column as variants."""
    if a.type == VARIANT:
        return a
    if a.type == NULL:
        return casts.cast(a, VARIANT)
    make = writer(a.type, whole, a.text)

    def kernel(array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else form.put_together(make(value)) for value in plain_values(array)], VARIANT)

    return lift(over_arrays(kernel), VARIANT, a, raises=pa.types.is_nested(a.type))


def _object(a: Node) -> Node:
    if not pa.types.is_nested(a.type) or a.type == VARIANT:
        raise TypeMismatch(f"to_variant_object needs a struct, a map or an array, but {a.text} is {name_of(a.type)}")
    return to_variant(a, whole=True)


def cast(a: Node, type_: pa.DataType, tried: bool) -> Node:
    """CAST from or to a variant."""
    if type_ == VARIANT:
        return attempt(to_variant(a)) if tried else to_variant(a)
    return got(a, literal(pa.scalar("$", STRING)), type_, tried)


FUNCTIONS: Final = {
    "parse_json": Signature(partial(_parse, False), 1, 1),
    "try_parse_json": Signature(partial(_parse, True), 1, 1),
    "schema_of_variant": Signature(_schema, 1, 1),
    "is_variant_null": Signature(_is_null, 1, 1),
    "is_valid_variant": Signature(_is_valid, 1, 1),
    "variant_get": Signature(partial(_get, False), 2, 3),
    "try_variant_get": Signature(partial(_get, True), 2, 3),
    "to_variant_object": Signature(_object, 1, 1),
}
