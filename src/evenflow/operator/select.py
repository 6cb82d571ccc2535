"""Select: exactly these output columns, each computed from the input row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from evenflow.errors import EvenflowError, TypeMismatch
from evenflow.operator.operator import Stateless
from evenflow.operator.user.returned import as_array
from evenflow.query.expression import compile_expression
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows

Column = str | Callable[[pa.RecordBatch], Any]
Run = Callable[[pa.RecordBatch], pa.Array]


class Select(Stateless):
    """One output row per input row, with the columns given, in that order. Selectivity 1. Cost: O(rows).

    columns: name and Spark SQL expression, or function of the batch that returns one value per row. A function's type is what it
    returns for an empty batch (or its attribute `type`, a pyarrow type), and holds from then on: the same type every time.
    Raises TypeMismatch when a function breaks this. Partition and hash stay with their rows.
    """

    def __init__(self, columns: Sequence[tuple[str, Column]], schema: pa.Schema, box: str = "select") -> None:
        self._runs: list[Run] = []
        fields = []
        for name, column in columns:
            field, run = output_column(name, column, schema, box)
            fields.append(field)
            self._runs.append(run)
        self._schema = pa.schema(fields)
        self.schemas: tuple[pa.Schema, ...] = (self._schema,)
        self._none = _none(self._schema)
        self._places = places_of(columns, schema)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return (Rows(self._none, rows.partition, rows.hash),)
        if self._places is not None:
            return (Rows(rows.batch.select(self._places), rows.partition, rows.hash),)
        arrays = [run(rows.batch) for run in self._runs]
        return (Rows(pa.RecordBatch.from_arrays(arrays, schema=self._schema), rows.partition, rows.hash),)


def places_of(columns: Sequence[tuple[str, Column]], schema: pa.Schema) -> list[int] | None:
    """Where the columns are in the input, if they are its own under their own names: to choose them makes no new arrays."""
    names = schema.names
    if (
        schema.metadata
        or not columns
        or len(set(names)) < len(names)
        or any(column != name or name not in names for name, column in columns)
    ):
        return None
    return [names.index(name) for name, _ in columns]


def output_column(name: str, column: Column, schema: pa.Schema, box: str) -> tuple[pa.Field, Run]:
    """The field that a column of `select` gives on an input of `schema`, and the function that computes it.

    Raises what `compile_expression` raises, and TypeMismatch when the type of a function cannot be told.
    """
    if isinstance(column, str):
        if column in schema.names:
            index = schema.get_field_index(column)
            return schema.field(index).with_name(name), lambda batch: batch.column(index)
        compiled = compile_expression(column, schema)
        return pa.field(name, compiled.type), compiled
    what = f"box {box!r}: the function of column {name!r}"
    type_ = getattr(column, "type", None) or _type_of(column, schema, what)

    def run(batch: pa.RecordBatch) -> pa.Array:
        array = as_array(column(batch), batch.num_rows, what)
        if array.type == type_:
            return array
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), type_)
        raise TypeMismatch(f"{what} returned {array.type}, but {type_} for an empty batch: return the same type for every batch")

    return pa.field(name, type_), run


def _type_of(function: Callable[[pa.RecordBatch], Any], schema: pa.Schema, what: str) -> pa.DataType:
    hint = "give the function an attribute `type` with its pyarrow type"
    try:
        type_ = as_array(function(_none(schema)), 0, what).type
    except EvenflowError:
        raise
    except Exception as e:
        raise TypeMismatch(f"{what} failed on an empty batch ({type(e).__name__}: {e}), so its type is unknown: {hint}") from e
    if pa.types.is_null(type_):
        raise TypeMismatch(f"{what} returned no type for an empty batch: return a typed array, or {hint}")
    return type_


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return Rows.empty(schema).batch
