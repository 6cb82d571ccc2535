"""Results in a table of a database: whole epochs, each in one transaction that also remembers its number, so that none counts twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from evenflow.errors import EvenflowError, QueryError, SinkError, TypeMismatch, UnknownColumn
from evenflow.sinks.changed_keys import effects_of
from evenflow.sinks.sink import PATIENCE, Appender, Sink, Where, Writer, read_note, replaced, with_note
from evenflow.sources.database import (
    ADDRESS,
    Address,
    Dialect,
    check_no_password,
    column_type,
    commits_by_itself,
    connect,
    described,
    explained,
    rows_for,
    spelled,
)
from evenflow.stream.change import CHANGE, is_changelog
from evenflow.stream.declared import Declared, May, each, text
from evenflow.stream.ids import generation_of, run_of, run_of_generation
from evenflow.stream.schema import holds_fields, type_name

Done = TypeVar("Done")
EPOCHS: Final = "evenflow_epochs"
"""The table beside the results' that remembers the last epoch of each run. Where each generation is a run of its own here, the row of the
run itself has the newest generation that writes."""

OVER: Final = 2**63 - 1
"""Instead of the last epoch of a generation that another one has followed: it has no later one."""

CHAINS: Final = "evenflow_chains"
"""The same for groups of regions: the last epoch with rows, and its digest, by which two regions that differ are found out."""

OPEN: Final[dict[tuple[str, object], TableWriter]] = {}
"""Who writes in this process, by run and place."""


class TableWriter(Writer):
    """One connection, made again after an error: what a broken one had begun is undone by the database. claims: it is the only one of its
    run in this process."""

    claims: ClassVar[bool] = True

    def __init__(self, sink: TableSink, run_id: str) -> None:
        self._sink, self._run = sink, run_id
        self._connection: Any = None
        self._dialect: Dialect
        self._known = False
        self._generation, self._first = generation_of(run_id), True
        # Before anything that takes time: the writers of a run are opened at once, each in a thread of its own.
        self._claim = (run_id, sink.place)
        if self.claims and OPEN.setdefault(self._claim, self) is not self:
            raise self._taken()
        try:
            self._connect()
            if any(self._reaches(other._sink.database) for other in self._others()):
                raise self._taken()
            self.newest = self._noted()
            if self.newest == OVER:
                raise self._replaced()
        except BaseException as error:
            with suppress(Exception):
                self.close()
            if isinstance(error, EvenflowError) or not isinstance(error, Exception):
                raise
            raise SinkError(f"cannot write {sink}: {explained(error)}; give a database that the driver reaches") from error

    def _taken(self) -> SinkError:
        return SinkError(f"two boxes would write into {self._sink} at the same time; unite their streams before, or give each a table")

    def _others(self) -> list[TableWriter]:
        """Who has claimed a table of this name for the run under another address, which may be one of the same database. Of two that come
        at once, each finds the other."""
        if not self.claims:
            return []
        return [o for o in list(OPEN.values()) if o is not self and (o._run, o._sink.table) == (self._run, self._sink.table)]

    def _reaches(self, address: Address) -> bool:
        """Whether what this connection commits is seen there: then both are of one database. Where that one cannot be asked, its own writer
        says so."""
        mark = ("", f"{self._run} {id(self)}")
        try:
            there, dialect = connect(address)
        except Exception:
            return False
        with closing(there):
            try:
                make_epochs(there, dialect)
            except Exception:
                return False
            p, epochs = self._dialect.placeholder, self._dialect.quoted(EPOCHS)
            self._execute(f"INSERT INTO {epochs} (target, run, epoch) VALUES ({p}, {p}, 0)", *mark)
            self._connection.commit()
            try:
                q, theirs, cursor = dialect.placeholder, dialect.quoted(EPOCHS), there.cursor()
                cursor.execute(f"SELECT epoch FROM {theirs} WHERE target = {q} AND run = {q}", mark)
                found = cursor.fetchone() is not None
                there.rollback()  # SQLite deletes nothing while somebody reads.
            finally:
                self._execute(f"DELETE FROM {epochs} WHERE target = {p} AND run = {p}", *mark)
                self._connection.commit()
            return found

    def _connect(self) -> None:
        self._connection, self._dialect = connect(self._sink.database)
        if commits_by_itself(self._connection):
            raise SinkError(
                f"cannot write {self._sink}: its connection commits by itself (autocommit), so a part of an epoch that fails would "
                "stay; give a function whose connection leaves that to the sink: autocommit=False, of sqlite3 no isolation_level=None"
            )
        make_epochs(self._connection, self._dialect)

    def _noted(self) -> int:
        """The last epoch of the run that is in the table; 0 if there is none."""
        table, p = self._dialect.quoted(EPOCHS), self._dialect.placeholder
        found = self._execute(f"SELECT epoch FROM {table} WHERE target = {p} AND run = {p}", self._sink.table, self._run).fetchone()
        self._connection.rollback()
        return 0 if found is None else int(found[0])

    def _execute(self, statement: str, *parameters: Any) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        def take() -> None:
            self._write(epoch, batch)
            self._connection.commit()

        self._tried(take)
        self._known, self._first = self._known or batch.num_rows > 0, False

    def _tried(self, what: Callable[[], Done]) -> Done:
        """Do something on the connection. One on which it went wrong is not used again. Raises SinkError."""
        try:
            if self._connection is None:
                self._connect()
            return what()
        except BaseException as error:
            broken, self._connection = self._connection, None
            with suppress(Exception):
                broken.rollback()
            with suppress(Exception):
                broken.close()
            if isinstance(error, Exception) and not isinstance(error, EvenflowError):
                raise SinkError(f"cannot write {self._sink}: {explained(error)}") from error
            raise

    def _write(self, epoch: int, batch: pa.RecordBatch) -> None:
        sink, p, epochs = self._sink, self._dialect.placeholder, self._dialect.quoted(EPOCHS)
        if self._first and self._generation:
            self._succeed()
        # First of all, so that it waits for a commit of the same epoch that is still under way, of a connection that has broken since: a
        # look at what is there would find the epoch before, and the rows would be there twice.
        noted = self._execute(
            f"INSERT INTO {epochs} (target, run, epoch) VALUES ({p}, {p}, {p}) "
            f"ON CONFLICT (target, run) DO UPDATE SET epoch = excluded.epoch WHERE {epochs}.epoch < excluded.epoch",
            sink.table, self._run, epoch,
        )  # fmt: skip
        if noted.rowcount == 0:
            if self._noted() == OVER:
                raise self._replaced()
            return  # It was committed, and nobody came to hear of it.
        if batch.num_rows:
            self._put(batch)

    def _succeed(self) -> None:
        """Generations before this one write nothing more: the driver of one may live, and would put its rows over newer ones. What it is
        committing is waited for. In the transaction of the first epoch, so that each finds what the other has done."""
        sink, p, epochs = self._sink, self._dialect.placeholder, self._dialect.quoted(EPOCHS)
        run = run_of(self._run)
        noted = self._execute(
            f"INSERT INTO {epochs} (target, run, epoch) VALUES ({p}, {p}, {p}) "
            f"ON CONFLICT (target, run) DO UPDATE SET epoch = excluded.epoch WHERE {epochs}.epoch <= excluded.epoch",
            sink.table, run, self._generation,
        )  # fmt: skip
        if noted.rowcount == 0:
            raise self._replaced()
        before = run_of_generation(run, 0)[:-1]
        self._execute(
            f"UPDATE {epochs} SET epoch = {OVER} WHERE target = {p} AND substr(run, 1, {len(before)}) = {p} AND run <> {p}",
            sink.table, before, self._run,
        )  # fmt: skip

    def _replaced(self) -> SinkError:
        return replaced(str(self._sink), self._generation, run_of(self._run))

    def _put(self, batch: pa.RecordBatch) -> None:
        """The rows of an epoch, in the transaction that is open."""
        sink = self._sink
        changes = is_changelog(batch.schema)
        self._prepare(batch.drop_columns([CHANGE]) if changes else batch)
        if changes:
            gone, kept, moved = effects_of(batch, sink.key)
            self._many(deleted(sink, self._dialect), gone)
            if rest := [name for name in moved.schema.names if name not in sink.key]:
                self._many(updated(sink, rest, self._dialect), moved.select([*rest, *sink.key]))
            self._many(inserted(sink, kept.schema, self._dialect), kept)
            return
        if sink.overwrite:
            self._execute(f"DELETE FROM {self._dialect.named(sink.table)}")
        self._many(inserted(sink, batch.schema, self._dialect), batch)

    def _prepare(self, batch: pa.RecordBatch) -> None:
        """Make the table if there is none. Raises SinkError if these rows cannot go into the one that is there."""
        for name in self._sink.key:
            if batch.column(name).null_count:
                advice = f"a null is no key: filter such rows before, or give them another one, such as coalesce({name}, ...)"
                raise SinkError(f"cannot write {self._sink}: {name!r}, of its key, is null in a row; {advice}")
        if self._known:
            return
        self._execute(created(self._sink, batch.schema, self._dialect))
        there = [column[0] for column in self._execute(f"SELECT * FROM {self._dialect.named(self._sink.table)} WHERE 1 = 0").description]
        missing = [name for name in batch.schema.names if name not in there]
        if missing:
            raise SinkError(
                f"cannot write {self._sink}: it has no column {missing[0]!r}; it has {', '.join(there)}, and the results have "
                f"{', '.join(batch.schema.names)}. Write into another table, or select these columns"
            )

    def _many(self, statement: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._connection.cursor().executemany(statement, rows_for(batch, self._dialect))

    def close(self) -> None:
        if OPEN.get(self._claim) is self:
            del OPEN[self._claim]
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()


class TableAppender(TableWriter, Appender):
    """The table as the regions of a group write to it: its row of `evenflow_chains` moves from one epoch with rows to the next, in the same
    transaction as the rows. Who comes second finds another epoch there, and does nothing."""

    claims: ClassVar[bool] = False

    def __init__(self, sink: TableSink, group: str, whose: str = "") -> None:
        self._whose = whose
        super().__init__(sink, group)

    def _connect(self) -> None:
        super()._connect()
        chains = self._dialect.quoted(CHAINS)
        columns = "target TEXT, run TEXT, epoch BIGINT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (target, run)"
        p = self._dialect.placeholder
        for statement, values in (
            (f"CREATE TABLE IF NOT EXISTS {chains} ({columns})", ()),
            (
                f"INSERT INTO {chains} (target, run, epoch, digest) VALUES ({p}, {p}, 0, '0') ON CONFLICT (target, run) DO NOTHING",
                self._row,
            ),
        ):
            try:
                self._execute(statement, *values)
                self._connection.commit()
            except Exception:  # Another region makes it at this moment, perhaps.
                with suppress(Exception):
                    self._connection.rollback()
                self._execute(statement, *values)
                self._connection.commit()

    @property
    def _row(self) -> tuple[str, str]:
        return self._sink.table, self._run

    def last(self) -> tuple[int, int]:
        chains, p = self._dialect.quoted(CHAINS), self._dialect.placeholder

        def look() -> tuple[int, int]:
            found = self._execute(f"SELECT epoch, digest FROM {chains} WHERE target = {p} AND run = {p}", *self._row).fetchone()
            self._connection.rollback()
            digest, self.noted = read_note(found[1])
            return int(found[0]), digest

        return self._tried(look)

    def append(self, prev: int, epoch: int, digest: int, batch: pa.RecordBatch) -> bool:
        chains, p = self._dialect.quoted(CHAINS), self._dialect.placeholder

        def take() -> bool:
            moved = self._execute(
                f"UPDATE {chains} SET epoch = {p}, digest = {p} WHERE target = {p} AND run = {p} AND epoch = {p}",
                epoch, with_note(digest, self._whose), *self._row, prev,
            )  # fmt: skip
            if moved.rowcount == 0:
                self._connection.rollback()
                return False
            self._put(batch)
            self._connection.commit()
            self.noted = self._whose
            return True

        return self._tried(take)


def make_epochs(connection: Any, dialect: Dialect) -> None:
    """Make the table of epochs, if there is none yet."""
    columns = "target TEXT, run TEXT, epoch BIGINT NOT NULL, PRIMARY KEY (target, run)"
    for last in (False, True):
        try:
            connection.cursor().execute(f"CREATE TABLE IF NOT EXISTS {dialect.quoted(EPOCHS)} ({columns})")
            connection.commit()
            return
        except Exception:
            # Another run makes it at this moment, perhaps: PostgreSQL takes IF NOT EXISTS, and then says that it exists.
            with suppress(Exception):
                connection.rollback()
            if last:
                raise


def deleted(sink: TableSink, dialect: Dialect) -> str:
    """DELETE of the row with a key."""
    return f"DELETE FROM {dialect.named(sink.table)} WHERE {same_key(sink, dialect)}"


def updated(sink: TableSink, rest: Sequence[str], dialect: Dialect) -> str:
    """UPDATE of the row with a key, if there is one. rest: its other columns, whose values come first."""
    news = ", ".join(f"{dialect.quoted(name)} = {dialect.placeholder}" for name in rest)
    return f"UPDATE {dialect.named(sink.table)} SET {news} WHERE {same_key(sink, dialect)}"


def same_key(sink: TableSink, dialect: Dialect) -> str:
    return " AND ".join(f"{dialect.quoted(name)} = {dialect.placeholder}" for name in sink.key)


def created(sink: TableSink, schema: pa.Schema, dialect: Dialect) -> str:
    """CREATE TABLE, if there is none yet."""
    columns = [f"{dialect.quoted(column.name)} {column_type(column.type, dialect)}" for column in schema]
    key = [f"PRIMARY KEY ({dialect.listed(sink.key)})"] if sink.key else []
    return f"CREATE TABLE IF NOT EXISTS {dialect.named(sink.table)} ({', '.join([*columns, *key])})"


def inserted(sink: TableSink, schema: pa.Schema, dialect: Dialect) -> str:
    """INSERT of one row; a row with a key that is there takes its place."""
    values = ", ".join([dialect.placeholder] * len(schema))
    statement = f"INSERT INTO {dialect.named(sink.table)} ({dialect.listed(schema.names)}) VALUES ({values})"
    if not sink.key:
        return statement
    rest = [name for name in schema.names if name not in sink.key]
    news = ", ".join(f"{dialect.quoted(name)} = excluded.{dialect.quoted(name)}" for name in rest)
    return f"{statement} ON CONFLICT ({dialect.listed(sink.key)}) DO {f'UPDATE SET {news}' if rest else 'NOTHING'}"


@dataclass(frozen=True)
class TableSink(Declared, Sink):
    """database: file, URL, or a function that connects. key: columns by which a row takes the place of the one before; none: all stay.

    overwrite: an epoch with rows takes the place of everything that is there. Of a changelog, which needs a key, the table has what is
    left.
    """

    kind: ClassVar[str] = "table"
    where: ClassVar[Where] = "driver"
    compares: ClassVar[bool] = True
    database: Address
    table: str
    key: tuple[str, ...] = ()
    overwrite: bool = False
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)
    MAY: ClassVar[Mapping[str, May]] = {**PATIENCE, "database": ADDRESS, "key": each(text(), "names of columns")}
    option_owner: ClassVar[str] = "table sink"

    def __str__(self) -> str:
        return described(self.table, self.database)

    @property
    def place(self) -> tuple[object, ...]:
        return self.kind, spelled(self.database), self.table

    def check(self, schema: pa.Schema) -> None:
        for name in self.key:
            if name not in schema.names:
                raise UnknownColumn(f"the key of {self} is {name!r}, and there is no such column; there are {', '.join(schema.names)}")
        for column in schema:
            if holds_fields(column.type):
                raise TypeMismatch(
                    f"{self} has no columns of structures and maps, and {column.name!r} is {type_name(column.type)}; select what is in it "
                    f"as columns, or to_json({column.name}) AS {column.name}"
                )
        if is_changelog(schema) and self.overwrite:
            raise QueryError(f"{self} is given changes, and would overwrite the table with them; give it a key, or .complete() before it")
        if is_changelog(schema) and (not self.key or CHANGE in self.key):
            raise QueryError(
                f"{self} is given changes of a result: give it the key by which a row of it is known, such as that of its group"
            )

    def open(self, run_id: str) -> Writer:
        return TableWriter(self, run_id)

    def open_for_group(self, group: str, name: str, whose: str = "") -> Appender:
        return TableAppender(self, group, whose)

    def to_json(self) -> dict[str, Any]:
        check_no_password(self.table, self.database)
        return super().to_json()
