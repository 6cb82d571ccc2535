"""Results in a table of a database: whole epochs, each in one transaction that also remembers its number, so that none counts twice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.errors import SinkError, UnknownColumn
from evenflow.sinks.sink import Sink, Where, Writer
from evenflow.sources.database import Address, Dialect, column_type, connect, listed, quoted, rows_for

EPOCHS: Final = "evenflow_epochs"
"""The table beside the results' that remembers the last epoch of each run."""

OPEN: Final[set[tuple[str, Address, str]]] = set()
"""What is being written in this process: run, database, table."""


class TableWriter(Writer):
    """One connection, made again after an error: what a broken one had begun is undone by the database."""

    def __init__(self, sink: TableSink, run_id: str) -> None:
        self._sink, self._run = sink, run_id
        self._connection: Any = None
        self._dialect: Dialect
        self._claim = (run_id, sink.database, sink.table)
        if self._claim in OPEN:
            raise SinkError(f"two boxes would write into {sink} at the same time; unite their streams before, or give each a table")
        try:
            self._connect()
        except Exception as error:  # Of whatever database it is.
            raise SinkError(f"cannot write {sink}: {type(error).__name__}: {error}; give a database that the driver reaches") from error
        OPEN.add(self._claim)

    def _connect(self) -> None:
        self._connection, self._dialect = connect(self._sink.database)
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {quoted(EPOCHS)} (target TEXT, run TEXT, epoch BIGINT NOT NULL, PRIMARY KEY (target, run))"
        )
        self._connection.commit()

    def _execute(self, statement: str, *parameters: Any) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if self._connection is None:
            self._connect()
        try:
            self._write(epoch, batch)
            self._connection.commit()
        except BaseException:
            broken, self._connection = self._connection, None
            with suppress(Exception):
                broken.rollback()
            with suppress(Exception):
                broken.close()
            raise

    def _write(self, epoch: int, batch: pa.RecordBatch) -> None:
        sink, p = self._sink, self._dialect.placeholder
        stored = self._execute(f"SELECT epoch FROM {quoted(EPOCHS)} WHERE target = {p} AND run = {p}", sink.table, self._run).fetchone()
        if stored is not None and epoch <= stored[0]:
            return  # It was committed, and nobody came to hear of it.
        if batch.num_rows:
            self._execute(created(sink, batch.schema, self._dialect))
            self._connection.cursor().executemany(inserted(sink, batch.schema, self._dialect), rows_for(batch, self._dialect))
        self._execute(
            f"INSERT INTO {quoted(EPOCHS)} (target, run, epoch) VALUES ({p}, {p}, {p}) "
            "ON CONFLICT (target, run) DO UPDATE SET epoch = excluded.epoch",
            sink.table, self._run, epoch,
        )  # fmt: skip

    def close(self) -> None:
        OPEN.discard(self._claim)
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def created(sink: TableSink, schema: pa.Schema, dialect: Dialect) -> str:
    """CREATE TABLE, if there is none yet."""
    columns = [f"{quoted(column.name)} {column_type(column.type, dialect)}" for column in schema]
    key = [f"PRIMARY KEY ({listed(sink.key)})"] if sink.key else []
    return f"CREATE TABLE IF NOT EXISTS {quoted(sink.table)} ({', '.join([*columns, *key])})"


def inserted(sink: TableSink, schema: pa.Schema, dialect: Dialect) -> str:
    """INSERT of one row; a row with a key that is there takes its place."""
    values = ", ".join([dialect.placeholder] * len(schema))
    statement = f"INSERT INTO {quoted(sink.table)} ({listed(schema.names)}) VALUES ({values})"
    if not sink.key:
        return statement
    rest = [name for name in schema.names if name not in sink.key]
    news = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
    return f"{statement} ON CONFLICT ({listed(sink.key)}) DO {f'UPDATE SET {news}' if rest else 'NOTHING'}"


@dataclass(frozen=True)
class TableSink(Sink):
    """database: file of SQLite, or a function that connects. key: columns by which a row takes the place of the one before; none: all
    stay."""

    kind: ClassVar[str] = "table"
    where: ClassVar[Where] = "driver"
    database: Address
    table: str
    key: tuple[str, ...] = ()
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    def __str__(self) -> str:
        where = self.database if isinstance(self.database, str) else getattr(self.database, "__qualname__", "database")
        return f"table {self.table!r} of {where}"

    def check(self, schema: pa.Schema) -> None:
        for name in self.key:
            if name not in schema.names:
                raise UnknownColumn(f"the key of {self} is {name!r}, and there is no such column; there are {', '.join(schema.names)}")

    def open(self, run_id: str) -> Writer:
        return TableWriter(self, run_id)
