"""Python values that state keeps, and what users are handed of them.

A kept value is never changed: the state, snapshots of it, and calls that are made again share it (protocol S1). Its lists are tuples.
Its structures are dicts and its maps lists of pairs, as Arrow makes them, so who may change what he is handed gets copies of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

Handing = Callable[[Any], Any]
"""Makes of a kept value the one that is handed out. It can be pickled."""


def handing(type_: pa.DataType, *, lists: bool = False) -> Handing | None:
    """How kept values of a type are handed out: a structure as a new dict of its own, a map as a new dict, at any depth. None: as they are,
    since they cannot be changed. lists: lists are new lists; otherwise they are so inside structures only, and tuples elsewhere.

    A key that is a list or a structure is a tuple. Cost: O(values inside), of types with a structure or a map.
    """
    if pa.types.is_struct(type_):
        parts = [(field.name, handing(field.type, lists=True)) for field in type_]
        return partial(_structure, [(name, part) for name, part in parts if part is not None])
    if pa.types.is_map(type_):
        return partial(_map, handing_of_map(handing_of_key(type_.key_type), handing(type_.item_type, lists=lists)))
    if pa.types.is_list(type_):
        element = handing(type_.value_type, lists=lists)
        if lists:
            return _plain_list if element is None else partial(_list, element)
        return None if element is None else partial(_tuple, element)
    return None


def handing_of_key(type_: pa.DataType) -> Handing | None:
    """How keys of maps are handed out, as keys of a dict."""
    return _key if pa.types.is_nested(type_) else None


def handing_of_list(element: Handing | None) -> Handing:
    """How a list is handed out: a new one, empty where there is none."""
    return _some_list if element is None else partial(_some_list_of, element)


def handing_of_map(key: Handing | None, item: Handing | None) -> Handing:
    """How a map is handed out: a new dict, empty where there is none."""
    return _some_dict if key is None and item is None else partial(_some_dict_of, key or _as_it_is, item or _as_it_is)


def _some_list(value: Sequence[Any] | None) -> list[Any]:
    return list(value or ())


def _some_list_of(element: Handing, value: Sequence[Any] | None) -> list[Any]:
    return [element(each) for each in value or ()]


def _some_dict(pairs: Sequence[tuple[Any, Any]] | None) -> dict[Any, Any]:
    return dict(pairs or ())


def _some_dict_of(key: Handing, item: Handing, pairs: Sequence[tuple[Any, Any]] | None) -> dict[Any, Any]:
    return {key(name): item(each) for name, each in pairs or ()}


def _structure(parts: Sequence[tuple[str, Handing]], value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    made = dict(value)
    for name, part in parts:
        made[name] = part(made[name])
    return made


def _map(made: Handing, value: Sequence[tuple[Any, Any]] | None) -> Any:
    return None if value is None else made(value)


def _plain_list(value: Sequence[Any] | None) -> list[Any] | None:
    return None if value is None else list(value)


def _list(element: Handing, value: Sequence[Any] | None) -> list[Any] | None:
    return None if value is None else [element(each) for each in value]


def _tuple(element: Handing, value: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple([element(each) for each in value])


def _key(value: Any) -> Any:
    if isinstance(value, dict):
        value = tuple(value.values())
    return tuple(map(_key, value)) if isinstance(value, list | tuple) else value


def _as_it_is(value: Any) -> Any:
    return value


def immutable(value: Any) -> Any:
    """The value with its lists as tuples, at any depth outside structures."""
    return tuple(immutable(each) for each in value) if isinstance(value, list | tuple) else value


def same(one: Any, other: Any) -> bool:
    """Whether two values are bitwise the same: NaN is itself, -0.0 is not 0.0, True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, float):
        return bool(np.float64(one).view(np.int64) == np.float64(other).view(np.int64))
    return bool(one == other)
