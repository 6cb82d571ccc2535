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
from evenflow.exchange.section import WHOLE_BATCH, Record, Section, Share
from evenflow.site import staging
from evenflow.site.entered import Entered
from evenflow.site.events import BatchDone, RowsArrived, SourceEnded
from evenflow.site.ingress_queue import IngressQueue
from evenflow.site.log import PartitionLog
from evenflow.site.staging import Attempt, PushedFeed
from evenflow.world.spark.bridge.pushing import conform
from evenflow.world.spark.net.kept import Kept
from evenflow.world.spark.net.wire import RunSchemas, decode_sections, encode_sections

SCHEMA = pa.schema([("v", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def attempt(number: int, *batches: pa.RecordBatch, partition: int = 0, of: int = 0, most_bytes: int = 10_000) -> Attempt:
    made = Attempt((of, partition), number, Kept(most_bytes))
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


def test_a_large_attempt_goes_to_a_file_and_comes_back_in_order() -> None:
    feed = PushedFeed(0, 0, SCHEMA)
    big = attempt(0, *(batch(i) for i in range(50)), most_bytes=300)
    kept = big.kept
    assert isinstance(kept, Kept) and kept.file is not None
    feed.finish(big, lambda: None)
    assert drained(feed) == [[i] for i in range(50)]
    assert kept.file is None


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


# ---------------------------------------------------------------- with replicas


def shares(*of: tuple[int, int, int, bool]) -> tuple[Share, ...]:
    return tuple(Share(*share) for share in of)


def record(epoch: int, taken: int, rows: pa.RecordBatch | None, *of: tuple[int, int, int, bool], origin: int = 0) -> Record:
    return Record(0, 0, epoch, 0, origin, epoch, epoch, taken, False, False, rows, shares(*of))


def entered(*rows: int, whole: bool = False) -> Entered:
    """What a log knows of task 0 of batch 0 when these rows of it are there."""
    known = Entered()
    if rows:
        known.add(record(1, len(rows), batch(*rows), (0, 0, len(rows), whole)))
    return known


def replicated(known: Entered, rows: int = 0) -> PushedFeed:
    return PushedFeed(0, 0, SCHEMA, "src", rows, known, replicated=True)


def test_with_replicas_a_task_is_answered_when_its_rows_are_settled() -> None:
    feed, answers = replicated(Entered(), rows=100), []
    feed.settle(100)
    feed.finish(attempt(0, batch(1, 2, 3)), lambda: answers.append("first"))
    feed.finish(attempt(1, batch(3, 2, 1)), lambda: answers.append("again"))
    feed.finish(attempt(0, batch(4), partition=1), lambda: answers.append("second"))
    assert drained(feed) == [[1, 2, 3], [4]]
    feed.settle(102)
    assert answers == []
    feed.settle(103)
    assert answers == ["first", "again"]
    feed.settle(104)
    assert answers == ["first", "again", "second"]


def test_with_replicas_nobody_is_told_that_his_rows_were_taken_when_a_site_closes() -> None:
    feed, answers = replicated(Entered()), []
    feed.finish(attempt(0, batch(1)), lambda: answers.append(0))
    feed.close()
    feed.finish(attempt(0, batch(2), partition=1), lambda: answers.append(1))
    assert answers == []


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_successor_takes_what_its_log_has_not(cut: int) -> None:
    feed, answers = replicated(entered(1, 2, 3), rows=3), []
    rows = [1, 2, 3, 4, 5]
    feed.finish(attempt(1, *(batch(*rows[i : i + cut]) for i in range(0, 5, cut))), lambda: answers.append(0))
    events = list(iter(lambda: feed.poll(0, 1), []))
    assert [(e[0].batch.column(0).to_pylist(), e[0].share) for e in events] == [([4], Share(0, 0, 1, False)), ([5], Share(0, 0, 1, True))]
    feed.settle(4)
    assert not answers
    feed.settle(5)
    assert answers == [0]


def test_a_task_that_is_whole_in_the_log_is_dropped_and_answered_when_that_is_settled() -> None:
    feed, answers = replicated(entered(1, 2, 3, whole=True), rows=3), []
    feed.finish(attempt(1, batch(3, 1, 2)), lambda: answers.append(0))
    assert drained(feed) == [] and not answers
    feed.settle(3)
    assert answers == [0]


@pytest.mark.parametrize("again", [(2, 1, 3, 4), (1, 2, 4, 3), (1, 2), ()])
def test_rows_that_come_again_in_another_order_are_refused(again: tuple[int, ...]) -> None:
    feed = replicated(entered(1, 2, 3), rows=3)
    feed.finish(attempt(1, *([batch(*again)] if again else [])), lambda: None)
    with pytest.raises(SourceError, match="'src': .* partition 0 of Spark's batch 0 .* first 3 rows were others, or in another order"):
        feed.poll(0, 100)


def test_the_end_of_a_batch_may_be_said_again_and_precedes_the_next_one() -> None:
    feed = replicated(Entered(batch_done=3))
    feed.end_batch(3)
    feed.finish(attempt(0, batch(1), of=5), lambda: None)  # So batch 4 is whole, though the driver's word is still under way.
    feed.end_batch(4)
    feed.end()
    feed.end()
    assert [e.batch if isinstance(e, BatchDone) else type(e) for e in feed.poll(0, 10)] == [4, RowsArrived, SourceEnded]


def test_a_log_knows_its_tasks_however_they_were_cut_and_shipped() -> None:
    """A follower's log, of which a part is emitted and a part is contradicted by a new leader, and a copy of it."""
    log = PartitionLog.begun(0, 0, 0)
    log.accept(record(1, 3, batch(1, 2, 3), (0, 0, 2, False), (0, 1, 1, True)))
    log.accept(record(2, 5, batch(4, 5), (0, 0, 2, False)))
    log.settle(1)
    assert log.taken_settled == 3
    log.emitted(1, 1)
    assert log.taken_settled == 3
    log.new_term()
    log.accept(record(2, 4, batch(4), (0, 0, 1, True), origin=7))
    whole = {(0, 0): entered(1, 2, 4, whole=True).tasks[0, 0], (0, 1): entered(3, whole=True).tasks[0, 0]}
    assert log.entered().tasks == whole
    copy = PartitionLog.begun(0, 0, 1)
    copy.begin(*json.loads(json.dumps(log.facts_done())))
    copy.accept(record(2, 4, batch(4), (0, 0, 1, True), origin=7))
    assert copy.entered() == log.entered()
    copy.accept(record(3, 4, None, (0, WHOLE_BATCH, 0, True)))
    assert copy.entered() == Entered(batch_done=0)


def test_a_queue_says_whose_rows_an_epoch_has() -> None:
    queue = IngressQueue(0, 8)
    queue.put(batch(1, 2, 3), 0, Share(0, 0, 3, False))
    queue.put(batch(4, 5), 0, Share(0, 1, 2, True))
    queue.end_batch(0)
    queue.put(batch(6), 0, Share(1, 0, 1, True))
    taken = [queue.take(2, 0) for _ in range(4)]
    assert [rows.column(0).to_pylist() for rows, _, _ in taken if rows is not None] == [[1, 2], [3, 4], [5], [6]]
    assert [whose for _, whose, _ in taken] == [
        shares((0, 0, 2, False)),
        shares((0, 0, 1, False), (0, 1, 1, False)),
        shares((0, 1, 1, True), (0, WHOLE_BATCH, 0, True)),
        shares((1, 0, 1, True)),
    ]


def test_shares_survive_the_wire() -> None:
    sent = Section(records=[record(1, 2, None), record(2, 5, batch(1, 2, 3), (0, 3, 2, False), (0, 4, 1, True))])
    [(_, got)] = decode_sections(b"".join(bytes(piece) for piece in encode_sections([(7, sent)])), {7: RunSchemas([], [SCHEMA])})
    assert got.records == sent.records


def test_what_a_task_keeps_comes_out_in_order_again_and_again() -> None:
    kept = Kept(10)
    pieces = [bytes([i]) * i for i in range(1, 8)]
    for piece in pieces:
        kept.add(piece)
    assert list(kept) == pieces and list(kept) == pieces
    kept.close()


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


@pytest.mark.conformance
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


@pytest.mark.conformance
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
