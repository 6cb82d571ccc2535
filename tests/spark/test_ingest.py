"""Rows from Spark, and results back to Spark: each exactly once, though tasks are tried again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import SchemaChanged, SourceError
from evenflow.site.events import BatchDone, RowsArrived, SourceEnded
from evenflow.world.spark import staging
from evenflow.world.spark.pushing import conform
from evenflow.world.spark.staging import Attempt, PushedFeed

SCHEMA = pa.schema([("v", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def attempt(number: int, *batches: pa.RecordBatch, partition: int = 0, of: int = 0) -> Attempt:
    made = Attempt((of, partition), number)
    for rows in batches:
        made.add(rows.serialize().to_pybytes())
    return made


def drained(feed: PushedFeed, room: int = 1000) -> list[Any]:
    events: list[Any] = []
    while got := feed.poll(0, room):
        events.extend(got)
    return [e.batch.column(0).to_pylist() if isinstance(e, RowsArrived) else type(e) for e in events]


# ---------------------------------------------------------------- staging


def test_the_first_finished_attempt_wins() -> None:
    feed, answers = PushedFeed(0, 0, SCHEMA), []
    feed.finish(attempt(1, batch(3, 1, 2)), lambda: answers.append(1))
    feed.finish(attempt(0, batch(1, 2, 3)), lambda: answers.append(0))
    feed.end_batch(0)
    feed.finish(attempt(2, batch(2, 1, 3)), lambda: answers.append(2))
    feed.end()
    assert drained(feed) == [[3, 1, 2], BatchDone, SourceEnded]
    assert answers == [1, 0, 2]
    assert feed.dropped == 2 and feed.over


def test_rows_are_cut_to_the_room_there_is() -> None:
    feed = PushedFeed(0, 0, SCHEMA)
    feed.finish(attempt(0, batch(1, 2, 3), batch(), batch(4, 5)), lambda: None)
    assert [e.batch.num_rows for e in feed.poll(0, 2)] == [2]
    assert drained(feed, room=2) == [[3], [4], [5]]


def test_a_task_is_answered_when_the_ingress_has_little_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "WAITING_BYTES_MAX", 100)
    feed, answers = PushedFeed(0, 0, SCHEMA), []
    feed.finish(attempt(0, batch(*range(100))), lambda: answers.append(0))
    assert answers == []
    drained(feed)
    assert answers == [0]


def test_a_large_attempt_goes_to_a_file_and_comes_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGED_BYTES_MAX", 300)
    feed = PushedFeed(0, 0, SCHEMA)
    big = attempt(0, *(batch(i) for i in range(50)))
    assert big.file is not None
    feed.finish(big, lambda: None)
    assert drained(feed) == [[i] for i in range(50)]
    assert big.file is None


def test_who_waits_is_let_go_when_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "WAITING_BYTES_MAX", 0)
    feed, answers = PushedFeed(0, 0, SCHEMA), []
    feed.finish(attempt(0, batch(1)), lambda: answers.append(0))
    feed.close()
    feed.finish(attempt(0, batch(1), partition=1), lambda: answers.append(1))
    assert answers == [0, 1]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.record_batch({"w": pa.array([1])}), "columns are now"),
        (pa.record_batch({"v": pa.array(["x"])}), "'v' is now string"),
        (pa.record_batch({"v": pa.array([1], pa.int32())}), "'v' is now int32"),
    ],
)
def test_a_changed_schema_is_refused(rows: pa.RecordBatch, said: str) -> None:
    with pytest.raises(SchemaChanged, match=said):
        conform(rows, SCHEMA, "src")


def test_the_name_of_a_zone_is_no_change() -> None:
    declared = pa.schema([("t", pa.timestamp("us", "UTC"))])
    rows = pa.record_batch({"t": pa.array([1], pa.timestamp("us", "Europe/Berlin"))})
    assert conform(rows, declared, "src").schema == declared


# ---------------------------------------------------------------- on Spark


def summed(flow: ef.Dataflow, stream: ef.Stream, sink: Any) -> ef.Dataflow:
    stream.group_by("k").agg(n="count(*)", s="sum(v)").to(sink)
    return flow


def last_of_each(table: pa.Table) -> dict[int, tuple[int, int]]:
    return {row["k"]: (row["n"], row["s"]) for row in table.to_pylist()}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_batch_dataframe_goes_through(spark: Any, engine: ef.Engine) -> None:
    frame = spark.range(20_000).selectExpr("id % 10 as k", "id as v")
    sink = ef.sinks.memory("ingest-batch")
    flow = ef.Dataflow("ingest-batch")
    run = engine.start(summed(flow, flow.from_spark(frame), sink))
    assert run.await_termination(90)
    assert last_of_each(sink.rows()) == {k: (2000, sum(range(k, 20_000, 10))) for k in range(10)}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_retried_task_that_sees_its_rows_in_another_order(spark: Any, engine: ef.Engine) -> None:
    """Attempt 0 fails when all its rows have been pushed; attempt 1 has them in the opposite order."""

    def shuffled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows = pa.Table.from_batches(list(batches)).combine_chunks()
        if context.attemptNumber() > 0:
            rows = rows.take(list(range(rows.num_rows - 1, -1, -1)))
        yield from rows.to_batches(max_chunksize=500)
        if context.attemptNumber() == 0 and context.partitionId() % 2 == 0:
            raise RuntimeError("the first attempt fails after its last row")

    frame = spark.range(0, 20_000, 1, 4).selectExpr("id % 10 as k", "id as v").mapInArrow(shuffled, "k bigint, v bigint")
    sink = ef.sinks.memory("ingest-retried")
    flow = ef.Dataflow("ingest-retried")
    run = engine.start(summed(flow, flow.from_spark(frame), sink))
    assert run.await_termination(90)
    assert run.progress()["rows_in"] == 20_000
    assert last_of_each(sink.rows()) == {k: (2000, sum(range(k, 20_000, 10))) for k in range(10)}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_job_that_fails_for_good_ends_the_run(spark: Any, engine: ef.Engine) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("no such luck")

    frame = spark.range(0, 100, 1, 1).mapInArrow(fails, "id bigint")
    flow = ef.Dataflow("ingest-fails")
    flow.from_spark(frame).to(ef.sinks.memory("ingest-fails"))
    with pytest.raises(SourceError, match="no such luck"):
        engine.start(flow).await_termination(90)


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_stream_goes_in_and_out_of_spark(spark: Any, engine: ef.Engine, tmp_path: Path) -> None:
    """A streaming DataFrame through the sites into a Parquet sink of Spark: every row once, offsets are (run, epoch)."""
    landing, out, checkpoints = (tmp_path / name for name in ("landing", "out", "checkpoints"))
    spark.range(0, 1000).selectExpr("id % 10 as k", "id as v").repartition(3).write.parquet(str(landing))
    frame = spark.readStream.schema("k bigint, v bigint").parquet(str(landing))
    flow = ef.Dataflow("through")
    flow.from_spark(frame).select("k", "v * 2 as w").to(ef.sinks.spark())
    run = engine.start(flow)
    query = (
        run.read_stream(spark).writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoints)).start()
    )
    try:
        wait = threading.Event()
        for _ in range(300):
            assert query.exception() is None
            if out.exists() and spark.read.schema("k bigint, w bigint").parquet(str(out)).count() >= 1000:
                break
            wait.wait(0.2)
        rows = spark.read.parquet(str(out)).collect()
        assert sorted(row.w for row in rows) == [2 * v for v in range(1000)]
        offset = json.loads(sorted((checkpoints / "offsets").glob("[0-9]*"))[-1].read_text().splitlines()[-1])
        assert offset["run"] == run.id and offset["epoch"] > 0
    finally:
        query.stop()
        run.stop()
