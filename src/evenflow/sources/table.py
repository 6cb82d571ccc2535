"""A table of a database as a stream: its rows in the order of a column that only grows, and those that are added, as they are added."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

import pyarrow as pa

from evenflow.errors import EvenflowError, SourceError, UnknownColumn
from evenflow.sources.database import (
    ADDRESS,
    Address,
    Dialect,
    batch_of,
    check_no_password,
    connect,
    described,
    explained,
    is_postgres,
    postgres_client,
)
from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import Declared, May, row_schema, whole
from evenflow.stream.values import NOT_OF_TYPE

BACKOFF_MAX_MS: Final = 10_000


class Unreachable(Exception):
    """There is no connection to ask. A question that a new connection does not answer is another matter."""


class TableReader(Reader):
    """Asks for the rows behind the last one that it has had; when there is none, again after the poll's time.

    It connects when it reads, beside its site's event loop. A connection that breaks is made again, for as long as the source has patience:
    the reader knows where it is. The same holds for who takes over, but a database that nobody has met yet must be there.
    """

    def __init__(self, source: TableSource) -> None:
        self._source = source
        self._last: Any = None
        self._skip = self._expected = 0
        self._counted = source.position is None
        self._connection: Any = None
        self._dialect: Dialect
        self._met = False
        self._failures = self._retry_us = 0

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        source = self._source
        if now_us < self._retry_us:
            self.wake_us = self._retry_us
            return None
        try:
            rows = self._rows(max_rows)
        except Unreachable as error:
            self.wake_us = self._retry_us = now_us + self._pause_us(error)
            return None
        self._met, self._failures = True, 0
        if not rows:
            self.ended, self.wake_us = not source.follow, now_us + source.poll_ms * 1000
            return None
        at = source.columns.get_field_index(source.order_by)
        twice = next((row[at] for row, after in pairwise(rows) if row[at] == after[at]), None)
        if twice is not None:
            advice = "order it by a column that each row has another value of"
            raise SourceError(f"{source}: two rows have {source.order_by} = {twice!r}; {advice}")
        self._last = rows[-1][at]
        try:
            batch = batch_of(rows, source.columns)
        except NOT_OF_TYPE as error:
            raise SourceError(f"{source}: rows up to {source.order_by} = {self._last!r} are not {source.columns}: {error}") from error
        if not self._counted and rows[0][at] < 0:
            advice = "order it by a column that has no negative numbers, or declare it as another type in the schema, such as double"
            raise SourceError(f"{source}: a row has {source.order_by} = {rows[0][at]}, and places in it are numbers from 0 on; {advice}")
        return batch

    def skip(self, rows: int) -> None:
        """rows: how many, or the position behind the last of them."""
        if self._counted:
            self._skip = rows
        elif rows:
            self._last = rows - 1
        self._met = rows > 0

    def expect(self, through: int) -> None:
        self._expected = through

    def _rows(self, max_rows: int) -> list[Any]:
        """The next rows. A connection that was there before may have broken, but what a new one says is what the database says, unless
        it has been closed meanwhile: a server that ends may take connections until it does.

        Raises SourceError, and Unreachable if there is no connection.
        """
        for new in (self._connection is None, True):
            if self._connection is None:
                self._connect()
            try:
                if self._skip:
                    self._last, self._skip = self._row(self._skip), 0
                if self._expected:
                    self._check(self._expected)
                    self._expected = 0
                return self._behind(max_rows)
            except SourceError:
                raise
            except Exception as error:
                closed = getattr(self._connection, "closed", False)
                self.close()
                if closed:
                    raise Unreachable(explained(error)) from error
                if new:
                    raise SourceError(f"cannot read {self._source}: {explained(error)}") from error
        raise AssertionError("a new connection answers or raises")

    def _connect(self) -> None:
        try:
            self._connection, self._dialect = connect(self._source.database)
        except EvenflowError:
            raise
        except Exception as error:  # Of whatever database it is.
            raise Unreachable(explained(error)) from error

    def _row(self, number: int) -> Any:
        """What the row of that number, from 1, is ordered by. Raises SourceError if there are not so many."""
        table, order = self._names()
        found = self._ask(f"SELECT {order} FROM {table} WHERE {order} IS NOT NULL ORDER BY {order} LIMIT 1 OFFSET {number - 1}", ())
        if not found:
            raise SourceError(f"{self._source} has lost rows: {number} had been read; a table that is read as a stream only grows")
        return found[0][0]

    def _check(self, through: int) -> None:
        """Raises SourceError if the last of the rows that are needed again has gone."""
        if self._counted:
            self._row(through)
            return
        table, order = self._names()
        if not self._ask(f"SELECT 1 FROM {table} WHERE {order} = {self._dialect.placeholder}", (through - 1,)):
            named, begin = self._source.order_by, 0 if self._last is None else self._last + 1
            raise SourceError(
                f"{self._source} has lost rows: those with {named} from {begin} to {through - 1} had been read and are needed again, and "
                "the last of them has gone. Keep rows until a checkpoint covers them, or give the dataflow a new location"
            )

    def _behind(self, max_rows: int) -> list[Any]:
        """The rows that follow the last one."""
        table, order = self._names()
        columns = self._dialect.listed(self._source.columns.names)
        behind = "IS NOT NULL" if self._last is None else f"> {self._dialect.placeholder}"
        statement = f"SELECT {columns} FROM {table} WHERE {order} {behind} ORDER BY {order} LIMIT {max_rows}"
        return self._ask(statement, () if self._last is None else (self._last,))

    def _names(self) -> tuple[str, str]:
        return self._dialect.named(self._source.table), self._dialect.quoted(self._source.order_by)

    def _ask(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
        self._connection.rollback()  # The next question sees what has come since.
        return rows

    def _pause_us(self, error: Unreachable) -> int:
        """How long until the next attempt to connect. Raises SourceError when there have been enough."""
        if not self._met:
            raise SourceError(f"cannot read {self._source}: {error}; give a database that every site reaches") from error
        self._failures += 1
        if self._failures > self._source.retries:
            advice = "start it, or give the source more retries"
            raise SourceError(f"cannot read {self._source}: {self._failures} attempts to reach it again have failed: {error}; {advice}")
        return min(self._source.backoff_ms << (self._failures - 1), BACKOFF_MAX_MS) * 1000

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # A broken one.
                connection.close()


@dataclass(frozen=True)
class TableSource(Declared, Source):
    """database: file, URL, or a function that connects. order_by: one of `columns`, unique, and greater in every row added later.

    follow: wait for more rows when all have been read. poll_ms: how often to look. retries, backoff_ms: how often and how patiently a
    database that is away is looked for again.
    """

    kind: ClassVar[str] = "table"
    uncut: ClassVar[str] = "the places of its rows begin anywhere and have gaps of any size, and they have no log time"
    blocking: ClassVar[bool] = True
    database: Address
    table: str
    columns: pa.Schema
    order_by: str
    follow: bool = True
    poll_ms: int = 100
    retries: int = 10
    backoff_ms: int = 100
    MAY: ClassVar[Mapping[str, May]] = {
        "database": ADDRESS, "columns": row_schema().called("schema"), "retries": whole(0, 10**6), "backoff_ms": whole(0, 10**9),
        "poll_ms": whole(1, 10**9),
    }  # fmt: skip
    option_owner: ClassVar[str] = "table source"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order_by not in self.columns.names:
            there = ", ".join(self.columns.names)
            raise UnknownColumn(f"table source {self.table!r}: there is no column {self.order_by!r}; order_by is one of {there}")

    def __str__(self) -> str:
        return described(self.table, self.database)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def streaming(self) -> bool:
        return self.follow

    @property
    def position(self) -> str | None:
        """What rows are ordered by, where that is a whole number: rows that were read may be deleted then, and those that were not are
        missed. Otherwise rows are counted."""
        return self.order_by if pa.types.is_integer(self.columns.field(self.order_by).type) else None

    def partitions(self, sites: int) -> int:
        return 1

    def warm_up(self) -> None:
        if is_postgres(self.database):
            postgres_client()

    def open(self, partition: int, of: int) -> Reader:
        return TableReader(self)

    def to_json(self) -> dict[str, Any]:
        check_no_password(self.table, self.database)
        return super().to_json()
