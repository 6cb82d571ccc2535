"""Where expressions find the user's functions by name: in a scope, while boxes are drawn.

An expression that calls some is compiled with them and keeps them, so what runs at a site needs no scope. Of an aggregate `f`, an
expression over the results of an aggregate box calls what remains to be done: `_of_rows_f` over collected rows, `_of_state_f` of a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from evenflow.query.user.aggregator import Aggregator
from evenflow.query.user.calling import Called, Finished, FoldedGroups, OfGroups, OfRows
from evenflow.query.user.function import UserFunction, as_function

OF_ROWS: Final = "_of_rows_"
OF_STATE: Final = "_of_state_"
BUILT_IN: Final = "_built_in_"
"""Before the name of a built-in function that is called by who writes an expression for the user, who has one of that name."""

_KNOWN: ContextVar[tuple[Mapping[str, Any], ...]] = ContextVar("functions", default=())
"""The innermost first. Names are in lower case, as SQL does not care."""

_NAMES: ContextVar[frozenset[str]] = ContextVar("names", default=frozenset())

_OUT_OF_REACH: ContextVar[bool] = ContextVar("out of reach", default=False)


@contextmanager
def scope(functions: Mapping[str, Any] | None) -> Iterator[None]:
    """Inside, expressions may call these functions. functions: see `as_function`; a mapping that is no dict is asked for names as they
    come. Raises QueryError for what is no function."""
    if isinstance(functions, dict):
        functions = {name.lower(): as_function(name, function) for name, function in functions.items()}
    token = _KNOWN.set((functions, *_KNOWN.get()) if functions is not None else _KNOWN.get())
    try:
        yield
    finally:
        _KNOWN.reset(token)


def in_reach() -> bool:
    """What an expression calls may depend on where it is compiled."""
    return bool(_KNOWN.get() or _NAMES.get() or _OUT_OF_REACH.get())


@contextmanager
def out_of_reach() -> Iterator[None]:
    """Inside, expressions may call no function of the user's: whoever compiles them again will have none."""
    token = _OUT_OF_REACH.set(True)
    try:
        yield
    finally:
        _OUT_OF_REACH.reset(token)


@contextmanager
def names(called: Iterable[str]) -> Iterator[None]:
    """Inside, these are names of the user's functions, for whoever reads an expression that has kept those it calls."""
    token = _NAMES.set(frozenset(called))
    try:
        yield
    finally:
        _NAMES.reset(token)


@contextmanager
def nothing_known() -> Iterator[None]:
    """Inside, no name is one of the user's functions, for whoever reads an expression that the user has not written."""
    tokens = _KNOWN.set(()), _NAMES.set(frozenset())
    try:
        yield
    finally:
        _KNOWN.reset(tokens[0])
        _NAMES.reset(tokens[1])


def built_in(name: str) -> str:
    """The name by which an expression calls the built-in function, also where the user has one of that name."""
    return f"{BUILT_IN}{name}" if is_known(name) else name


def called_name(name: str) -> str:
    """What a call's name means, in small letters: that of a function of the user's, or else of a built-in one."""
    return name.lower().removeprefix(BUILT_IN)


def is_known(name: str) -> bool:
    """Whether it is the name of a user's function, which may be out of reach."""
    return name.lower() in _NAMES.get() or _find(name) is not None


def aggregate_of(name: str) -> UserFunction | Aggregator | None:
    """The user's aggregate of that name, if there is one."""
    found = None if _OUT_OF_REACH.get() else _find(name)
    return found if isinstance(found, Aggregator) or (found is not None and found.aggregate) else None


def called_by(name: str) -> Called | None:
    """What an expression calls by that name; None if it is no function of the user's, or out of reach."""
    if _OUT_OF_REACH.get():
        return None
    if name.startswith(OF_ROWS):
        found = aggregate_of(name.removeprefix(OF_ROWS))
        return FoldedGroups(found) if isinstance(found, Aggregator) else None if found is None else OfGroups(found)
    if name.startswith(OF_STATE):
        found = aggregate_of(name.removeprefix(OF_STATE))
        return Finished(found) if isinstance(found, Aggregator) else None
    found = _find(name)
    return OfRows(found) if isinstance(found, UserFunction) and not found.aggregate else None


def _find(name: str) -> UserFunction | Aggregator | None:
    for functions in _KNOWN.get():
        found = functions.get(name.lower())
        if found is not None:
            return as_function(name, found)
    return None
