"""Structures and maps as the user's functions are given them, which is as PySpark gives them: a Row and a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


class Row(tuple[Any, ...]):
    """The values of a structure's fields: `row.name`, `row["name"]`, `row[0]`, `"name" in row` and `row.asDict()`, as PySpark's."""

    __fields__: tuple[str, ...]

    def __new__(cls, names: tuple[str, ...], values: Any) -> Row:
        made = super().__new__(cls, values)
        made.__fields__ = names
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.__fields__:
            raise AttributeError(name)
        return self[self.__fields__.index(name)]

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        if at not in self.__fields__:
            raise KeyError(at)
        return super().__getitem__(self.__fields__.index(at))

    def __contains__(self, item: Any) -> bool:
        return item in self.__fields__

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        """The values by their names. recursive: structures inside too."""
        return {name: _plain(value) if recursive else value for name, value in zip(self.__fields__, tuple(self), strict=True)}

    def __reduce__(self) -> tuple[Any, ...]:
        return (Row, (self.__fields__, tuple(self)))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.__fields__, tuple(self), strict=True))})"


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(True)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def as_given(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a value that `pa.Array.to_pylist` gives the one that a function is given. None: they are the same."""
    if pa.types.is_struct(type_):
        names = tuple(field.name for field in type_)
        parts = [as_given(field.type) or _same for field in type_]
        return lambda value: None if value is None else Row(names, [part(value[name]) for name, part in zip(names, parts, strict=True)])
    if pa.types.is_map(type_):
        item = as_given(type_.item_type) or _same
        key = as_given(type_.key_type) or _same
        return lambda value: None if value is None else {key(name): item(each) for name, each in value}
    if pa.types.is_list(type_) and (element := as_given(type_.value_type)) is not None:
        return lambda value: None if value is None else [element(each) for each in value]
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return lambda value: None if value is None else value.replace(tzinfo=None)
    return None


def _same(value: Any) -> Any:
    return value
