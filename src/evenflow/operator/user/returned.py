"""What a user's function returned, made into Arrow or refused with a message that names the box.

Users return what is natural to them: Arrow, NumPy, pandas or Polars columns, or plain Python. None of these libraries is imported
here: their objects are recognised by what they can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import TypeMismatch
from evenflow.stream.schema import ddl_of, type_name
from evenflow.stream.values import NOT_OF_TYPE, array_of


def as_array(value: Any, count: int, what: str) -> pa.Array:
    """One column of `count` rows out of `value`; what: how a message names it. Raises TypeMismatch."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if not isinstance(value, pa.Array):
        value = _arrow_of(value, what)
    if len(value) != count:
        raise TypeMismatch(f"{what} returned {len(value)} values for {count} rows: return exactly one value per row")
    return value


def as_batch(value: Any, schema: pa.Schema, box: str) -> pa.RecordBatch:
    """The output of a process box as a batch of exactly `schema`; columns may come in any order and are matched by name.

    value: RecordBatch, Table, pandas or Polars frame, mapping of columns, or an iterable of rows (mappings or tuples).
    Types must be the declared ones or convert to them without loss (other widths of numbers where exact, other units and zones of
    time). Raises TypeMismatch that says what came and what was declared.
    """
    if isinstance(value, pa.RecordBatch) and value.schema.equals(schema):
        return value
    columns = _columns_of(value, schema, box)
    if set(columns) != set(schema.names):
        came = f"the columns {', '.join(columns) or 'none'}"
        raise TypeMismatch(f"box {box!r} returned {came}, but declares output = {ddl_of(schema)!r}: return exactly these columns")
    arrays = [_as_declared(columns[field.name], field, schema, box) for field in schema]
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        came = ", ".join(f"{name} {len(array)}" for name, array in zip(schema.names, arrays, strict=True))
        raise TypeMismatch(f"box {box!r} returned columns of different lengths: {came}")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns_of(value: Any, schema: pa.Schema, box: str) -> dict[str, Any]:
    if isinstance(value, pa.RecordBatch | pa.Table):
        return dict(zip(value.schema.names, value.columns, strict=True))
    if isinstance(value, Mapping):
        return {str(name): column for name, column in value.items()}
    if hasattr(value, "to_arrow"):
        return _columns_of(value.to_arrow(), schema, box)
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return {str(name): value[name] for name in value.columns}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return _columns_of_rows(list(value), schema, box)
    came = f"returned {type(value).__name__}, not rows"
    raise TypeMismatch(f"box {box!r} {came}: return a batch, a frame, a dict of columns or rows of {ddl_of(schema)!r}")


def _columns_of_rows(rows: list[Any], schema: pa.Schema, box: str) -> dict[str, Any]:
    """Turn rows into columns. Rows are mappings with exactly the declared names, or sequences in declared order."""
    names, wanted = schema.names, f"but declares output = {ddl_of(schema)!r}"
    for row in rows:
        if isinstance(row, Mapping):
            if set(row) != set(names):
                raise TypeMismatch(f"box {box!r} returned a row with the columns {', '.join(map(str, row))}, {wanted}")
        elif not isinstance(row, tuple | list) or len(row) != len(names):
            raise TypeMismatch(f"box {box!r} returned the row {row!r}, {wanted}: return tuples or dicts of these columns")
    return {name: [row[name] if isinstance(row, Mapping) else row[i] for row in rows] for i, name in enumerate(names)}


def _as_declared(column: Any, field: pa.Field, schema: pa.Schema, box: str) -> pa.Array:
    def refuse(came: object, why: str = "") -> TypeMismatch:
        declared = f"declared {type_name(field.type)} in output = {ddl_of(schema)!r}"
        return TypeMismatch(f"box {box!r}: column {field.name!r} came as {came}, but is {declared}{why}")

    if isinstance(column, list | tuple):
        try:
            array = array_of(column, field.type)
        except NOT_OF_TYPE as e:
            raise refuse("Python values", f": {e}") from e
    else:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array = array if isinstance(array, pa.Array) else _arrow_of(array, f"box {box!r}, column {field.name!r}")
    if array.type != field.type:
        if not _converts(array.type, field.type):
            raise refuse(array.type)
        try:
            array = pc.cast(array, field.type)
        except pa.ArrowInvalid as e:
            raise refuse(array.type, f" and does not convert without loss: {e}") from e
    if not field.nullable and array.null_count:
        raise refuse(f"{array.null_count} nulls")
    return array


def _converts(came: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a checked cast is a change of representation and not of meaning."""
    t = pa.types
    if t.is_dictionary(came):
        return came.value_type == declared or _converts(came.value_type, declared)
    if t.is_null(came):
        return True
    number = (t.is_integer, t.is_floating, t.is_decimal)
    if any(is_(came) for is_ in number):
        return any(is_(declared) for is_ in number)
    text, raw = (t.is_string, t.is_large_string, t.is_string_view), (t.is_binary, t.is_large_binary, t.is_binary_view)
    nested = t.is_list(declared) and (t.is_list(came) or t.is_large_list(came))
    if nested:
        return bool(came.value_type == declared.value_type or _converts(came.value_type, declared.value_type))
    kinds = (text, raw, (t.is_timestamp,), (t.is_date,))
    return any(any(is_(came) for is_ in kind) and any(is_(declared) for is_ in kind) for kind in kinds)


def _arrow_of(value: Any, what: str) -> pa.Array:
    if hasattr(value, "to_arrow"):
        value = value.to_arrow()
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    if isinstance(value, str | bytes) or np.ndim(value) == 0 and not hasattr(value, "__arrow_array__"):
        raise TypeMismatch(f"{what} returned {type(value).__name__}, not a column: return an array with one value per row")
    try:
        # A pandas Series brings NaN for null where its type has no null of its own, and pandas' own rules must decide.
        made = pa.Array.from_pandas(value) if hasattr(value, "iloc") else pa.array(value)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as e:
        raise TypeMismatch(f"{what} returned something that is not a column: {e}") from e
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
