"""Dataclasses as plain JSON values and back, by the names and types of their fields: for what another process or a file tells.

Types of fields are whole numbers, finite numbers, texts, true or false, Literal, other such dataclasses, None besides any of them, tuples
of any length, tuples of a fixed one, and Any for a JSON object that is kept as it is.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from evenflow.errors import StatisticsError

T = TypeVar("T")

PLAIN: Final = frozenset({int, float, str, bool, type(None)})
"""Types whose values JSON has as they are: most of what is told."""
WORDS: Final = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false"}


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, tuple):
        return list(value) if value and type(value[0]) is int else [plain(each) for each in value]
    return plain_fields(value) if is_dataclass(value) else value


def plain_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by their names, as JSON has them."""
    cls: Any = type(value)
    names, values = _names(cls)
    return {name: each if type(each) in PLAIN else plain(each) for name, each in zip(names, values(value), strict=True)}


@cache
def _names(cls: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Of the fields of a class, and what has their values from one."""
    names = tuple(each.name for each in fields(cls))
    return names, attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


def value_of(cls: type[T], data: Any, at: str, makes: str) -> T:
    """The dataclass of which `plain_fields` made `data`. at: its name in messages. makes: who makes what is expected.

    Raises StatisticsError naming the field that is missing or wrong; more fields do no harm.
    """
    if not isinstance(data, dict):
        raise StatisticsError(f"{at} must be an object, not {data!r:.60}; {makes}")
    return _object(cls, data, at)


@cache
def _types(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls)


@cache
def _defaults(cls: Any) -> frozenset[str]:
    """Fields that a value may lack: whoever has made it did not know them yet."""
    return frozenset(each.name for each in fields(cls) if each.default is not MISSING or each.default_factory is not MISSING)


def _object(cls: type[T], data: Any, at: str) -> T:
    if not isinstance(data, dict):
        raise StatisticsError(f"{at} must be an object, not {data!r:.60}")
    known: Any = cls
    wanted = _types(known)
    defaults = _defaults(known)
    missing = [name for name in wanted if name not in data and name not in defaults]
    if missing:
        raise StatisticsError(f"{at} has no field {missing[0]!r}; it has {', '.join(map(str, data)) or 'none'}")
    return cls(**{name: _value(each, data[name], f"{at}.{name}") for name, each in wanted.items() if name in data})


def _value(wanted: Any, value: Any, at: str) -> Any:
    if wanted is Any:
        if not isinstance(value, dict):
            raise StatisticsError(f"{at} must be an object, not {value!r:.60}")
        return value
    origin, inner = get_origin(wanted), get_args(wanted)
    if is_dataclass(wanted):
        assert isinstance(wanted, type)
        return _object(wanted, value, at)
    if origin is tuple:
        return _tuple(inner, value, at)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(inner[0], value, at)
    if origin is Literal:
        if value not in inner:
            raise StatisticsError(f"{at} must be one of {', '.join(inner)}, not {value!r:.60}")
        return value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted or (wanted is float and not math.isfinite(value)):
        raise StatisticsError(f"{at} must be {WORDS[wanted]}, not {value!r:.60}")
    return value


def _tuple(inner: tuple[Any, ...], value: Any, at: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise StatisticsError(f"{at} must be a list, not {value!r:.60}")
    if inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            raise StatisticsError(f"{at} must have {len(inner)} values, not {len(value)}")
        return tuple([_value(each, one, f"{at}[{place}]") for place, (each, one) in enumerate(zip(inner, value, strict=True))])
    if inner[0] is int and all(type(each) is int for each in value):  # Thousands of counters; what is wrong is told below.
        return tuple(value)
    return tuple([_value(inner[0], each, f"{at}[{place}]") for place, each in enumerate(value)])
