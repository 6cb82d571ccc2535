"""`select("id", F.row_number().over(window).alias("place"))`: functions OVER rows in a list of columns, as those of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

from sqlglot import exp

from evenflow.errors import EvenflowError, QueryError
from evenflow.query.handle import HandledStream
from evenflow.query.sql.parser import parse
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.schema import quoted

S = TypeVar("S", bound=HandledStream)

DRAWS: Final = "evenflow.query.script", "sql"
"""What draws them. It stands above the builder, with whose methods it draws."""


def draw_over(stream: S, columns: Sequence[tuple[str, Any]]) -> S | None:
    """The columns, of which some have functions OVER rows; None if none has. Of what changes, what comes out changes, too.

    Raises QueryError where rows that come once cannot have them, and for a function of a batch beside them.
    """
    if not any(_has_over(given) for _, given in columns):
        return None
    function = next((name for name, given in columns if not isinstance(given, str)), None)
    if function is not None:
        raise QueryError(f"box 'select': {function!r} is a function of a batch, beside a function OVER rows; select one behind the other")
    changes = is_changelog(stream.schema)
    made = [f"{_own(stream, given)} AS {quoted(name)}" for name, given in columns if not changes or name != CHANGE]
    sql = getattr(import_module(DRAWS[0]), DRAWS[1])
    drawn: S = sql(f"SELECT {', '.join(made)} FROM `rows`", {"rows": stream}, output_mode="changelog" if changes else "append")
    return drawn


def _own(stream: HandledStream, given: str) -> str:
    return quoted(given) if given in stream.columns else given


def _has_over(given: Any) -> bool:
    if not isinstance(given, str) or "over" not in given.lower():
        return False
    try:
        return parse(given).find(exp.Window) is not None
    except EvenflowError:
        return False  # Whoever reads the expression says what is wrong with it.


__all__ = ["draw_over"]
