"""Python values as Arrow arrays of a declared type, without losing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

NOT_OF_TYPE: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError, OverflowError)
"""What Arrow raises when Python values are not of a type."""

_WORDS: Final = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


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
    keeps = _keeping(type_)
    if keeps is None or all(type(value) is int for value in values):
        return array
    # Arrow cuts fractions off without a word when it is told to make integers of floats.
    try:
        plain = array.to_pylist()
    except (OverflowError, ValueError):
        plain = plain_values(array)  # It has times that Python has not, which are not looked at.
    for value, made in zip(values, plain, strict=True):
        if not keeps(value, made):
            raise ValueError(f"{value!r} would become {made!r}")
    return array


def plain_values(array: pa.Array) -> list[Any]:
    """The Python values of an array, those of times as their whole numbers, in lists too: Python's datetime has the years 1 to 9999 only.

    `pa.array(values, array.type)` is the inverse.
    """
    plain = _without_times(array.type)
    values: list[Any] = (array if plain == array.type else array.cast(plain)).to_pylist()
    return values


def shown_values(array: pa.Array) -> list[Any]:
    """The Python values of an array for texts of them. Times beyond the years 1 to 9999 are texts already, in the form of ISO 8601 for such
    years: +33658-09-27T01:46:40."""
    try:
        values: list[Any] = array.to_pylist()
    except (OverflowError, ValueError):
        values = [_shown(value, array.type) for value in plain_values(array)]
    return values


def _shown(value: Any, type_: pa.DataType) -> Any:
    """A value of `plain_values` with its times."""
    if value is None:
        return None
    if pa.types.is_list(type_):
        return [_shown(each, type_.value_type) for each in value]
    if pa.types.is_map(type_):
        return [(_shown(key, type_.key_type), _shown(item, type_.item_type)) for key, item in value]
    if pa.types.is_struct(type_):
        return {field.name: _shown(value[field.name], field.type) for field in type_}
    if not pa.types.is_timestamp(type_) and not pa.types.is_date32(type_):
        return pa.scalar(value, type_).as_py() if pa.types.is_temporal(type_) else value
    zoned = getattr(type_, "tz", None) is not None
    time = np.datetime64(value, "D" if pa.types.is_date32(type_) else type_.unit)
    made = time.item()
    if not isinstance(made, int):
        return made.replace(tzinfo=UTC) if zoned else made
    return f"{'' if value < 0 else '+'}{str(time).removesuffix('.000000')}{'Z' if zoned else ''}"


def _without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_without_times(type_.key_type), _without_times(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _without_times(field.type)) for field in type_])
    return {32: pa.int32(), 64: pa.int64()}.get(type_.bit_width, type_) if pa.types.is_temporal(type_) else type_


_Keeping = Callable[[Any, Any], bool]
"""Whether the integers of a value are those of what Arrow has made of it."""


@lru_cache(maxsize=256)
def _keeping(type_: pa.DataType) -> _Keeping | None:
    """None: a type without integers. All else becomes what it becomes in a column of its own, a float of 64 bits one of 32, and NaN is not
    equal to itself; so only integers are compared."""
    if pa.types.is_struct(type_):
        parts = [(at, field.name, keeps) for at, field in enumerate(type_) if (keeps := _keeping(field.type)) is not None]
        return partial(_keeps_structure, parts, type_.num_fields) if parts else None
    if pa.types.is_map(type_):
        key, item = _keeping(type_.key_type), _keeping(type_.item_type)
        return None if key is None and item is None else partial(_keeps_list, partial(_keeps_pair, key, item))
    if pa.types.is_nested(type_):
        element = _keeping(type_.field(0).type)
        return None if element is None else partial(_keeps_list, element)
    return _keeps_integer if pa.types.is_integer(type_) else None


def _keeps_integer(value: Any, made: Any) -> bool:
    return made is None or bool(value == made)


def _keeps_structure(parts: Sequence[tuple[int, str, _Keeping]], size: int, value: Any, made: Any) -> bool:
    if made is None:
        return True
    if isinstance(value, tuple):
        return len(value) == size and all(keeps(value[at], made[name]) for at, name, keeps in parts)
    if isinstance(value, Mapping):
        return all(keeps(value.get(name), made[name]) for _, name, keeps in parts)
    return all(keeps(getattr(value, name, None), made[name]) for _, name, keeps in parts)


def _keeps_list(element: _Keeping, value: Any, made: Any) -> bool:
    if made is None:
        return True
    if isinstance(value, Mapping):
        value = list(value.items())
    return len(value) == len(made) and all(map(element, value, made))


def _keeps_pair(key: _Keeping | None, item: _Keeping | None, value: Any, made: Any) -> bool:
    return (key is None or key(value[0], made[0])) and (item is None or item(value[1], made[1]))


def has_floats(kind: pa.DataType) -> bool:
    """Whether equal values of the type may look different, in a part of it at least: -0.0 equals 0.0."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(has_floats, inner))


def as_bits(array: pa.Array) -> pa.Array:
    """Values that are equal and not the same, 0.0 and -0.0 or two NaNs, are told apart: floats are the whole numbers that their bits are,
    however deep they are. -0.0 is before 0.0."""
    words = _words(array.type)
    return array if words == array.type else array.view(words)


@lru_cache(maxsize=1024)
def _words(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers of the same width in place of floats, however deep they are."""
    if pa.types.is_floating(kind):
        return _WORDS[kind.bit_width]
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_words(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_words(kind.key_type)), kind.item_field.with_type(_words(kind.item_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_words(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return made(kind.value_field.with_type(_words(kind.value_type)))
    return kind


def comparable(value: Any) -> tuple[Any, ...]:
    """A Python value as a tuple that compares as Spark compares the value: null first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, *(comparable(each) for each in value.values()))
    if isinstance(value, list | tuple):
        return (1, *(comparable(each) for each in value))
    return (2,) if isinstance(value, float) and value != value else (1, value)
