"""A batch DataFrame of Spark, and then what is live, on real executors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
ROWS = 6_000


@pytest.mark.conformance
@pytest.mark.parametrize("then", ["inside", "streamed"])
def test_a_batch_without_order_and_then_what_comes_after_it(spark: Any, engine: ef.Engine, tmp_path: Path, then: str) -> None:
    """Goal: no row of the batch is late, though it has no order and the rest is an hour later. Method: a source inside the sites behind a
    batch, or a stream of Spark; windows are counted."""
    scattered = "timestamp_seconds(1767268800 + pmod(id * 7919, 600)) as ts"
    backfill = spark.range(0, ROWS, 1, 6).selectExpr("id % 3 as k", scattered)
    later = backfill.selectExpr("k", "ts + interval 1 hour as ts")
    flow = ef.Dataflow("backfill")
    if then == "inside":
        live = pa.Table.from_pylist([row.asDict() for row in later.collect()], ef.sources.spark(later).schema)
        second = flow.source(ef.sources.memory(live, ended=False))
    else:
        later.coalesce(1).write.parquet(str(tmp_path / "later"))
        second = flow.from_spark(spark.readStream.schema(later.schema).parquet(str(tmp_path / "later")))
    made = flow.from_spark(backfill).then(second).with_watermark("ts", "0 seconds")
    sink = ef.sinks.memory(f"then-{then}")
    made.group_by("k").window("5 minutes").agg(n="count(*)").to(sink)
    run = engine.start(flow)
    try:
        wait = threading.Event()
        for _ in range(600):
            if run.progress()["rows_in"] == 2 * ROWS or not run.is_active:
                break
            wait.wait(0.1)
    finally:
        run.stop(drain=True)
    assert run.progress()["late_rows"] == 0
    found = sink.rows()
    assert found.num_rows == 3 * 2 * 2 and set(found["n"].to_pylist()) == {ROWS // 6}


@pytest.mark.conformance
def test_a_batch_is_kept_at_a_location_and_a_restart_goes_on_in_it(spark: Any, engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: each row once over a stop and a restart, though the DataFrame gives other rows whenever it is asked. Method: random values;
    what is in the result is what was written down at the first start, and what comes live."""
    flow = ef.Dataflow("kept")
    backfill = spark.range(0, ROWS, 1, 6).selectExpr("id as k", "rand() as x").orderBy("x")
    live = pa.table({"k": list(range(ROWS, 2 * ROWS)), "x": [2.0] * ROWS})
    sink = ef.sinks.parquet(str(tmp_path / "out"), commit_interval_ms=50)
    flow.from_spark(backfill, name="history").then(ef.sources.memory(live)).to(sink)
    location = str(tmp_path / "location")
    run = engine.start(flow, checkpoint_location=location)
    wait = threading.Event()
    while run.is_active and run.progress()["rows_in"] < ROWS // 10:
        wait.wait(0.02)
    run.stop()
    files = sorted((tmp_path / "location" / "backfill").rglob("*"))
    run = engine.start(flow, checkpoint_location=location)
    assert run.await_termination(90.0)
    assert sorted((tmp_path / "location" / "backfill").rglob("*")) == files
    written = pa.concat_tables([pq.read_table(file) for file in files if file.suffix == ".parquet"])
    found = {row["k"]: row["x"] for row in sink.read().to_pylist()}
    assert sink.read().num_rows == 2 * ROWS
    assert found == {row["k"]: row["x"] for row in [*written.to_pylist(), *live.to_pylist()]}
