"""An ingress leader dies while Spark's tasks push rows into it: every row has its effect once, and Spark need not know.

On Spark only. Half of the rows get through; the tasks with the others are in the middle of their rows when the leader dies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.killing import Manner
from tests.worlds.worlds import OnSpark

ROWS = 200_000
GROUPS = 50

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def gated(gate: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Lets rows of the lower half through; others wait half-way through their task until the file is there."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 1000):
                rows = batch.slice(start, 1000)
                seen += rows.num_rows
                while seen > 10_000 and rows.column(1)[0].as_py() >= ROWS // 2 and not gate.exists():
                    time.sleep(0.01)
                yield rows

    return through


def summed(name: str, frame: Any, sink: Any) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    flow.from_spark(frame).group_by("k").agg(n="count(*)", s="sum(v)").to(sink)
    return flow


def totals(table: pa.Table) -> dict[int, tuple[int, int]]:
    return {row["k"]: (row["n"], row["s"]) for row in table.to_pylist()}


def in_spark(frame: Any) -> dict[int, tuple[int, int]]:
    from pyspark.sql import functions as f

    return {row.k: (row.n, row.s) for row in frame.groupBy("k").agg(f.count("*").alias("n"), f.sum("v").alias("s")).collect()}


def lose_the_leader(world: OnSpark, gate: Path, manner: Manner) -> None:
    run = world.run
    assert run is not None
    world.until(lambda: run.progress()["rows_in"] >= ROWS // 2, "half of the rows are in")
    world.kill(world.cast.leader, manner=manner)
    world.until(lambda: bool(world.happened("take_over")), "another site leads")
    gate.touch()


@pytest.mark.conformance
def test_a_batch_dataframe_survives_its_leader(on_spark: OnSpark, spark: Any, gate: Path) -> None:
    frame = spark.range(0, ROWS, 1, 8).selectExpr(f"id % {GROUPS} as k", "id as v")
    sink = ef.sinks.memory("pushed-batch")
    on_spark.start(summed("pushed-batch", frame.mapInArrow(gated(gate), "k bigint, v bigint"), sink), sink)
    lose_the_leader(on_spark, gate, "worker")
    assert totals(on_spark.finish()) == in_spark(frame)


@pytest.mark.conformance
def test_a_streaming_dataframe_survives_its_leader_and_an_executor(on_spark: OnSpark, spark: Any, gate: Path, tmp_path: Path) -> None:
    landing = str(tmp_path / "landing")
    for start in (0, ROWS // 2):  # The second half of the rows is in younger files, so it comes in later batches.
        rows = spark.range(start, start + ROWS // 2, 1, 4).selectExpr(f"id % {GROUPS} as k", "id as v")
        rows.write.mode("append").parquet(landing)
    stream = spark.readStream.schema("k bigint, v bigint").option("maxFilesPerTrigger", 3).parquet(landing)
    sink = ef.sinks.memory("pushed-stream")
    on_spark.start(summed("pushed-stream", stream.mapInArrow(gated(gate), "k bigint, v bigint"), sink), sink)
    lose_the_leader(on_spark, gate, "executor")
    expected = in_spark(spark.read.parquet(landing))
    on_spark.until(lambda: sum(n for n, _ in totals(on_spark.output()).values()) >= ROWS, "all rows are in")
    assert on_spark.run is not None
    on_spark.run.stop()
    assert totals(on_spark.output()) == expected
