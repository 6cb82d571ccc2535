"""What an option may be, read off its declaration, so that a wrong value is refused where it is given and not where it is used.

An option is a field of a dataclass. Its annotation says what it may be: `int` is a whole number from 1 on, `float` a finite number above
zero, `str` a text that is not empty, a `Literal` one of its words, `... | None` also None. Where an option may be more or less than that,
its class says so with one of the functions below. An annotation that says nothing here has to be told by one of them, so no option goes
unchecked. Numbers that are whole but floats (`rate=1e6`) become ints.
"""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, get_args, get_origin

import numpy as np
import pyarrow as pa

from evenflow.errors import OptionError
from evenflow.stream.schema import as_schema

WIDEST: Final = 2**62
LARGEST: Final[Mapping[str, float]] = {"_us": WIDEST, "_ms": 1e9, "_s": 1e6, "_mb": 2**24}
"""Largest value by unit, where an option says nothing else: what is beyond overflows a clock or a counter somewhere below."""
MOST: Final = 2**31 - 1


class Unfit(Exception):
    """A value that an option cannot have."""


@dataclass(frozen=True, slots=True)
class May:
    """What an option may be. text: in words, behind "give". fit: the value as it is kept, or Unfit. name: what users call it, None: its
    field's name."""

    text: str
    fit: Callable[[Any], Any]
    name: str | None = None

    def called(self, name: str) -> May:
        return dataclasses.replace(self, name=name)


def whole(least: int = 1, most: int = MOST) -> May:
    """A whole number within bounds, both included."""

    def fit(value: Any) -> int:
        if not _is_number(value) or int(value) != value or not least <= int(value) <= most:
            raise Unfit
        return int(value)

    bounds = f"{least:,} to {most:,}" if most < MOST else f"{least:,} or more"
    return May("a whole number" if least <= -MOST else f"a whole number, {bounds}", fit)


def number(least: float | None = None, most: float = WIDEST) -> May:
    """A finite number, at least `least`, or above zero, and at most `most`."""

    def fit(value: Any) -> float:
        if not _is_number(value) or value > most or (value < least if least is not None else value <= 0):
            raise Unfit
        return int(value) if isinstance(value, Integral) else float(value)

    above = "greater than zero" if least is None else f"{least:g} or more"
    return May(f"a number {above}{'' if most >= WIDEST else f' and at most {most:,.0f}'}", fit)


def _is_number(value: Any) -> bool:
    """A finite number that is no bool."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return False
    return isinstance(value, Integral) or math.isfinite(value)


def flag() -> May:
    """True or False."""

    def fit(value: Any) -> bool:
        if not isinstance(value, bool):
            raise Unfit
        return value

    return May("True or False", fit)


def text(what: str = "a text that is not empty") -> May:
    """Text with something in it, and without the character NUL, which no file and no server has in its name."""

    def fit(value: Any) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise Unfit
        return value

    return May(what, fit)


def path(what: str = "the path of a file or a directory, as text or as a Path") -> May:
    """A path, which becomes text."""

    def fit(value: Any) -> str:
        given = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            raise Unfit
        return given

    return May(what, fit)


def one_of(*words: Any) -> May:
    """One of some words."""

    def fit(value: Any) -> Any:
        if not isinstance(value, str) or value not in words:
            raise Unfit
        return value

    return May(f"one of {', '.join(map(repr, words))}", fit)


def row_schema() -> May:
    """The columns of rows: a schema of pyarrow's or PySpark's, or DDL. It becomes pyarrow's."""

    def fit(value: Any) -> pa.Schema:
        return as_schema(value)

    return May("a schema: DDL such as 'id bigint, name string', a StructType, or a pyarrow schema", fit)


def a(what: str, fits: Callable[[Any], bool]) -> May:
    """Whatever a test is true for. what: in words, with its article."""

    def fit(value: Any) -> Any:
        if not fits(value):
            raise Unfit
        return value

    return May(what, fit)


