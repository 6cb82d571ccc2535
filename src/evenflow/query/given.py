"""Names and tables of names as a user gives them to a method that draws: what is none of the kind is refused at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.user.formula import Formula

Expression = str | Formula | Callable[[pa.RecordBatch], Any]
"""A Spark SQL expression, one that calls functions of the user's, or a function of a batch that returns one value per row."""

Order = Literal["event_time", "arrival"]


def box_name(given: Any, stem: str) -> str:
    """The name of a box. stem: of the name that it has otherwise, for the message. Raises QueryError unless it is text."""
    if not isinstance(given, str) or not given.strip():
        raise QueryError(f"a box ({stem}) cannot be called {given!r:.60}; give it a name that is a text and not empty, or leave it out")
    return given


def names_of(box: str, argument: str, given: Any) -> tuple[str, ...]:
    """The names of columns that an argument has: one, or several. Raises QueryError for anything else."""
    if isinstance(given, str):
        return (given,)
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise QueryError(f"box {box!r}: {argument} has names of columns, such as ['k', 'n'], not {name!r:.60}")
    return names


def expressions_of(box: str, argument: str, given: Any) -> dict[str, Any]:
    """What an argument gives names to. Raises QueryError unless it is a mapping of names."""
    if not isinstance(given, Mapping) or any(not isinstance(name, str) for name in given):
        raise QueryError(f"box {box!r}: {argument} gives names to expressions, such as {{'total': 'a + b'}}, not {given!r:.60}")
    return dict(given)


__all__ = ["box_name", "expressions_of", "names_of"]


def ties_of(box: str, tie_break: Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns that order rows of equal time, None for all."""
    return None if tie_break is None else names_of(box, "tie_break", tie_break)


def direction(box: str, text: str) -> tuple[str, bool]:
    """(column, descending) of "column", "column asc" or "column desc"."""
    column, *rest = (text.split() if isinstance(text, str) else []) or ["", ""]
    if [word.lower() for word in rest] not in ([], ["asc"], ["desc"]):
        raise QueryError(
            f"box {box!r}: cannot order by {text!r}; name one column and a direction, such as 'length desc', several as a list, such as "
            "['length desc', 'src'], and for what is no column, compute it with .with_columns before"
        )
    return column, bool(rest) and rest[0].lower() == "desc"
