"""Formulas: expression texts together with the user's functions that they call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot.dialects.spark import Spark

from evenflow.errors import QueryError
from evenflow.stream.schema import quoted

_KEYWORDS: Final = frozenset(Spark.Tokenizer.KEYWORDS)
"""What begins something else than a call, unless it stands in backquotes."""


@dataclass(frozen=True)
class Formula:
    """An expression that calls functions of the user's. functions: by the names that the text calls them by.

    May stand wherever an expression may: `stream.with_columns(b=bucket("length"))`, `.agg(m=median("length"))`.
    """

    text: str
    functions: Mapping[str, Any]

    @staticmethod
    def of_call(name: str, function: Any, arguments: Sequence[str | Formula]) -> Formula:
        """The call of one function. arguments: columns, expressions, formulas."""
        for argument in arguments:
            if not isinstance(argument, str | Formula):
                raise QueryError(f"{name} is called with {argument!r}; its arguments are columns and expressions, as text")
        texts = [argument if isinstance(argument, str) else argument.text for argument in arguments]
        inner = [argument.functions for argument in arguments if isinstance(argument, Formula)]
        called = quoted(name) if name.upper() in _KEYWORDS or not name.isidentifier() else name
        return Formula(f"{called}({', '.join(texts)})", together([*inner, {name.lower(): function}]))


def together(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All the functions. Raises QueryError if two of them have one name."""
    found: dict[str, Any] = {}
    for functions in given:
        for name, function in functions.items():
            if found.setdefault(name, function) != function:
                raise QueryError(f"two functions are called {name!r} in one expression; give one of them another name, name='...'")
    return found
