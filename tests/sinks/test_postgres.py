"""Tables of a real PostgreSQL server as sinks and sources: whole epochs, once each, whoever dies; types there and back; clear errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import sinks, sources
from evenflow.errors import QueryError, SinkError, SourceError
from evenflow.sinks.table import TableSink
from tests.postgres import PostgresServer
from tests.sinks.test_table import batch
from tests.sources.test_table import EVERY_TYPE, values

psycopg = pytest.importorskip("psycopg")
WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
KILLED = """
import os, signal, sys
import pyarrow as pa
from evenflow import sinks
from evenflow.sinks.table import TableWriter

def rows(value): return pa.record_batch([[value], [str(value)]], names=["k", "what is"])
writer = sinks.table(sys.argv[1], sys.argv[2]).open("run")
writer.write(1, rows(1))
if sys.argv[3] == "before":
    writer._write(2, rows(2))
else:
    writer.write(2, rows(2))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Of the server, whose database is empty again."""
    with psycopg.connect(server.url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return server.url


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement)
        return [] if cursor.description is None else cursor.fetchall()


def stored(url: str, table: str = "out") -> list[tuple[Any, ...]]:
    return ask(url, f'SELECT * FROM "{table}" ORDER BY 1, 2')


# ---------------------------------------------------------------- sink


def test_a_connection_that_commits_by_itself_is_refused(url: str) -> None:
    with pytest.raises(SinkError, match=r"table 'out' of .*: its connection commits by itself \(autocommit\)"):
        TableSink(lambda: psycopg.connect(url, autocommit=True), "out").open("run")
    TableSink(lambda: psycopg.connect(url), "out").open("run").close()


def test_one_database_under_two_urls(url: str) -> None:
    writer = sinks.table(url, "out").open("run")
    for other in (
        url.replace("postgresql://", "postgres://"),
        url + ("&" if "?" in url else "?") + "application_name=b",
        lambda: psycopg.connect(url),
    ):
        with pytest.raises(SinkError, match="two boxes would write into table 'out' of "):
            sinks.table(other, "out").open("run")
    writer.write(1, batch((1, "a")))
    writer.close()
    assert ask(url, "SELECT target, run, epoch FROM evenflow_epochs") == [("out", "run", 1)]


def test_epochs_are_written_once_and_in_order(url: str) -> None:
    writer = sinks.table(url, "out").open("run")
    for epoch, rows in ((1, batch((1, "a"), (2, "b"))), (2, batch()), (3, batch((1, "a"))), (3, batch((1, "a"))), (1, batch((9, "old")))):
        writer.write(epoch, rows)
    writer.close()
    assert stored(url) == [(1, "a"), (1, "a"), (2, "b")]
    assert stored(url, "evenflow_epochs") == [("out", "run", 3)]


def test_with_a_key_the_newest_row_is_the_result(url: str) -> None:
    writer = sinks.table(url, "50 % of", "k").open("run")
    writer.write(1, batch((1, "a"), (2, "b"), (1, "c")))
    writer.write(2, batch((2, "d")))
    writer.close()
    assert stored(url, "50 % of") == [(1, "c"), (2, "d")]


def test_a_schema_stands_before_the_table(url: str) -> None:
    """Goal: the rows are where everybody else looks for them. A table of the name "Sales.50 % of" was made elsewhere."""
    ask(url, 'CREATE SCHEMA IF NOT EXISTS "Sales"')
    ask(url, 'DROP TABLE IF EXISTS "Sales"."50 % of"')
    for run in ("run", "again"):
        writer = sinks.table(url, "Sales.50 % of", "k").open(run)
        writer.write(1, batch((1, "a"), (2, run)))
        writer.close()
    assert ask(url, 'SELECT * FROM "Sales"."50 % of" ORDER BY 1') == [(1, "a"), (2, "again")]
    reader = sources.table(url, "Sales.50 % of", "k bigint", "k", follow=False).open(0, 1)
    assert (found := reader.read(0, 9)) is not None and found["k"].to_pylist() == [1, 2]
    reader.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_writer_is_killed_around_its_commit(url: str, moment: str) -> None:
    """The process that writes ends by SIGKILL, before or after the second epoch's commit; its successor writes that epoch again."""
    killed = subprocess.run([sys.executable, "-c", KILLED, url, "out", moment], check=False, timeout=60)
    assert killed.returncode == -9
    writer = sinks.table(url, "out").open("run")
    writer.write(2, batch((2, "2")))
    writer.write(3, batch((3, "3")))
    writer.close()
    assert stored(url) == [(1, "1"), (2, "2"), (3, "3")]


class Cut:
    """A connection that breaks at its second commit, of which the server has heard: it is under way there until somebody says commit."""

    under_way: ClassVar[list[Any]] = []

    def __init__(self, url: str) -> None:
        self._inner, self._commits = psycopg.connect(url), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self) -> None:
        self._commits += 1
        if self._commits == 2 and not self.under_way:
            self.under_way.append(self._inner)
            self._inner = psycopg.Connection.__new__(psycopg.Connection)  # Nothing can be asked of it, nor rolled back.
            raise OSError("the line is dead")
        self._inner.commit()