def function() -> May:
    """Something that can be called."""
    return a("a function", callable)


def anything() -> May:
    """What somebody else checks."""
    return a("anything", lambda value: True)


def optional(may: May) -> May:
    """That, or None."""
    return May(f"{may.text}, or None", lambda value: None if value is None else may.fit(value), may.name)


def either(first: May, second: May) -> May:
    """One or the other."""

    def fit(value: Any) -> Any:
        try:
            return first.fit(value)
        except Unfit:
            return second.fit(value)

    return May(f"{first.text}, or {second.text}", fit, first.name)


def each(may: May, what: str, least: int = 0) -> May:
    """A tuple of such values, at least so many."""

    def fit(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) < least:
            raise Unfit
        return tuple(may.fit(item) for item in value)

    return May(what, fit)


def said_by(name: str, annotation: Any) -> May:
    """What an annotation says of an option. Raises TypeError where it says nothing that is known here."""
    origin = get_origin(annotation)
    if origin in (typing.Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        found = said_by(name, kinds[0])
        for kind in kinds[1:]:
            found = either(found, said_by(name, kind))
        return optional(found) if NoneType in get_args(annotation) else found
    if origin is Literal:
        return one_of(*get_args(annotation))
    if annotation is pa.Schema:
        return row_schema()
    largest = next((most for unit, most in LARGEST.items() if name.endswith(unit)), None)
    plain: dict[Any, Callable[[], May]] = {
        bool: flag,
        int: lambda: whole(1, MOST if largest is None else int(largest)),
        float: lambda: number(None, WIDEST if largest is None else largest),
        str: text,
    }
    if isinstance(annotation, type) and annotation not in plain and dataclasses.is_dataclass(annotation):
        return a(f"a {annotation.__name__} of {annotation.__module__}", lambda value: isinstance(value, annotation))
    if annotation not in plain:
        raise TypeError(f"what the option {name!r} may be cannot be read off {annotation!r}: say it with a function of {__name__}")
    return plain[annotation]()


def fitted(what: str, name: str, value: Any, may: May) -> Any:
    """The value of an option, or OptionError. what: whose option it is."""
    try:
        return may.fit(value)
    except Unfit:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise OptionError(f"{what}: {may.name or name} is {shown}; give {may.text}") from None


class Declared:
    """A frozen dataclass whose fields are options, which are checked when an instance is made.

    MAY: what some of them may be, where their annotations say too little or something else. option_owner: whose options they are, for
    messages. A subclass with more to check begins its `__post_init__` with this one's.
    """

    __slots__ = ()

    MAY: ClassVar[Mapping[str, May]] = {}
    option_owner: ClassVar[str] = "a dataflow"

    def __post_init__(self) -> None:
        self.check_options(self.option_owner)

    def check_options(self, what: str) -> None:
        """Bring every field to what is kept of it. what: whose options they are, for messages. Raises OptionError."""
        for name, may in options_of(type(self)).items():
            given = getattr(self, name)
            found = fitted(what, name, given, may)
            if found is not given:
                object.__setattr__(self, name, found)


def options_of(declared: type[Any]) -> Mapping[str, May]:
    """What each field of a dataclass may be."""
    found: Any = _options_of
    options: Mapping[str, May] = found(declared)
    return options


@cache
def _options_of(declared: Any) -> Mapping[str, May]:
    special: dict[str, May] = {}
    for base in reversed(declared.__mro__):
        special |= vars(base).get("MAY", {})
    fields = dataclasses.fields(declared)
    hints = typing.get_type_hints(declared) if any(field.name not in special for field in fields) else {}
    return {field.name: special[field.name] if field.name in special else said_by(field.name, hints[field.name]) for field in fields}


__all__ = [
    "WIDEST", "Declared", "May", "a", "anything", "each", "either", "fitted", "flag", "function", "number", "one_of", "optional",
    "options_of", "path", "row_schema", "said_by", "text", "whole",
]  # fmt: skip
