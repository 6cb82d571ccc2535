"""A table of a database as a stream: its rows in the order of a column that only grows, and those that are added, as they are added."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa

from evenflow.errors import SourceError
from evenflow.sources.database import Address, batch_of, connect, listed, quoted
from evenflow.sources.source import Reader, Source


class TableReader(Reader):
    """Asks for the rows behind the last one that it has had; when there is none, again after the poll's time."""

    def __init__(self, source: TableSource) -> None:
        self._source = source
        self._last: Any = None
        try:
            self._connection, self._dialect = connect(source.database)
        except Exception as error:  # Of whatever database it is.
            raise SourceError(f"cannot read {source}: {type(error).__name__}: {error}; give a database that every site reaches") from error

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        source, order = self._source, quoted(self._source.order_by)
        behind = "IS NOT NULL" if self._last is None else f"> {self._dialect.placeholder}"
        rows = self._ask(
            f"SELECT {listed(source.columns.names)} FROM {quoted(source.table)} WHERE {order} {behind} ORDER BY {order} LIMIT {max_rows}",
            () if self._last is None else (self._last,),
        )
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
            return batch_of(rows, source.columns)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SourceError(f"{source}: rows up to {source.order_by} = {self._last!r} are not {source.columns}: {error}") from error

    def skip(self, rows: int) -> None:
        if rows == 0:
            return
        order = quoted(self._source.order_by)
        found = self._ask(
            f"SELECT {order} FROM {quoted(self._source.table)} WHERE {order} IS NOT NULL ORDER BY {order} LIMIT 1 OFFSET {rows - 1}", ()
        )
        if not found:
            raise SourceError(f"{self._source} has lost rows: {rows} had been read; a table that is read as a stream only grows")
        self._last = found[0][0]

    def _ask(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        try:
            cursor = self._connection.cursor()
            cursor.execute(statement, parameters)
            rows: list[Any] = cursor.fetchall()
            self._connection.rollback()  # The next question sees what has come since.
        except Exception as error:
            raise SourceError(f"cannot read {self._source}: {type(error).__name__}: {error}") from error
        return rows

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class TableSource(Source):
    """database: file of SQLite, or a function that connects. order_by: one of `columns`, unique, and greater in every row added later.

    follow: wait for more rows when all have been read. poll_ms: how often to look.
    """

    kind: ClassVar[str] = "table"
    blocking: ClassVar[bool] = True
    database: Address
    table: str
    columns: pa.Schema
    order_by: str
    follow: bool = True
    poll_ms: int = 100

    def __str__(self) -> str:
        where = self.database if isinstance(self.database, str) else getattr(self.database, "__qualname__", "database")
        return f"table {self.table!r} of {where}"

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def streaming(self) -> bool:
        return self.follow

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> Reader:
        return TableReader(self)
