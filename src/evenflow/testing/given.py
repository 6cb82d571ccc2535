"""Rows as a test writes them become Arrow's: dicts, tuples, named tuples, batches, tables and data frames, texts for times among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import OptionError
from evenflow.stream.schema import ddl_of, type_name

_READ_FROM_TEXT: Final = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_decimal)
"""Columns whose values a test may write as a text, as SQL does."""


def batch_of(rows: Any, schema: pa.Schema, source: str) -> pa.RecordBatch:
    """Those rows, as the source would give them.

    rows: dicts or rows in the order of the columns, one after the other; or a batch, a table or a data frame. A column that a dict leaves
    out is null. Raises OptionError for what is no row, has other columns, or values of other types.
    """
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return _cast(rows, schema, source)
    if hasattr(rows, "__dataframe__") or hasattr(rows, "__arrow_c_stream__"):
        return _cast(
            pa.table(rows) if hasattr(rows, "__arrow_c_stream__") else pa.Table.from_pandas(rows, preserve_index=False), schema, source
        )
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise OptionError(f"rows of source {source!r} are a list of dicts or tuples, a table or a data frame, not {rows!r:.60}")
    dicts = [_as_dict(row, at, schema, source) for at, row in enumerate(rows)]
    return pa.RecordBatch.from_arrays([_column([row.get(field.name) for row in dicts], field, source) for field in schema], schema=schema)


def _as_dict(row: Any, at: int, schema: pa.Schema, source: str) -> Mapping[str, Any]:
    if hasattr(row, "asDict"):
        row = row.asDict()
    if isinstance(row, Mapping):
        if other := [name for name in row if name not in schema.names]:
            raise OptionError(f"row {at} of source {source!r} has {other[0]!r}, which is none of its columns: {ddl_of(schema)}")
        return row
    if isinstance(row, tuple | list):
        if len(row) != len(schema):
            raise OptionError(
                f"row {at} of source {source!r} has {len(row)} values, and the source has {len(schema)} columns: {ddl_of(schema)}"
            )
        return dict(zip(schema.names, row, strict=True))
    raise OptionError(f"row {at} of source {source!r} is {row!r:.60}: give a dict, or a tuple of {ddl_of(schema)}")


def _column(values: list[Any], field: pa.Field, source: str) -> pa.Array:
    if any(isinstance(value, str) for value in values) and any(holds(field.type) for holds in _READ_FROM_TEXT):
        values = [_from_text(value, field, source) if isinstance(value, str) else value for value in values]
    if not field.nullable and None in values:
        raise OptionError(f"row {values.index(None)} of source {source!r} has no {field.name!r}, which is declared not null")
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise OptionError(f"column {field.name!r} of source {source!r} is {type_name(field.type)}: {error}") from error


def _from_text(text: str, field: pa.Field, source: str) -> Any:
    """A value that a test has written as SQL would. A timestamp without a zone is one of UTC, as in `TIMESTAMP` of a session in UTC."""
    try:
        if pa.types.is_timestamp(field.type):
            at = datetime.fromisoformat(text)
            if (at.tzinfo is None) == (field.type.tz is None):
                return at
            if at.tzinfo is None:
                return pc.assume_timezone(pa.scalar(at, pa.timestamp("us")), "UTC").as_py()
            raise ValueError("the column has no zone, and the text has one")
        if pa.types.is_date(field.type):
            return date.fromisoformat(text)
        return pc.cast(pa.scalar(text), field.type).as_py()
    except (ValueError, pa.ArrowException) as error:
        raise OptionError(
            f"column {field.name!r} of source {source!r} is {type_name(field.type)}, and {text!r} is none: {error}"
        ) from error


def _cast(given: pa.RecordBatch | pa.Table, schema: pa.Schema, source: str) -> pa.RecordBatch:
    table = given if isinstance(given, pa.Table) else pa.Table.from_batches([given])
    if sorted(table.column_names) != sorted(schema.names):
        raise OptionError(f"rows of source {source!r} have the columns {', '.join(table.column_names)}; it has {ddl_of(schema)}")
    try:
        cast = table.select(schema.names).cast(schema).combine_chunks()
    except (pa.ArrowException, ValueError) as error:
        raise OptionError(f"rows of source {source!r} do not have its types, {ddl_of(schema)}: {error}") from error
    return next(iter(cast.to_batches()), pa.RecordBatch.from_pylist([], schema=schema))
