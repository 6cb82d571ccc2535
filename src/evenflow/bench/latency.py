"""`evenflow bench latency`: milliseconds from source to sink at a set rate, beside Spark's micro-batches and its real-time mode.

The same query everywhere: count, sum, average and newest time per key in update mode. A result row's latency is its arrival at the sink
minus the newest event time in it, which is the time at which the generator made the row. Evenflow's sink is a function in the driver,
so its figures include the way from the last site to the driver. With a journal, a result is given out once what it was made of is durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.bench.measuring import MASTER, SITES, machine

Say = Callable[[str], None]
RATE: Final = 50_000
KEYS: Final = 16_384


class Arrivals:
    """A sink function that notes, for each result row, how long ago its newest row was made. Microseconds."""

    def __init__(self) -> None:
        self.counting = False
        self._seen: list[npt.NDArray[np.int64]] = []

    def __call__(self, epoch: int, batch: pa.RecordBatch) -> None:
        if self.counting and batch.num_rows:
            made = batch.column("newest").cast(pa.int64()).to_numpy()
            self._seen.append(time.time_ns() // 1000 - made)

    def percentiles_ms(self) -> dict[str, float]:
        """p50_ms, p99_ms, p999_ms and rows, over all counted result rows."""
        seen = np.concatenate(self._seen)
        p50, p99, p999 = np.percentile(seen, [50, 99, 99.9], method="inverted_cdf") / 1000
        return {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2), "p999_ms": round(float(p999), 2), "rows": len(seen)}


def evenflow_latency(spark: Any, *, rate: int, warm_s: float, seconds: float, location: Path | None = None) -> dict[str, float]:
    """p50_ms, p99_ms, p999_ms and the number of result rows of Evenflow on an existing session. location: of a journal, if there is to be
    one; no checkpoints are made."""
    import evenflow as ef
    from evenflow.world.spark.driver.engine import Engine

    arrivals = Arrivals()
    flow = ef.Dataflow("latency")
    rows = flow.source(ef.sources.generator(rate=rate, keys=KEYS))
    results = rows.group_by("key").agg(n="count(*)", total="sum(value)", mean="avg(price)", newest="max(ts)")
    results.to(ef.sinks.callback(arrivals))
    with Engine(spark, sites=SITES, checkpoint_s=None) as engine:
        run = engine.start(flow, checkpoint_location=None if location is None else str(location))
        run.await_termination(warm_s)
        arrivals.counting = True
        run.await_termination(seconds)
        arrivals.counting = False
        run.stop()
    return arrivals.percentiles_ms()


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Measure all three systems one after the other. quick: a few seconds each, a smoke test only."""
    from evenflow.bench.spark_rival import micro_batch_latency
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    warm_s, seconds = (3.0, 5.0) if quick else (10.0, 30.0)
    spark = embedded_session(MASTER)
    try:
        say(f"Evenflow, {RATE:,} rows/s")
        ours = evenflow_latency(spark, rate=RATE, warm_s=warm_s, seconds=seconds)
        say(f"Evenflow with a journal on the local disk, {RATE:,} rows/s")
        with TemporaryDirectory(prefix="evenflow-bench-") as place:
            journalled = evenflow_latency(spark, rate=RATE, warm_s=warm_s, seconds=seconds, location=Path(place) / "location")
        say(f"Structured Streaming, {RATE:,} rows/s")
        theirs = micro_batch_latency(spark, rate=RATE, keys=KEYS, seconds=seconds, warm_s=warm_s)
    finally:
        stop_session(spark)
    realtime: dict[str, Any] = {"spark_realtime_p99_ms": None, "spark_realtime_reason": "left out of a quick run"}
    if not quick:
        from evenflow.bench.spark_realtime import realtime_latency

        say("Spark real-time mode, with a Kafka broker")
        found = realtime_latency(rate=RATE, seconds=seconds / 2)
        realtime = {"spark_realtime_p99_ms": found.p99_ms, "spark_realtime_p50_ms": found.p50_ms, "spark_realtime_reason": found.reason}
    return {
        "benchmark": "latency",
        "rate": RATE,
        "quick": quick,
        **ours,
        "journal_p50_ms": journalled["p50_ms"],
        "journal_p99_ms": journalled["p99_ms"],
        "journal_added_p50_ms": round(journalled["p50_ms"] - ours["p50_ms"], 2),
        "spark_p50_ms": theirs.p50_ms,
        "spark_p99_ms": theirs.p99_ms,
        "p99_ratio": round(theirs.p99_ms / ours["p99_ms"], 1),
        **realtime,
        "machine": machine(),
        "master": MASTER,
    }
