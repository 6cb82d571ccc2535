"""`select("id", "explode(tags) as tag")`: a function that makes rows, in a list of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from sqlglot import exp

from evenflow.errors import EvenflowError, QueryError, TypeMismatch
from evenflow.query.expression import compile_expression
from evenflow.query.kinds.judging import naming
from evenflow.query.shaping import ShapedStream
from evenflow.query.spark_column import ROW_MAKERS
from evenflow.query.sql.parser import parse, to_sql
from evenflow.query.user.scope import is_known

S = TypeVar("S", bound=ShapedStream)


class Exploding(NamedTuple):
    """A call that makes rows. function: without _outer. names: those that its columns are given; none if it has its own."""

    function: str
    argument: str
    outer: bool
    names: tuple[str, ...]


def draw_exploding(stream: S, columns: Sequence[tuple[str, Any]]) -> S | None:
    """The columns with the rows that one of them makes; None if none does. Raises QueryError if two do, or names are too few or too many,
    and TypeMismatch for what has no elements."""
    found = [(at, name, call) for at, (name, given) in enumerate(columns) if (call := exploding(given)) is not None]
    if not found:
        return None
    if len(found) > 1:
        raise QueryError("box 'select': two columns make rows, and one list of columns makes rows by one; select the others behind it")
    at, name, call = found[0]
    names = call.names or ((name,) if name else ())
    with naming("select"):
        type_ = compile_expression(call.argument, stream.schema).type
        parts = [*(["pos"] if call.function == "posexplode" else []), *parts_of(call.function, type_)]
    if names and len(names) != len(parts):
        raise QueryError(f"box 'select': {call.function} makes {len(parts)} columns, and {len(names)} names are given; give as many")
    into = [*(names or parts)]
    position = into.pop(0) if call.function == "posexplode" else None
    made = [*columns[:at], (into[0], call.argument), *columns[at + 1 :]]
    one = call.function != "inline" and pa.types.is_list(type_)
    return stream._then("select", {"columns": tuple(made)}).explode(
        into[0], into=into[0] if one else tuple(into), position=position, outer=call.outer
    )


def exploding(given: Any) -> Exploding | None:
    """The call that a column of a list is, None for any other."""
    if not isinstance(given, str) or not any(maker in given.lower() for maker in ROW_MAKERS):
        return None
    try:
        tree = parse(given)
    except EvenflowError:
        return None  # Whoever reads the expression says what is wrong with it.
    names: tuple[str, ...] = ()
    if isinstance(tree, exp.Alias | exp.Aliases):
        names = tuple(each.name for each in tree.expressions) if isinstance(tree, exp.Aliases) else (str(tree.alias),)
        tree = tree.this
    called = tree.name.lower() if isinstance(tree, exp.Anonymous) and not is_known(tree.name) else ""
    function = called.removesuffix("_outer")
    if function not in ROW_MAKERS or len(tree.expressions) != 1:
        return None
    return Exploding(function, to_sql(tree.expressions[0]), function != called, names)


def parts_of(name: str, type_: pa.DataType) -> list[str]:
    """What Spark calls the parts of an element that a function takes apart, where nobody says it. Raises TypeMismatch where it cannot."""
    if name.startswith("inline"):
        if not pa.types.is_list(type_) or not pa.types.is_struct(type_.value_type):
            raise TypeMismatch(f"{name} takes an array of structures, not {type_}")
        return [field.name for field in type_.value_type]
    if pa.types.is_map(type_):
        return ["key", "value"]
    if not pa.types.is_list(type_):
        raise TypeMismatch(f"{name} takes an array or a map, not {type_}")
    return ["col"]


__all__ = ["Exploding", "draw_exploding", "exploding", "parts_of"]