def test_a_commit_that_is_still_under_way_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: rows of an epoch without a key are there once. Method: offer the epoch again while its first commit hangs."""
    monkeypatch.setattr(Cut, "under_way", [])
    writer = TableSink(lambda: Cut(url), "out").open("run")
    with pytest.raises(SinkError, match="the line is dead"):
        writer.write(1, batch((1, "a")))
    again = threading.Thread(target=writer.write, args=(1, batch((1, "a"))))
    again.start()
    while not ask(url, WAITS) and again.is_alive():
        pass
    (first,) = Cut.under_way
    first.commit()
    first.close()
    again.join(30)
    writer.write(2, batch((2, "b")))
    writer.close()
    assert stored(url) == [(1, "a"), (2, "b")]


def test_what_a_replaced_generation_is_committing_is_waited_for(url: str) -> None:
    """Goal: the newer row stays. Method: the older generation's transaction is open when the next one writes its first epoch."""
    old, new = sinks.table(url, "out", "k").open("run.g1"), sinks.table(url, "out", "k").open("run.g2")
    old.write(1, batch((1, "a")))
    old._write(2, batch((1, "stale")))
    goes_on = threading.Thread(target=new.write, args=(1, batch((1, "b"))))
    goes_on.start()
    while not ask(url, WAITS) and goes_on.is_alive():
        pass
    old._connection.commit()
    goes_on.join(20)
    with pytest.raises(SinkError, match="by a later generation than 1 of run run"):
        old.write(3, batch((1, "stale")))
    assert stored(url) == [(1, "b")]
    old.close()
    new.close()


@pytest.mark.parametrize("how", ["immediate", "fast"])
def test_a_writer_and_a_reader_survive_a_restart_of_the_server(server: PostgresServer, url: str, how: str) -> None:
    writer = sinks.table(url, "out").open("run")
    writer.write(1, batch((1, "a")))
    reader = sources.table(url, "out", "k bigint, `what is` string", "k", poll_ms=20).open(0, 1)
    assert values(reader.read(0, 10)) == [(1, "a")]
    with server.away(how):
        with pytest.raises(SinkError, match="cannot write table 'out' of postgresql://.*: (AdminShutdown|OperationalError): "):
            writer.write(2, batch((2, "b")))
        with pytest.raises(SinkError, match="No such file or directory|refused"):
            writer.write(2, batch((2, "b")))
        successor = sources.table(url, "out", "k bigint, `what is` string", "k").open(0, 1)
        successor.skip(2)  # Behind the row whose key is 1.
        for reading in (reader, successor):
            assert reading.read(0, 10) is None and reading.wake_us == 100_000 and not reading.ended
            assert reading.read(99_999, 10) is None and reading.wake_us == 100_000
            assert reading.read(100_000, 10) is None and reading.wake_us == 300_000
    writer.write(2, batch((2, "b")))
    assert values(reader.read(300_000, 10)) == values(successor.read(300_000, 10)) == [(2, "b")]
    assert reader.read(300_000, 10) is None and reader.wake_us == 320_000
    for opened in (writer, reader, successor):
        opened.close()
    assert stored(url) == [(1, "a"), (2, "b")]


