"""A dataflow between two topics of Kafka, or two tables of PostgreSQL, with a checkpoint location, as a process that tests kill.

`python -m tests.restarting_servers SETTING`, as `tests.restarting`. Where the setting says so, it kills itself and all its sites in the
middle of a sink's commit: between any two of the steps that are seen from outside.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

import evenflow as ef
from evenflow.sinks.kafka import KafkaWriter
from evenflow.sinks.table import EPOCHS
from tests.restarting import Setting, main, wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64())])
PARTITIONS = 3
KAFKA_STEPS = ("begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction", "committed")
TABLE_STEPS = ("noted", "rows", "commit", "committed")


@dataclass(frozen=True)
class Between(Setting):
    """server: addresses of brokers, or the URL of a PostgreSQL database. tag: of its topics or tables. dies_at: before which step of a
    commit it dies; committed: behind the last one. None: at none. dies_in: at how many of these steps. follow: its source does not end."""

    MODULE: ClassVar[str] = "tests.restarting_servers"
    rows: int = 1_200
    epoch_rows: int = 40
    server: str = ""
    tag: str = ""
    dies_at: str | None = None
    dies_in: int = 4
    follow: bool = False

    @property
    def on_kafka(self) -> bool:
        return not self.server.startswith("postgres")

    def name(self, what: str) -> str:
        return f"{what}_{self.tag}"

    def _source(self) -> Any:
        asked = self.name("asked")
        if self.on_kafka:
            ending = None if self.follow else "latest"
            return ef.sources.kafka(self.server, asked, SCHEMA, starting="earliest", ending=ending)
        return ef.sources.table(self.server, asked, SCHEMA, "id", follow=self.follow, poll_ms=20)

    def _sink(self, what: str) -> Any:
        made = ef.sinks.kafka if self.on_kafka else ef.sinks.table
        return made(self.server, self.name(what))

    def dataflow(self) -> ef.Dataflow:
        flow = ef.Dataflow("between")
        rows = flow.source(self._source(), name="asked").where("id >= 0").name("kept")
        rows.select("id", "k").to(self._sink("told"), name="told")
        rows.group_by("k").agg(n="count(*)", total="sum(id)").to(self._sink("totals"), name="totals")
        return flow

    # ------------------------------------------------------------ the two servers

    def prepare(self) -> None:
        """Make topics or tables, and put all rows into the first."""
        if self.on_kafka:
            self._admin(lambda admin, kafka: admin.create_topics([
                kafka.NewTopic(self.name(what), PARTITIONS if what == "asked" else 1) for what in ("asked", "told", "totals")
            ]))  # fmt: skip
        else:
            self.ask(f"CREATE TABLE {self.name('asked')} (id BIGINT PRIMARY KEY, k BIGINT)")
        self.add(0, self.rows)

    def add(self, first: int, last: int) -> None:
        if not self.on_kafka:
            self.ask(f"INSERT INTO {self.name('asked')} SELECT i, i % 7 FROM generate_series({first}, {last - 1}) AS i")
            return
        import confluent_kafka

        producer = confluent_kafka.Producer({"bootstrap.servers": self.server, "linger.ms": 5})
        for number in range(first, last):
            producer.produce(self.name("asked"), json.dumps({"id": number, "k": number % 7}), partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def forget(self, before: int) -> None:
        """The source forgets the rows with smaller numbers; of a topic, so many of each partition."""
        if not self.on_kafka:
            self.ask(f"DELETE FROM {self.name('asked')} WHERE id < {before}")
            return
        import confluent_kafka

        places = [confluent_kafka.TopicPartition(self.name("asked"), number, before) for number in range(PARTITIONS)]
        self._admin(lambda admin, kafka: admin.delete_records(places))

    def _admin(self, do: Callable[[Any, Any], Any]) -> None:
        from confluent_kafka import admin

        client = admin.AdminClient({"bootstrap.servers": self.server})
        for done in do(client, admin).values():
            done.result(60)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.server) as connection:
            cursor = connection.execute(statement)
            return [] if cursor.description is None else cursor.fetchall()

    def there(self, what: str) -> list[tuple[int, ...]]:
        """Rows of a result, in their order where it has one. Of a topic, committed ones only."""
        if not self.on_kafka:
            found = self.ask(f"SELECT to_regclass('{self.name(what)}')")
            return [] if found == [(None,)] else self.ask(f"SELECT * FROM {self.name(what)}")
        reader = ef.sources.kafka(self.server, self.name(what), format="raw", starting="earliest", ending="latest").open(0, 1)
        rows = []
        while not reader.ended:
            batch = reader.read(0, 10_000)
            rows += [tuple(json.loads(value).values()) for value in batch.column("value").to_pylist()] if batch is not None else []
        reader.close()
        return rows

    def compare(self) -> None:
        """Every row is there once, and every total grows with each of its rows."""
        wait_until(lambda: len(self.there("told")) >= self.rows, 30, "all rows are there")  # What is committed may be seen a little later.
        expected = Counter((number, number % 7) for number in range(self.rows))
        told = Counter(self.there("told"))
        assert told == expected, f"lost {(expected - told).total()}, repeated or wrong {(told - expected).total()} of {self.rows}"
        counts: dict[int, dict[int, int]] = {}
        totals = self.there("totals")
        for k, n, total in totals:
            counts.setdefault(k, {})[n] = total
        assert sum(map(len, counts.values())) == len(totals), "an epoch is there twice"
        newest = {k: max(seen.items()) for k, seen in counts.items()}
        assert newest == {k: (len(own := range(k, self.rows, 7)), sum(own)) for k in range(7)}


def between(home: str, server: str, **more: Any) -> Between:
    """With topics or tables of its own, which have the rows."""
    made = Between(home, server=server, tag=uuid.uuid4().hex[:8], **more)
    made.prepare()
    return made


# ---------------------------------------------------------------- dying in the middle of a commit


class Dying:
    """A producer, or a connection of a database, at whose n-th step all processes of this driver die."""

    def __init__(self, inner: Any, step: Callable[[str], None]) -> None:
        self._inner, self._step = inner, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in KAFKA_STEPS:
            return lambda *given, **more: (self._step(name), found(*given, **more))[1]
        return found

    def commit_transaction(self, timeout: float) -> None:
        self._step("commit_transaction")
        self._inner.commit_transaction(timeout)
        self._step("committed")

    def commit(self) -> None:
        self._step("commit")
        self._inner.commit()
        self._step("committed")

    def cursor(self) -> Any:
        return DyingCursor(self._inner.cursor(), self._step)


class DyingCursor(Dying):
    def execute(self, statement: str, parameters: Any) -> Any:
        found = self._inner.execute(statement, parameters)
        if statement.startswith("INSERT") and EPOCHS in statement:
            self._step("noted")
        return found

    def executemany(self, statement: str, parameters: Any) -> Any:
        self._step("rows")
        return self._inner.executemany(statement, parameters)


def dies(setting: Between) -> None:
    """From now on sinks of this process end it, and the sites with it, at the step that the setting names."""
    left = [setting.dies_in]

    def step(name: str) -> None:
        if name == setting.dies_at:
            left[0] -= 1
            if not left[0]:
                os.killpg(os.getpgrp(), signal.SIGKILL)

    opened, table = KafkaWriter._open, sys.modules["evenflow.sinks.table"]  # `table` is a function of the package, too.
    connect = table.connect

    def open_dying(writer: KafkaWriter) -> None:
        opened(writer)
        writer._producer = Dying(writer._producer, step)

    def connect_dying(address: Any) -> tuple[Any, Any]:
        connection, dialect = connect(address)
        return Dying(connection, step), dialect

    KafkaWriter._open, table.connect = open_dying, connect_dying  # type: ignore[method-assign,attr-defined]


if __name__ == "__main__":
    asked = Between(**json.loads(sys.argv[1]))
    if asked.dies_at is not None:
        dies(asked)
    main(asked)
