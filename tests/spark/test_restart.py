"""Executors, JVM and driver are killed or hang, and the next driver at the location goes on: see `tests.restarting`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.killing import kill
from tests.restarting import Setting, Start, compare, hangs_and_comes_back, wait_until, written
from tests.restarting_refreshed import Refreshed
from tests.restarting_replaced import Replaced

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_whole_cluster_is_killed_and_a_larger_one_goes_on(start: Start, tmp_path: Path) -> None:
    """Goal: the table and the files have every row once. Method: kill -9 of the driver, its JVM and all executors when some rows are in the
    table; the next driver has one executor more."""
    setting = Setting(str(tmp_path), spark=True, rows=24_000)
    driver = start(setting)
    assert driver.line() == "running 1"
    wait_until(lambda: len(written(setting)) > 2_000, 120, "2,000 rows are in the table")
    driver.kill()
    assert len(written(setting)) < setting.rows, "it was over before it was killed"
    driver = start(replace(setting, sites=3))
    assert driver.line() == "running 2"
    assert driver.last() == "ended"
    compare(setting)


@pytest.mark.conformance
def test_everything_is_killed_behind_a_table_that_was_read_again(start: Start, tmp_path: Path) -> None:
    """Goal: what is made again meets what it met before, which Spark reads no more. Method: kill -9 of the driver, its JVM and all
    executors as soon as the table was refreshed; meanwhile it gets other rows."""
    setting = Refreshed(str(tmp_path), spark=True, endless=True, refresh_to=2)
    setting.has(1)
    driver = start(setting)
    assert driver.line() == "running 1"
    wait_until(lambda: len(written(setting)) > 1_000, 120, "1,000 rows are in the table")
    setting.has(2)
    assert driver.line() == "refreshed 1"
    driver.kill()
    setting.has(3)
    driver = start(replace(setting, refresh_to=3, sites=3))
    assert (driver.line(), driver.line()) == ("running 2", "refreshed 2")
    wait_until(lambda: 3 in setting.met(), 120, "rows that met what it has now")
    assert driver.drain() == "ended"
    assert set(replace(setting, spark=False).compare()) == {1, 2, 3}


@pytest.mark.conformance
def test_everything_is_killed_when_a_replacement_was_promised(start: Start, tmp_path: Path) -> None:
    """Goal: what `run.replace` has said is so, and each row is made once, by one version. Method: kill -9 of the driver, its JVM and all
    executors as soon as it returns; the next driver has the new dataflow, and one executor more."""
    setting = Replaced(str(tmp_path), spark=True, endless=True, replace_at=1_000)
    driver = start(setting)
    assert (driver.line(), driver.line()) == ("running 1", "replaced 1")
    driver.kill()
    setting = replace(setting, replace_at=0, starts=1, sites=3)
    driver = start(setting)
    assert driver.line() == "running 2"
    wait_until(lambda: setting.count(1) > 500, 120, "rows of the new version are in the table")
    assert driver.drain() == "ended"
    compare(setting)
    assert setting.count(0) > 1_000


@pytest.mark.conformance
def test_a_driver_that_hangs_is_replaced_and_adds_nothing_when_it_comes_back(start: Start, tmp_path: Path) -> None:
    """Goal: the stale driver ends with Fenced, and nothing of it is there twice. Method: SIGSTOP past the lease, the next driver runs
    to the end, SIGCONT."""
    setting = Setting(str(tmp_path), spark=True, replicas=2)
    hangs_and_comes_back(start, setting, rows=2_000)


EPOCH_ROWS, EPOCHS = 50, 300


@pytest.mark.conformance
def test_a_streaming_query_goes_on_with_the_checkpoint_that_it_had(spark: Any, tmp_path: Path) -> None:
    """Goal: Spark's table has every number once. Method: end the run and the query in the middle, without draining, and start both again:
    the run at its location, the query with its checkpoint."""
    flow = ef.Dataflow("into spark")
    starts = range(0, EPOCHS * EPOCH_ROWS, EPOCH_ROWS)
    numbers = [pa.record_batch({"v": pa.array(range(at, at + EPOCH_ROWS), pa.int64())}) for at in starts]
    flow.source(ef.sources.memory([numbers])).select("v").to(ef.sinks.spark())
    out = str(tmp_path / "out")
    runs = []
    for last in (False, True):
        with ef.Engine(spark, sites=2, epoch_rows=EPOCH_ROWS, lease_s=2.0) as engine:
            runs.append(engine.start(flow, checkpoint_location=str(tmp_path / "location")))
            stream = runs[-1].read_stream(spark).writeStream.format("parquet").option("path", out)
            query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            try:
                if last:
                    assert runs[-1].await_termination(120)
                    query.processAllAvailable()
                else:
                    wait_until(lambda of=query: sum(each["numInputRows"] > 0 for each in of.recentProgress) > 1, 60, "two batches")  # type: ignore[misc]
                    assert runs[-1].is_active, "it was over before it was ended"
            finally:
                query.stop()
    assert runs[0].id == runs[1].id
    assert sorted(row.v for row in spark.read.parquet(out).collect()) == list(range(EPOCHS * EPOCH_ROWS))


@pytest.mark.conformance
def test_a_run_that_has_lost_all_its_sites_goes_on_in_the_same_driver(spark: Any, tmp_path: Path) -> None:
    """Goal: a callback in the driver is given every epoch once. Method: kill -9 of all site processes; Spark's executors live, and get
    new ones."""
    epochs: list[int] = []
    flow = ef.Dataflow("sites lost")
    made = flow.source(ef.sources.generator(rate=1_000, keys=16), name="made").select("key", "value")
    made.to(ef.sinks.callback(lambda epoch, rows: epochs.append(epoch)))
    with ef.Engine(spark, sites=2) as engine:
        run = engine.start(flow, checkpoint_location=str(tmp_path / "location"))
        wait_until(lambda: len(epochs) > 5, 60, "some epochs")
        kill([site["pid"] for site in run.progress()["sites"]])
        wait_until(lambda: any(event["kind"] == "recovered_in_place" for event in run.events()), 90, "the run goes on")
        there = len(epochs)
        wait_until(lambda: len(epochs) > there + 5, 60, "new epochs")
        run.stop(drain=True)
        assert run.exception() is None
    assert epochs == sorted(set(epochs))
