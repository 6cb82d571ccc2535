"""Databases that tables are read from and written to: SQLite by its file, PostgreSQL by its URL, any by a function that connects.

A connection is one of Python's DB-API. Two dialects are told apart, SQLite's and that of PostgreSQL, which most others understand. This
file knows what columns are called there and how values look; what is read and written is the sources' and the sinks' business.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources.decimals import check_decimals
from evenflow.sources.extras import extra
from evenflow.stream.declared import either, function, path

Address = str | Callable[[], Any]
"""The file of an SQLite database, the URL of a PostgreSQL database, or a function that gives a new connection (DB-API 2.0)."""

ADDRESS: Final = either(path("the file of an SQLite database or the URL of a PostgreSQL one"), function())
URL: Final = re.compile(r"postgres(ql)?://")
WAIT_S: Final = 10
"""How long SQLite waits for who is writing, and PostgreSQL's client for the server to answer."""
ADVICE: Final = {
    "ProgrammingError": "name a table that is there and has these columns with these types; with a key, one that is unique there",
    "DataError": "a value does not fit its column: give the column a type that holds it",
    "IntegrityError": "a row breaks a constraint of the table: drop the constraint, or filter such rows",
}
"""What to do, by the classes of errors that every driver has (PEP 249). OperationalError says too many things, but says them itself."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """placeholder: of a parameter. types: of columns, by Arrow type; any other is `other`. plain: values are stored as numbers and text."""

    placeholder: str
    types: Mapping[pa.DataType, str]
    other: str
    plain: bool

    def quoted(self, name: str) -> str:
        """A name of a table or a column as SQL wants it, in a statement with parameters."""
        doubled = name.replace('"', '""')
        return f'"{doubled.replace("%", "%%") if self.placeholder == "%s" else doubled}"'

    def named(self, table: str) -> str:
        """A table that a user has named: a schema may stand before it, schema.table, but in SQLite, which has none."""
        return self.quoted(table) if self.plain else ".".join(map(self.quoted, table.split(".")))

    def listed(self, names: Iterable[str]) -> str:
        return ", ".join(map(self.quoted, names))


SQLITE: Final = Dialect(
    "?",
    {
        pa.bool_(): "INTEGER", pa.int8(): "INTEGER", pa.int16(): "INTEGER", pa.int32(): "INTEGER", pa.int64(): "INTEGER",
        pa.float32(): "REAL", pa.float64(): "REAL", pa.binary(): "BLOB", pa.duration("us"): "INTEGER",
    },
    "TEXT",
    plain=True,
)  # fmt: skip
POSTGRES: Final = Dialect(
    "%s",
    {
        pa.bool_(): "BOOLEAN", pa.int8(): "SMALLINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
        pa.float32(): "REAL", pa.float64(): "DOUBLE PRECISION", pa.binary(): "BYTEA", pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP", pa.timestamp("us", "UTC"): "TIMESTAMPTZ", pa.duration("us"): "INTERVAL",
    },
    "TEXT",
    plain=False,
)  # fmt: skip


def is_postgres(address: Address) -> bool:
    """Whether it is the URL of a PostgreSQL database."""
    return isinstance(address, str) and URL.match(address) is not None


def spelled(address: Address) -> Address:
    """The address in one spelling, as far as that can be told from the address alone: two that differ may be of one database."""
    if not isinstance(address, str):
        return address
    return URL.sub("postgresql://", address, count=1) if is_postgres(address) else os.path.realpath(address)


def connect(address: Address) -> tuple[Any, Dialect]:
    """A new connection and its dialect. Raises what the database raises, and QueryError if its client library is not installed."""
    if not isinstance(address, str):
        connection = address()
    elif is_postgres(address):
        client = postgres_client()
        connection = client.connect(**{"connect_timeout": WAIT_S, **client.conninfo.conninfo_to_dict(address)})
    else:
        import sqlite3

        connection = sqlite3.connect(address, timeout=WAIT_S, check_same_thread=False)
    return connection, SQLITE if is_sqlite(connection) else POSTGRES


def commits_by_itself(connection: Any) -> bool:
    """Whether each statement counts at once, so that no transaction is undone: by the attributes of the usual drivers (psycopg, pg8000,
    sqlite3)."""
    said = getattr(connection, "autocommit", None)
    if isinstance(said, bool):
        return said
    return is_sqlite(connection) and connection.isolation_level is None


def is_sqlite(connection: Any) -> bool:
    return type(connection).__module__.partition(".")[0] == "sqlite3"


def postgres_client() -> Any:
    """The module `psycopg`, which is an extra. Raises QueryError if it is not installed."""
    return extra("psycopg", "PostgreSQL", "psycopg", "postgres")


def described(table: str, address: Address) -> str:
    """A table and its database for people, without passwords."""
    if not isinstance(address, str):
        return f"table {table!r} of {getattr(address, '__qualname__', 'database')}"
    return f"table {table!r} of {shown(address)}"


def shown(address: str) -> str:
    """The address without a password."""
    return re.sub(r"(?<=:)[^:/@]*(?=@)|(?<=password=)[^&]*", "***", address) if is_postgres(address) else address


def check_no_password(table: str, address: Address) -> None:
    """Refuse to save a URL that nobody else should read. Raises QueryError."""
    if isinstance(address, str) and "***" in (said := described(table, address)):
        raise QueryError(f"{said}: its password would be saved as plain text; leave it out, and use a password file or PGPASSWORD")


def explained(error: Exception) -> str:
    """An error of a database in words, and what to do about it."""
    advice = next((ADVICE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in ADVICE), None)
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}{'' if advice is None else f'; {advice}'}"


def column_type(type_: pa.DataType, dialect: Dialect) -> str:
    """What a column of that type is called there."""
    if pa.types.is_decimal(type_) and not dialect.plain:
        return f"NUMERIC({type_.precision}, {type_.scale})"
    if pa.types.is_list(type_) and not dialect.plain:
        return f"{column_type(type_.value_type, dialect)}[]"
    return dialect.types.get(pa.timestamp("us", "UTC") if pa.types.is_timestamp(type_) and type_.tz else type_, dialect.other)


def rows_for(batch: pa.RecordBatch, dialect: Dialect) -> list[tuple[Any, ...]]:
    """The rows as parameters. SQLite has numbers, text and bytes: times are ISO text there, intervals microseconds, decimals text, lists
    JSON."""
    plain = dialect.plain
    given = [column.cast(pa.int64()) if plain and pa.types.is_duration(column.type) else column for column in batch.columns]
    columns = [column.to_pylist() for column in given]
    if dialect.plain:
        columns = [[None if v is None else _plain(v) for v in values] for values in columns]
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, default=str)
    return value if isinstance(value, bool | int | float | str | bytes) else str(value)


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a result as columns of these types. Raises one of NOT_OF_TYPE for a value that is not of its column's type."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [_column(list(values), field) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    type_ = field.type
    if pa.types.is_list(type_):
        return pa.array([json.loads(v) if isinstance(v, str) else v for v in values], type_)
    if pa.types.is_boolean(type_):
        return pa.array([_truth(v, field.name) if isinstance(v, str) else None if v is None else bool(v) for v in values], type_)
    if pa.types.is_decimal(type_):
        check_decimals(field.name, values, type_)
    if any(isinstance(v, str) for v in values) and not pa.types.is_string(type_):
        if pa.types.is_decimal(type_):
            return pa.array([Decimal(v) if isinstance(v, str) else v for v in values], type_)
        return pa.array(values, pa.string()).cast(type_)
    return pa.array(values, type_)


def _truth(text: str, column: str) -> bool:
    """What a text says, as Arrow casts it. Raises ArrowInvalid."""
    try:
        return bool(pa.scalar(text).cast(pa.bool_()).as_py())
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {column!r}: {error}") from error
