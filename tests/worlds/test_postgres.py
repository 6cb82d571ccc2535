"""From one table of PostgreSQL into another on executors, of which one is killed, while the server starts again: every row counts once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import evenflow as ef
from tests.postgres import PostgresServer
from tests.worlds.worlds import OnSpark

psycopg = pytest.importorskip("psycopg")
pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(300)]

ROWS, KEYS = 40_000, 20


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


def add(url: str, first: int, last: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY, k TEXT)")
        connection.execute(f"INSERT INTO items SELECT i, 'k' || i % {KEYS} FROM generate_series({first}, {last - 1}) AS i")


def test_an_executor_and_the_server_fail_between_two_tables(server: PostgresServer, on_spark: OnSpark) -> None:
    """Goal: exactly once from table to table. Method: with half of the rows in, kill the executor that reads and crash the server.

    Rows without a key stay, so that an epoch that was written twice shows."""
    add(server.url, 0, ROWS // 2)
    flow = ef.Dataflow("tables")
    rows = flow.source(ef.sources.table(server.url, "items", "id bigint, k string", "id", poll_ms=20))
    sink = ef.sinks.table(server.url, "totals", retries=20)
    on_spark.start(rows.group_by("k").agg(n="count(*)", s="sum(id)").to(sink).flow, sink)
    run: Any = on_spark.run
    on_spark.until(lambda: run.progress()["rows_in"] >= ROWS // 2, "half of the rows are in")
    on_spark.kill(on_spark.cast.leader)
    on_spark.until(lambda: bool(on_spark.happened("take_over")), "another site leads")
    with server.away():
        pass
    add(server.url, ROWS // 2, ROWS)

    def stored() -> list[tuple[Any, ...]]:
        with psycopg.connect(server.url) as connection:
            found: list[tuple[Any, ...]] = connection.execute("SELECT k, n, s FROM totals ORDER BY n").fetchall()
            return found

    on_spark.until(lambda: sum({k: n for k, n, _ in stored()}.values()) >= ROWS, "all rows are counted")
    run.stop()
    result = stored()
    newest = {k: (n, s) for k, n, s in result}
    assert newest == {f"k{k}": (ROWS // KEYS, sum(range(k, ROWS, KEYS))) for k in range(KEYS)}
    assert len({(k, n) for k, n, _ in result}) == len(result), "an epoch is in the table twice"
