"""Expressions of a box that call functions of the user's become compiled ones, which keep these functions wherever they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.query.aggregates import AggCall
from evenflow.query.expression import Compiled, compile_expression
from evenflow.query.kinds.judging import naming
from evenflow.query.user.calling import Finished, FoldedGroups, OfGroups, OfRows, Tried
from evenflow.query.user.formula import Formula
from evenflow.query.user.scope import scope


def with_functions(box: str, kind: str, params: Mapping[str, Any], schemas: Sequence[pa.Schema]) -> Mapping[str, Any]:
    """The parameters of a box with its expressions bound. schemas: of its inputs. Raises QueryError, naming the box, for a formula where
    none can be."""
    if kind == "filter":
        return {**params, "condition": _bound(box, params["condition"], schemas[0])}
    if kind == "select":
        return {**params, "columns": tuple((name, _bound(box, made, schemas[0])) for name, made in params["columns"])}
    if kind == "case":
        return {**params, "conditions": tuple(_bound(box, made, schemas[0]) for made in params["conditions"])}
    for name, value in params.items():
        if isinstance(value, Formula):
            raise QueryError(f"box {box!r}: {name} cannot call {value.text!r}; compute a column with it before, .with_columns(...)")
    return params


def code_of(value: Any) -> Iterator[Any]:
    """The functions and aggregators of the user's in a parameter of a box."""
    match value:
        case Compiled():
            for called in value.functions.values():
                yield from code_of(called)
        case Tried():
            yield value.aggregator
            for argument in value.arguments:
                yield from code_of(argument)
        case OfRows() | OfGroups():
            yield value.function.function
        case Finished() | FoldedGroups():
            yield value.aggregator
        case AggCall() if value.made is not None:
            yield value.made


def tries(params: Mapping[str, Any]) -> bool:
    """Whether a box has the arguments of aggregators, on which it can try rows."""
    return any(isinstance(made, Tried) for _, made in _columns(params))


def _columns(params: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    """Those of a select; resample has names only."""
    return [column for column in params.get("columns", ()) if isinstance(column, tuple)]


def tried(columns: Sequence[tuple[str, Any]], *, trial: bool) -> tuple[tuple[str, Any], ...]:
    """The columns of such a box, with or without the trial."""
    return tuple((name, replace(made, trial=trial) if isinstance(made, Tried) else made) for name, made in columns)


def _bound(box: str, made: Any, schema: pa.Schema) -> Any:
    if isinstance(made, Formula):
        with scope(dict(made.functions)):
            return _bound(box, made.text, schema)
    if not isinstance(made, str) or made in schema.names or "(" not in made:
        return made
    with naming(box):
        compiled: Compiled = compile_expression(made, schema)
    return compiled if compiled.functions else made
