"""Names and tables of names as a user gives them to a method that draws: what is none of the kind is refused at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from evenflow.errors import QueryError
from evenflow.query.spark_column import is_spark_column, name_of, named_text_of, retold, text_of

Expression = Any
"""A Spark SQL expression (str), a `Column` of PySpark, one that calls functions of the user's (`Formula`), or a function of a batch that
returns one value per row."""

Order = Literal["event_time", "arrival"]


def box_name(given: Any, stem: str) -> str:
    """The name of a box. stem: of the name that it has otherwise, for the message. Raises QueryError unless it is text."""
    if not isinstance(given, str) or not given.strip():
        raise QueryError(f"a box ({stem}) cannot be called {given!r:.60}; give it a name that is a text and not empty, or leave it out")
    return given


def names_of(box: str, argument: str, given: Any, columns: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of columns that an argument has: one, or several; those of `columns` as they are spelled there. Raises QueryError for
    anything else."""
    if isinstance(given, str) or is_spark_column(given):
        given = (given,)
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping) else (given,)
    return tuple(spelled(column_name(box, argument, name), columns) for name in names)


def spelled(name: str, columns: Sequence[str]) -> str:
    """The column that a name means, as it is spelled: it itself, or the one of other letters' case. The name as it is if there is none.
    Raises QueryError if there are several."""
    found = [column for column in columns if column.lower() == str(name).lower()] if name not in columns else []
    if len(found) > 1:
        raise QueryError(f"column {name!r} is ambiguous: it could be {', '.join(map(repr, found))}; write it as it is spelled")
    return found[0] if found else name


def column_name(box: str, argument: str, given: Any) -> str:
    """The name that stands for itself, or is that of a column of PySpark. Raises QueryError for anything else."""
    name = name_of(given) if is_spark_column(given) else retold(given)
    if not isinstance(name, str):
        raise QueryError(f"box {box!r}: {argument} has names of columns, such as ['k', 'n'], not {given!r:.60}")
    return name


def unnamed(given: Any) -> Any:
    """An expression as boxes know them: a column of PySpark is the SQL that says the same."""
    return text_of(given) if is_spark_column(given) else retold(given)


def selected(given: Any) -> Any:
    """The same, with its name where it has one."""
    return named_text_of(given) if is_spark_column(given) else retold(given, named=True)


def expressions_of(box: str, argument: str, given: Any) -> dict[str, Any]:
    """What an argument gives names to. Raises QueryError unless it is a mapping of names."""
    if not isinstance(given, Mapping) or any(not isinstance(name, str) for name in given):
        raise QueryError(f"box {box!r}: {argument} gives names to expressions, such as {{'total': 'a + b'}}, not {given!r:.60}")
    return {name: unnamed(expression) for name, expression in given.items()}


def ties_of(box: str, tie_break: Sequence[str] | None, columns: Sequence[str]) -> tuple[str, ...] | None:
    """The columns that order rows of equal time, None for all."""
    return None if tie_break is None else names_of(box, "tie_break", tie_break, columns)


def direction(box: str, text: Any, columns: Sequence[str]) -> tuple[str, bool]:
    """(column, descending) of "column", "column asc" or "column desc"; one of `columns` as it is spelled there."""
    text = unnamed(text).replace("`", "") if is_spark_column(text) else text
    column, *rest = (text.split() if isinstance(text, str) else []) or ["", ""]
    if [word.lower() for word in rest] not in ([], ["asc"], ["desc"]):
        raise QueryError(
            f"box {box!r}: cannot order by {text!r}; name one column and a direction, such as 'length desc', several as a list, such as "
            "['length desc', 'src'], and for what is no column, compute it with .with_columns before"
        )
    return spelled(column, columns), bool(rest) and rest[0].lower() == "desc"
