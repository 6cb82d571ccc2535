"""From topic to topic and from table to table over restarts: a real broker and a real PostgreSQL, real kills between any two steps of a
commit, and every row compared. Without Spark; what dies and how is in `tests.restarting_servers`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kafka import broker
from tests.postgres import PostgresServer
from tests.restarting import Start, wait_until
from tests.restarting_servers import KAFKA_STEPS, TABLE_STEPS, Between, between

from evenflow.bench.kafka_broker import KafkaBroker

__all__ = ["broker"]
pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")
pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


def killed(start: Start, setting: Between, generation: int = 1) -> None:
    """A driver that ends itself and its sites where the setting says."""
    driver = start(setting)
    assert driver.line() == f"running {generation}"
    assert driver.line().startswith("nothing more"), "it did not come to that step"


def goes_on(start: Start, setting: Between, generation: int) -> None:
    """The next driver runs to the end, and everything is there once."""
    driver = start(replace(setting, dies_at=None, sites=3))
    assert driver.line() == f"running {generation}"
    assert driver.last() == "ended"
    setting.compare()


def dies_twice(start: Start, setting: Between) -> None:
    killed(start, setting)
    killed(start, setting, 2)
    goes_on(start, setting, 3)


# ---------------------------------------------------------------- dying in a commit


@pytest.mark.conformance
def test_everything_dies_in_a_transaction_of_kafka(start: Start, broker: KafkaBroker, tmp_path: Path) -> None:
    """Goal: every row is in the topic once. Method: kill -9 of driver and sites when messages and offset of a transaction have been sent,
    and it is not committed; its last generation opens a producer of the same name."""
    setting = between(str(tmp_path), broker.address, dies_at="commit_transaction")
    killed(start, setting)
    goes_on(start, setting, 2)


@pytest.mark.conformance
def test_everything_dies_behind_a_commit_of_postgresql(start: Start, server: PostgresServer, tmp_path: Path) -> None:
    """Goal: every row is in the table once. Method: kill -9 of driver and sites when an epoch is committed and nobody has heard of it."""
    setting = between(str(tmp_path), server.url, dies_at="committed", dies_in=8)
    killed(start, setting)
    goes_on(start, setting, 2)


@pytest.mark.conformance
@pytest.mark.parametrize("step", KAFKA_STEPS)
@pytest.mark.parametrize("nth", [1, 2, 9])
def test_everything_dies_at_a_step_of_kafka(start: Start, broker: KafkaBroker, tmp_path: Path, step: str, nth: int) -> None:
    """Goal: every row once, whatever step the loss hits, with checkpoints. Method: two generations die at that step of a commit."""
    setting = between(str(tmp_path), broker.address, dies_at=step, dies_in=nth, checkpoint_s=0.3)
    dies_twice(start, setting)


@pytest.mark.conformance
@pytest.mark.parametrize("step", TABLE_STEPS)
@pytest.mark.parametrize("nth", [1, 3, 9])
def test_everything_dies_at_a_step_of_postgresql(start: Start, server: PostgresServer, tmp_path: Path, step: str, nth: int) -> None:
    setting = between(str(tmp_path), server.url, dies_at=step, dies_in=nth, checkpoint_s=0.3)
    dies_twice(start, setting)


@pytest.mark.conformance
def test_a_producer_that_was_fenced_adds_nothing(start: Start, broker: KafkaBroker, tmp_path: Path) -> None:
    """Goal: a driver that comes back finds its producer shut out, and ends with Fenced. Method: SIGSTOP for longer than its sites live
    without it; the next driver goes on with producers of the same names; SIGCONT."""
    setting = between(str(tmp_path), broker.address, rows=30_000)
    stale = start(setting)
    assert stale.line() == "running 1"
    wait_until(lambda: len(setting.there("told")) > 500, 60, "500 rows are in the topic")
    stale.stop(setting)
    driver = start(setting)
    assert driver.line() == "running 2"
    stale.go_on()
    assert stale.last().startswith("Fenced: another driver has begun generation 2")
    assert driver.last() == "ended"
    setting.compare()


# ---------------------------------------------------------------- who has forgotten what


@pytest.mark.conformance
def test_a_topic_has_forgotten_rows_that_are_needed_again(start: Start, broker: KafkaBroker, tmp_path: Path) -> None:
    """Goal: an error that names partition and position. Method: the broker deletes records that no checkpoint covers (DeleteRecords)."""
    setting = between(str(tmp_path), broker.address, dies_at="committed")
    killed(start, setting)
    setting.forget(30)
    said = start(replace(setting, dies_at=None)).last()
    assert said.startswith("SourceError: ")
    assert "partition" in said and "from offset 0" in said and "the broker has deleted the messages there" in said


@pytest.mark.conformance
@pytest.mark.parametrize("before", [30, 1_200])
def test_a_table_has_forgotten_rows_that_are_needed_again(start: Start, server: PostgresServer, tmp_path: Path, before: int) -> None:
    """Goal: an error, never other results or waiting for ever. Method: some, or all, of the rows that were read are deleted."""
    setting = between(str(tmp_path), server.url, dies_at="committed", dies_in=8, follow=True)
    killed(start, setting)
    setting.forget(before)
    said = start(replace(setting, dies_at=None)).last()
    assert said.startswith("SourceError: ")
    if before == 30:
        assert "partition 0 cannot be replayed: epoch 1, " in said and "the source has 10 rows there, and gave 40 then" in said
    else:
        assert "has lost rows: those with id from 0 to " in said and "had been read and are needed again" in said


@pytest.mark.conformance
def test_rows_that_a_checkpoint_covers_may_be_forgotten(start: Start, server: PostgresServer, tmp_path: Path) -> None:
    """Goal: a table may lose rows that will not be read again: nothing behind them is missed. Method: behind a checkpoint everything dies
    and the rows before it are deleted; more come."""
    setting = between(str(tmp_path), server.url, rows=2_000, dies_at="noted", dies_in=60, checkpoint_s=0.1)
    killed(start, setting)
    setting.forget(100)
    goes_on(start, setting, 2)


@pytest.mark.conformance
def test_a_location_that_was_put_back_is_told_by_what_the_sink_has(start: Start, server: PostgresServer, tmp_path: Path) -> None:
    """Goal: an error instead of rows that the sink takes for those that it has. Method: everything is killed; the location is put back to
    where it was before."""
    setting = between(str(tmp_path), server.url, dies_at="noted", dies_in=3)
    killed(start, setting)
    shutil.copytree(setting.location, tmp_path / "before")
    killed(start, replace(setting, dies_in=30), 2)
    shutil.rmtree(setting.location)
    shutil.copytree(tmp_path / "before", setting.location)
    said = start(replace(setting, dies_at=None)).last()
    assert said.startswith("SinkError: sink 't") and "the location was put back to an earlier time" in said
