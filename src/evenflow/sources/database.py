"""Databases that tables are read from and written to: SQLite by its file, any other by a function that connects.

A connection is one of Python's DB-API. Two dialects are told apart, SQLite's and that of PostgreSQL, which most others understand. This
file knows what columns are called there and how values look; what is read and written is the sources' and the sinks' business.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

Address = str | Callable[[], Any]
"""The file of an SQLite database, or a function that gives a new connection (DB-API 2.0)."""

WAIT_S: Final = 10.0
"""How long SQLite waits for who is writing."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """placeholder: of a parameter. types: of columns, by Arrow type; any other is `other`. plain: values are stored as numbers and text."""

    placeholder: str
    types: Mapping[pa.DataType, str]
    other: str
    plain: bool


SQLITE: Final = Dialect(
    "?",
    {
        pa.bool_(): "INTEGER", pa.int8(): "INTEGER", pa.int16(): "INTEGER", pa.int32(): "INTEGER", pa.int64(): "INTEGER",
        pa.float32(): "REAL", pa.float64(): "REAL", pa.binary(): "BLOB",
    },
    "TEXT",
    plain=True,
)  # fmt: skip
POSTGRES: Final = Dialect(
    "%s",
    {
        pa.bool_(): "BOOLEAN", pa.int8(): "SMALLINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
        pa.float32(): "REAL", pa.float64(): "DOUBLE PRECISION", pa.binary(): "BYTEA", pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
    },
    "TEXT",
    plain=False,
)  # fmt: skip


def connect(address: Address) -> tuple[Any, Dialect]:
    """A new connection and its dialect. Raises what the database raises."""
    connection = sqlite3.connect(address, timeout=WAIT_S, check_same_thread=False) if isinstance(address, str) else address()
    return connection, SQLITE if type(connection).__module__.partition(".")[0] == "sqlite3" else POSTGRES


def quoted(name: str) -> str:
    """A name of a table or a column as SQL wants it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def column_type(type_: pa.DataType, dialect: Dialect) -> str:
    """What a column of that type is called there."""
    if pa.types.is_decimal(type_) and not dialect.plain:
        return f"NUMERIC({type_.precision}, {type_.scale})"
    if pa.types.is_list(type_) and not dialect.plain:
        return f"{column_type(type_.value_type, dialect)}[]"
    return dialect.types.get(type_, dialect.other)


def rows_for(batch: pa.RecordBatch, dialect: Dialect) -> list[tuple[Any, ...]]:
    """The rows as parameters. SQLite has numbers, text and bytes: times are ISO text there, decimals text, lists JSON."""
    columns = [column.to_pylist() for column in batch.columns]
    if dialect.plain:
        columns = [[None if v is None else _plain(v) for v in values] for values in columns]
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, default=str)
    return value if isinstance(value, bool | int | float | str | bytes) else str(value)


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a result as columns of these types. Raises ArrowInvalid or ArrowTypeError for a value that is not of its column's type."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [_column(list(values), field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_list(type_):
        return pa.array([json.loads(v) if isinstance(v, str) else v for v in values], type_)
    if pa.types.is_boolean(type_):
        return pa.array([None if v is None else bool(v) for v in values], type_)
    if any(isinstance(v, str) for v in values) and not pa.types.is_string(type_):
        return pa.array(values, pa.string()).cast(type_)
    return pa.array(values, type_)
