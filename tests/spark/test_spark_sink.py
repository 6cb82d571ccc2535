"""Results through a Spark streaming query, which commits a batch when it plans the next one: many more epochs than the window, to the end,
each row once (protocol O2)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef

EPOCH_ROWS = 50
ROWS = 300 * EPOCH_ROWS
WINDOW = 64
pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def begun(spark: Any, named: Callable[[str], str]) -> Iterator[Callable[..., Any]]:
    """Start a dataflow whose results are the numbers below `rows`, EPOCH_ROWS in an epoch, default options otherwise; and end it."""
    engines: list[Any] = []

    def begin(replicas: int = 1, rows: int = ROWS) -> ef.Run:
        engines.append(ef.Engine(spark, sites=2, replicas=replicas, epoch_rows=EPOCH_ROWS))
        flow = ef.Dataflow(named("read"))
        numbers = [pa.record_batch({"v": pa.array(range(start, start + EPOCH_ROWS), pa.int64())}) for start in range(0, rows, EPOCH_ROWS)]
        flow.source(ef.sources.memory([numbers])).select("v").to(ef.sinks.spark())
        return engines[-1].__enter__().start(flow)  # type: ignore[no-any-return]

    yield begin
    for engine in engines:
        engine.stop()


def ended(run: ef.Run, query: Any) -> None:
    """The run ends when Spark has committed its last epoch, and Spark's query has nothing more to do."""
    while not run.await_termination(0.5):
        assert query.exception() is None and query.isActive, query.exception()


def values(frame: Any) -> list[int]:
    return sorted(row.v for row in frame.select("v").collect())


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.conformance
def test_a_whole_window_in_a_batch_does_not_stop_the_next(spark: Any, begun: Any, tmp_path: Path, replicas: int) -> None:
    """The query begins when the window is full, so its first batch takes all of it."""
    run = begun(replicas)
    waiting = threading.Event()
    while run.progress()["rows_out"] < WINDOW * EPOCH_ROWS:
        waiting.wait(0.05)
    out = run.read_stream(spark).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = out.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        ended(run, query)
        assert values(spark.read.parquet(str(tmp_path / "out"))) == list(range(ROWS))
        assert run.progress()["epoch"] > 4 * WINDOW
        assert run.progress()["rows_out"] == ROWS
    finally:
        query.stop()


@pytest.mark.conformance
def test_a_slow_sink_holds_the_source_back(spark: Any, begun: Any, tmp_path: Path) -> None:
    """At most two windows of epochs are ever ahead of what has been written: what a batch has, and what comes meanwhile."""
    run, waiting = begun(), threading.Event()
    seen: list[int] = []
    ahead: list[int] = []

    def write(frame: Any, number: int) -> None:
        waiting.wait(1.0)
        seen.extend(row.v for row in frame.collect())
        ahead.append(run.progress()["rows_in"] - len(seen))

    query = run.read_stream(spark).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path)).start()
    try:
        ended(run, query)
        assert sorted(seen) == list(range(ROWS))
        assert max(ahead) <= (2 * WINDOW + 2) * EPOCH_ROWS
    finally:
        query.stop()


@pytest.mark.conformance
def test_a_batch_that_fails_is_read_again(spark: Any, begun: Any, tmp_path: Path) -> None:
    """A query dies in the middle of several batches and is started again from its checkpoint: each batch has the same rows as before."""
    run = begun(2)
    tried: dict[int, list[int]] = {}
    stored: dict[int, list[int]] = {}
    failures: list[int] = []

    def write(frame: Any, number: int) -> None:
        rows = sorted(row.v for row in frame.collect())
        assert tried.setdefault(number, rows) == rows, f"batch {number} has other rows than before"
        if number % 2 and number not in stored and len(failures) < 3 and number not in failures:
            failures.append(number)
            raise RuntimeError("not today")
        stored[number] = rows

    for _ in range(10):
        query = run.read_stream(spark).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path)).start()
        try:
            while query.isActive and not run.await_termination(0.2):
                pass
        finally:
            query.stop()
        if not run.is_active:
            break
    assert failures
    assert run.await_termination(60)
    assert sorted(value for rows in stored.values() for value in rows) == list(range(ROWS))


@pytest.mark.conformance
def test_a_table_in_memory_has_every_row(spark: Any, begun: Any, named: Callable[[str], str]) -> None:
    run, name = begun(), named("table").replace("-", "_")
    query = run.read_stream(spark).writeStream.format("memory").queryName(name).start()
    try:
        ended(run, query)
        assert values(spark.table(name)) == list(range(ROWS))
    finally:
        query.stop()


@pytest.mark.conformance
def test_a_site_that_is_lost_has_a_successor_that_counts(spark: Any, begun: Any, tmp_path: Path) -> None:
    """What its replica had, and Spark has not committed, is at the other one. The copy counts as soon as Spark has stored what it lacks."""
    rows = 10 * ROWS
    run, waiting = begun(2, rows), threading.Event()
    seen: list[int] = []

    def write(frame: Any, number: int) -> None:
        if number == 1:
            os.kill(run.progress()["sites"][0]["pid"], signal.SIGKILL)
        if number and not any(event["kind"] == "redundancy" for event in run.events()):
            waiting.wait(0.5)
        seen.extend(row.v for row in frame.collect())

    query = run.read_stream(spark).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path)).start()
    try:
        ended(run, query)
        assert sorted(seen) == list(range(rows))
        assert "redundancy" in {event["kind"] for event in run.events()}
    finally:
        query.stop()
