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


def test_a_batch_without_order_and_then_what_comes_after_it(spark: Any, engine: ef.Engine, tmp_path: Path) -> None:
    """Goal: no row of the batch is late, though it has no order and the rest is an hour later. Method: a source inside the sites behind a
    batch, and a stream of Spark behind another one, in one dataflow; windows are counted."""
    scattered = "timestamp_seconds(1767268800 + pmod(id * 7919, 600)) as ts"
    backfill = spark.range(0, ROWS, 1, 6).selectExpr("id % 3 as k", scattered)
    later = backfill.selectExpr("k", "ts + interval 1 hour as ts")
    later.coalesce(1).write.parquet(str(tmp_path / "later"))
    live = pa.table({"k": [i % 3 for i in range(ROWS)], "ts": [row.ts for row in later.collect()]})
    schema = ef.sources.spark(later).schema
    inside = ef.sources.memory(live.cast(pa.schema([(f.name, f.type) for f in schema])), ended=False)
    streamed = spark.readStream.schema(later.schema).parquet(str(tmp_path / "later"))
    flow = ef.Dataflow("backfill")
    sinks = {}
    for name, given in (("inside", flow.source(inside)), ("streamed", flow.from_spark(streamed))):
        made = flow.from_spark(backfill).then(given).with_watermark("ts", "0 seconds")
        counted = made.group_by("k").window("5 minutes").agg(n="count(*)")
        sinks[name] = ef.sinks.memory(f"then-{name}")
        counted.to(sinks[name], name=name)
    run = engine.start(flow)
    try:
        wait = threading.Event()
        for _ in range(600):
            if run.progress()["rows_in"] == 4 * ROWS or not run.is_active:
                break
            wait.wait(0.1)
    finally:
        run.stop(drain=True)
    assert run.progress()["late_rows"] == 0
    for sink in sinks.values():
        found = sink.rows()
        assert found.num_rows == 3 * 2 * 2 and set(found["n"].to_pylist()) == {ROWS // 6}