def test_runs_that_begin_at_the_same_moment_share_the_table_of_epochs(url: str) -> None:
    writers: list[Any] = []
    gate = threading.Barrier(8)

    def begin(run: int) -> None:
        gate.wait()
        writers.append(sinks.table(url, "out").open(f"run {run}"))

    threads = [threading.Thread(target=begin, args=(run,)) for run in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for writer in writers:
        writer.close()
    assert len(writers) == 8


def test_every_type_goes_there_and_comes_back(url: str) -> None:
    numbered = pa.RecordBatch.from_arrays([pa.array([1, 2]), *EVERY_TYPE.columns], names=["id", *EVERY_TYPE.schema.names])
    berlin = pa.array([None, 1_700_000_000_000_000], pa.timestamp("us", "Europe/Berlin"))
    more = {"utc": berlin.cast(pa.timestamp("us", "UTC")), "berlin": berlin, "texts": pa.array([["a", None], []], pa.list_(pa.string()))}
    for name, column in more.items():
        numbered = numbered.append_column(name, column)
    writer = sinks.table(url, "out", "id").open("run")
    writer.write(1, numbered)
    writer.close()
    reader = sources.table(url, "out", numbered.schema, "id", follow=False).open(0, 1)
    back = reader.read(0, 10)
    reader.close()
    same = numbered.set_column(numbered.schema.get_field_index("berlin"), "berlin", more["utc"])
    assert back is not None and back.equals(same), "moments of any zone are columns of UTC"
    kinds = dict(ask(url, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'out'"))
    assert kinds["d"] == "numeric" and kinds["berlin"] == kinds["utc"] == "timestamp with time zone" and kinds["list"] == "ARRAY"


# ---------------------------------------------------------------- errors


def test_a_server_that_is_not_there_is_an_error_before_any_row() -> None:
    nowhere = "postgresql://me:secret@127.0.0.1:1/shop?password=secret"
    with pytest.raises(
        SinkError, match="cannot write table 'out' of .*127.0.0.1.*refused.*give a database that the driver reaches"
    ) as sunk:
        sinks.table(nowhere, "out").open("run")
    with pytest.raises(SourceError, match="cannot read table 'out' of .*refused.*give a database that every site reaches") as read:
        sources.table(nowhere, "out", "id bigint", "id").open(0, 1).read(0, 1)
    with pytest.raises(QueryError, match="its password would be saved as plain text; leave it out") as kept:
        sinks.table(nowhere, "out").to_json()
    with pytest.raises(QueryError, match="its password would be saved"):
        sources.table("postgres://me:secret@host/db", "out", "id bigint", "id").to_json()
    assert not any("secret" in str(error.value) for error in (sunk, read, kept))
    plain = sources.table("postgresql://me@host/db", "out", "id bigint", "id")
    assert sources.from_json(plain.to_json()) == plain


def test_a_connection_that_is_closed_at_once_is_no_answer(url: str) -> None:
    """A server that is going down may take a connection and close it."""
    ask(url, "CREATE TABLE items (id BIGINT)")
    closing = [False, True, True, False]

    def address() -> Any:
        connection = psycopg.connect(url)
        if closing.pop(0):
            ask(url, f"SELECT pg_terminate_backend({connection.info.backend_pid}, 10000)")
        return connection

    reader = sources.table(address, "items", "id bigint", "id").open(0, 1)
    assert reader.read(0, 10) is None and reader.wake_us == 100_000
    reader.close()
    ask(url, "INSERT INTO items VALUES (1)")
    for now_us, wake_us in ((100_000, 200_000), (200_000, 400_000)):
        assert reader.read(now_us, 10) is None and reader.wake_us == wake_us
    assert values(reader.read(400_000, 10)) == [(1,)]
    reader.close()


def test_a_reader_has_enough_of_a_server_that_stays_away(server: PostgresServer, url: str) -> None:
    ask(url, "CREATE TABLE items (id BIGINT)")
    reader = sources.table(url, "items", "id bigint", "id", retries=1).open(0, 1)
    assert reader.read(0, 10) is None
    with server.away():
        assert reader.read(0, 10) is None
        with pytest.raises(SourceError, match="2 attempts to reach it again have failed: .*start it, or give the source more retries"):
            reader.read(100_000, 10)


def test_a_table_that_is_not_the_right_one_is_an_error(url: str) -> None:
    ask(url, "CREATE TABLE out (k BIGINT, n BIGINT)")
    ask(url, 'CREATE TABLE numbers (k BIGINT, "what is" BIGINT)')
    ask(url, 'CREATE TABLE keyless (k BIGINT, "what is" TEXT)')
    cases = [
        (sinks.table(url, "out"), r"it has no column 'what is'; it has k, n, and the results have k, what is\. Write into another table"),
        (sinks.table(url, "numbers"), r"InvalidTextRepresentation: .*bigint: \"a\".* give the column a type that holds it"),
        (sinks.table(url, "keyless", "k"), r"InvalidColumnReference: .*ON CONFLICT.*; .*with a key, one that is unique there"),
    ]
    for sink, message in cases:
        writer = sink.open("run")
        with pytest.raises(SinkError, match=message):
            writer.write(1, batch((1, "a")))
        writer.close()
    assert stored(url, "numbers") == [] and stored(url, "evenflow_epochs") == []
    for table, columns, message in [
        ("goods", "k bigint", 'UndefinedTable: .*"goods" does not exist'),
        ("numbers", "k bigint, v string", 'UndefinedColumn: .*"v" does not exist.* these columns'),
    ]:
        with pytest.raises(SourceError, match=message):
            sources.table(url, table, columns, "k").open(0, 1).read(0, 10)
    ask(url, "INSERT INTO keyless VALUES (1, 'tea')")
    with pytest.raises(SourceError, match="rows up to k = 1 are not"):
        sources.table(url, "keyless", "k bigint, `what is` bigint", "k").open(0, 1).read(0, 10)


def test_a_row_that_breaks_a_constraint_is_an_error(url: str) -> None:
    ask(url, 'CREATE TABLE out (k BIGINT, "what is" TEXT NOT NULL)')
    writer = sinks.table(url, "out").open("run")
    with pytest.raises(SinkError, match="NotNullViolation: .*a row breaks a constraint of the table"):
        writer.write(1, pa.record_batch([[1], pa.array([None], pa.string())], names=["k", "what is"]))
    writer.close()


def test_a_script_names_a_database_by_its_url(url: str) -> None:
    made = ef.sql(
        f"""CREATE TEMPORARY VIEW items (id bigint, name string) USING table OPTIONS (database '{url}', table 'items', order_by 'id');
            CREATE TABLE per_name USING table OPTIONS (database '{url}', table 'per_name', key 'name');
            INSERT INTO per_name SELECT name, count(*) AS n FROM items GROUP BY name"""
    )
    databases = [box.params[box.kind].database for box in made.flow.network if box.kind in ("source", "sink")]
    assert databases == [url, url]
