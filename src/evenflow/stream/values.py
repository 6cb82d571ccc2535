"""Python values as Arrow arrays of a declared type, without losing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

NOT_OF_TYPE: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError, OverflowError)
"""What Arrow raises when Python values are not of a type."""


def are_texts(values: Sequence[Any]) -> bool:
    """Whether all are strings that Arrow takes, or None. One with half of a surrogate pair, of a character cut in two, is none: it has
    no UTF-8."""
    wide = []
    for value in values:
        if value is not None:
            if type(value) is not str:
                return False
            if not value.isascii():
                wide.append(value)
    try:
        "".join(wide).encode()
    except UnicodeEncodeError:
        return False
    return True


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Python values as an array of `type_`. Raises one of NOT_OF_TYPE if a value is not of that type or would lose something."""
    array = pa.array(values, type_)
    if not _has_integers(type_) or all(type(value) is int for value in values):
        return array
    # Arrow cuts fractions off without a word when it is told to make integers of floats.
    for value, made in zip(values, array.to_pylist(), strict=True):
        if not _is_equal(value, made):
            raise ValueError(f"{value!r} would become {made!r}")
    return array


def plain_values(array: pa.Array) -> list[Any]:
    """The Python values of an array, those of times as their whole numbers, in lists too: Python's datetime has the years 1 to 9999 only.

    `pa.array(values, array.type)` is the inverse.
    """
    plain = _without_times(array.type)
    values: list[Any] = (array if plain == array.type else array.cast(plain)).to_pylist()
    return values


def _without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_without_times(type_.key_type), _without_times(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _without_times(field.type)) for field in type_])
    return {32: pa.int32(), 64: pa.int64()}.get(type_.bit_width, type_) if pa.types.is_temporal(type_) else type_


def _has_integers(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_integers(type_.field(at).type) for at in range(type_.num_fields))
    return bool(pa.types.is_integer(type_))


def _is_equal(value: Any, made: Any) -> bool:
    if value is None or made is None:
        return made is None
    if isinstance(made, dict):
        if isinstance(value, tuple):
            return len(value) == len(made) and all(map(_is_equal, tuple(value), made.values()))
        return all(_is_equal(value.get(name) if isinstance(value, Mapping) else getattr(value, name, None), made[name]) for name in made)
    if isinstance(made, list | tuple):
        if isinstance(value, Mapping):
            value = list(value.items())
        return len(value) == len(made) and all(map(_is_equal, value, made))
    return bool(value == made)


def comparable(value: Any) -> tuple[Any, ...]:
    """A Python value as a tuple that compares as Spark compares the value: null first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, *(comparable(each) for each in value.values()))
    if isinstance(value, list | tuple):
        return (1, *(comparable(each) for each in value))
    return (2,) if isinstance(value, float) and value != value else (1, value)
