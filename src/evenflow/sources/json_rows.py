"""JSON lines with maps in their schema, for which Arrow has no reader: Python's reads them, and what it has becomes columns.

What Arrow would read of a line is read of it here: times and decimals may be text, fields that a line lacks are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from evenflow.stream.schema import has_map

UNREADABLE: Final = (ValueError, ArithmeticError, RecursionError)
"""What Python raises of JSON that is none, of numbers and texts that nothing can hold, and of what is nested too deeply."""
MOST_DIGITS: Final = 38
"""Of a decimal of Arrow's, which has powers of ten up to this one."""
_NOTHING: Final[dict[str, Any]] = {}


def needs_reading(schema: pa.Schema | None) -> bool:
    """Whether Arrow's reader has no rows for this schema."""
    return schema is not None and any(has_map(field.type) for field in schema)


def rows_of(lines: Sequence[bytes], schema: pa.Schema, *, strict: bool) -> pa.RecordBatch:
    """The objects of lines as rows; empty lines are skipped. strict: other fields than those of the schema are an error.

    Raises pa.ArrowInvalid for a line that does not fit.
    """
    rows = [object_of(line) for line in lines if line.strip()]
    if strict and (others := sorted({name for row in rows for name in row} - set(schema.names))):
        raise pa.ArrowInvalid(f"the field {others[0]!r} is not in the schema")
    arrays = []
    for field in schema:
        try:
            arrays.append(_column([row.get(field.name) for row in rows], field.type))
        except (pa.ArrowException, TypeError, AttributeError, *UNREADABLE) as error:
            raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def object_of(line: bytes) -> dict[str, Any]:
    """The object of a line, with decimals for numbers that are not whole. Raises pa.ArrowInvalid if it is none."""
    try:
        found = json.loads(line, parse_float=Decimal)
    except UNREADABLE as error:
        raise pa.ArrowInvalid(f"a line is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise pa.ArrowInvalid(f"a line is no JSON object but {line.decode(errors='backslashreplace')[:40]!r}")
    return found


def _column(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Values of JSON as an array. It is made from its leaves, since a cast of Arrow's looks at what is below a null, too."""
    if pa.types.is_struct(type_):
        given = [_NOTHING if value is None else _is(value, dict) for value in values]
        children = [_column([value.get(field.name) for value in given], field.type) for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=pa.array([value is None for value in values], pa.bool_()))
    if pa.types.is_list(type_):
        return pa.ListArray.from_arrays(_offsets(values), _column(_joined(values, list), type_.value_type), type=type_)
    if pa.types.is_map(type_):
        names = [name for value in values if value is not None for name in _is(value, dict)]
        items = [item for value in values if value is not None for item in value.values()]
        return pa.MapArray.from_arrays(_offsets(values), _column(names, type_.key_type), _column(items, type_.item_type), type=type_)
    check_numbers(values, type_)
    if pa.types.is_decimal(type_):
        values = [str(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value for value in values]
    elif pa.types.is_floating(type_):
        values = [float(value) if isinstance(value, Decimal) else value for value in values]
    text = pa.types.is_decimal(type_) or pa.types.is_temporal(type_) or _is_key_of_text(values, type_)
    return pa.array(values, pa.string()).cast(type_) if text else pa.array(values, type_)


def check_numbers(values: Iterable[Any], type_: pa.DataType) -> None:
    """Refuse what Arrow must not be given of JSON, in a column of any type. Raises TypeError, and ValueError for a text that is no number.

    A number with a fraction or an exponent where a whole one, or a time, is wanted: Arrow would cut it, and of 1e999999999 it first writes
    down all digits. A decimal with far more places than the column has: Arrow takes its power of ten from behind the end of a table.
    """
    if pa.types.is_struct(type_):
        rows = [value for value in values if isinstance(value, dict)]
        for field in type_:
            check_numbers([row.get(field.name) for row in rows], field.type)
    elif pa.types.is_list(type_):
        check_numbers([part for value in values if isinstance(value, list) for part in value], type_.value_type)
    elif pa.types.is_map(type_):
        rows = [value for value in values if isinstance(value, dict)]
        check_numbers([name for row in rows for name in row], type_.key_type)
        check_numbers([item for row in rows for item in row.values()], type_.item_type)
    elif pa.types.is_decimal(type_):
        for value in values:
            if isinstance(value, Decimal | str):
                _check_places(value, type_)
    elif not pa.types.is_floating(type_) and any(isinstance(value, Decimal) for value in values):
        raise TypeError(f"a number with a fraction or an exponent is no {type_}")


def _check_places(value: Decimal | str, type_: pa.DataType) -> None:
    """Raises TypeError for a number that is so small or so large that Arrow has no power of ten to bring it to the column's places."""
    try:
        exponent = Decimal(value).as_tuple().exponent
    except InvalidOperation as error:
        raise ValueError(f"{str(value)[:40]!r} is no number") from error
    if isinstance(exponent, str) or not -MOST_DIGITS <= exponent + type_.scale <= MOST_DIGITS:
        raise TypeError(f"{str(value)[:40]} is no {type_}")


def _is_key_of_text(values: list[Any], type_: pa.DataType) -> bool:
    """Whether they are numbers as names, as a map with such keys has them in JSON."""
    return not pa.types.is_string(type_) and bool(values) and all(isinstance(value, str) for value in values)


def _offsets(values: list[Any]) -> pa.Array:
    """Where each value's parts begin, null for one that is null."""
    ends = [0, *accumulate(0 if value is None else len(value) for value in values)]
    return pa.array([*(None if value is None else start for value, start in zip(values, ends, strict=False)), ends[-1]], pa.int32())


def _joined(values: list[Any], kind: type) -> list[Any]:
    return [part for value in values if value is not None for part in _is(value, kind)]


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:40]!r} is no {'object' if kind is dict else 'array'}")
    return value
