"""A batch DataFrame of Spark, and then what is live, on real executors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
ROWS = 6_000


@pytest.mark.parametrize("then", ["inside", pytest.param("streamed", marks=pytest.mark.conformance)])
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
