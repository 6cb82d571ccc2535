"""`select("id", "explode(tags) as tag")`: a function that makes rows, in a list of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlglot import exp

from evenflow.errors import EvenflowError, QueryError
from evenflow.query.shaping import ShapedStream
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.scope import is_known

S = TypeVar("S", bound=ShapedStream)

_OUTER: Final = {"explode": False, "explode_outer": True}


def draw_exploding(stream: S, columns: Sequence[tuple[str, Any]]) -> S | None:
    """The columns with the rows that one of them makes; None if none does. Raises QueryError if two do."""
    found = [(at, name, call) for at, (name, given) in enumerate(columns) if (call := _call(given)) is not None]
    if not found:
        return None
    if len(found) > 1:
        raise QueryError("box 'select': two columns make rows, and one list of columns makes rows by one; select the others behind it")
    at, name, call = found[0]
    if _call(name) is not None:
        name = "col"  # As Spark calls it.
    made = [*columns[:at], (name, to_sql(call.expressions[0])), *columns[at + 1 :]]
    return stream._then("select", {"columns": tuple(made)}).explode(name, outer=_OUTER[call.name.lower()])


def _call(given: Any) -> exp.Anonymous | None:
    if not isinstance(given, str) or "explode" not in given.lower():
        return None
    try:
        tree = parse(given)
    except EvenflowError:
        return None  # Whoever reads the expression says what is wrong with it.
    called = tree.name.lower() if isinstance(tree, exp.Anonymous) and not is_known(tree.name) else ""
    return tree if isinstance(tree, exp.Anonymous) and called in _OUTER and len(tree.expressions) == 1 else None


__all__ = ["draw_exploding"]
