"""The same kill under Structured Streaming: the longest time between two outputs of its micro-batches when an executor dies.

The query is the count per protocol and window of 10 ms that Evenflow's gaps are measured on, at the same rate, on a cluster of the same
size; in update mode, so that no result waits for a watermark, and by Spark's own aggregation. The rows come from the paced source of the
latency benchmark, which costs a read less than packets would. An output counts when it has reached the driver, before its
batch is committed. All that is in Spark's favour.
"""

from __future__ import annotations

import tempfile
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenflow.bench import killing
from evenflow.bench.failing import HANG_S, PIECE_S, Setting
from evenflow.bench.gaps import Times, longest_gap, percentile_ms, usual_gaps
from evenflow.bench.killing import MANNERS, Manner
from evenflow.bench.spark_latency import PacedRows
from evenflow.bench.streaming_query import session_settings
from evenflow.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


PROTOCOLS: Final = 2
PARTITIONS: Final = 4
WARM_S: Final = 15.0
CALM_S: Final = 15.0
SETTLED_BATCHES: Final = 5
WHOLE_WITHIN_S: Final = 180.0


class Batches:
    """Takes each micro-batch's result into the driver and notes when it was there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments: list[float] = []

    def __call__(self, results: Any, batch: int) -> None:
        if results.collect():
            with self._lock:
                self._moments.append(time.monotonic())

    @property
    def moments(self) -> Times:
        with self._lock:
            return np.array(self._moments)


def micro_batch_failover(spark: SparkSession, setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """Kill `setting.spark_kills` executors, one after the other, each once the query runs as before. Keys begin with `spark_`."""
    spark.dataSource.register(PacedRows)
    with tempfile.TemporaryDirectory(prefix="evenflow-rival-") as scratch, session_settings(spark, PARTITIONS, "hdfs"):
        batches = Batches()
        running = _start(spark, setting.rate, batches, scratch)
        try:
            say(f"Structured Streaming, {setting.rate:,} rows/s, nobody is killed")
            _warm(running, batches)
            calm_from_s = time.monotonic()
            _pass(running, CALM_S)
            calm = [(calm_from_s, time.monotonic())]
            spans = _strike(running, batches, setting, calm, say)
        finally:
            running.stop()
    moments = batches.moments
    gaps = [longest_gap(moments, begin_s, end_s).seconds for begin_s, end_s in spans]
    usual = usual_gaps(moments, calm, min(PIECE_S, CALM_S))
    return {
        "spark_kills": len(gaps),
        "spark_gap_ms_p50": percentile_ms(gaps, 50),
        "spark_gap_ms_max": percentile_ms(gaps, 100),
        "spark_usual_gap_ms_p50": percentile_ms(usual, 50),
        "spark_usual_gap_ms_max": percentile_ms(usual, 100),
        "spark_gap_ms_each": [round(gap * 1000, 1) for gap in gaps],
    }


def _start(spark: SparkSession, rate: int, batches: Batches, scratch: str) -> Any:
    from pyspark.sql import functions as f

    options = {"rate": str(rate), "keys": str(PROTOCOLS), "partitions": str(PARTITIONS)}
    rows = spark.readStream.format(PacedRows.name()).options(**options).load()
    stamped = rows.select("key", "value", f.col("ts").cast("timestamp").alias("ts")).withWatermark("ts", "1 second")
    counts = stamped.groupBy(f.window("ts", "10 milliseconds"), "key").agg(f.count("*").alias("packets"), f.sum("value").alias("bytes"))
    return counts.writeStream.foreachBatch(batches).outputMode("update").option("checkpointLocation", scratch).start()


def _warm(running: Any, batches: Batches) -> None:
    """Wait for the first outputs, which plan and compile, and then some more."""
    deadline = time.monotonic() + WHOLE_WITHIN_S
    while len(batches.moments) < SETTLED_BATCHES:
        _pass(running, 0.2)
        if time.monotonic() > deadline:
            raise ClusterError(f"Structured Streaming put out {len(batches.moments)} batches within {WHOLE_WITHIN_S:.0f} s")
    _pass(running, WARM_S)


def _strike(running: Any, batches: Batches, setting: Setting, calm: list[tuple[float, float]], say: Any) -> list[tuple[float, float]]:
    """(kill, last output by which it ran as before) of each kill. calm: gets the spans between."""
    random = Random(setting.seed)
    before = killing.executors()
    spans: list[tuple[float, float]] = []
    usual_s = max(usual_gaps(batches.moments, calm, CALM_S / 3), default=1.0)
    for number in range(setting.spark_kills):
        calm_from_s = time.monotonic()
        _pass(running, random.uniform(0.5, 1.5) * setting.seconds_between)
        at_s, manner = _kill_one(random, setting, number)
        calm.append((calm_from_s, at_s))
        end_s = _await_whole(running, batches, at_s + (HANG_S if setting.hang else 0.0), len(before), usual_s)
        spans.append((at_s, end_s))
        gap_s = longest_gap(batches.moments, at_s, end_s).seconds
        say(f"kill {number + 1} under Structured Streaming, {manner}: gap {gap_s * 1000:.0f} ms")
    return spans


def _kill_one(random: Random, setting: Setting, number: int) -> tuple[float, str]:
    """Kill or stop an executor in the manner whose turn it is. A stopped one is resumed after HANG_S."""
    parent_of = killing.parents()
    executor = random.choice(killing.executors())
    workers = killing.below(executor, parent_of)
    manner: Manner = MANNERS[number % len(MANNERS)]
    if setting.hang:
        processes = [executor, *workers]
        at_s = killing.stop(processes)
        threading.Timer(HANG_S, killing.resume, [processes]).start()
        return at_s, "hang"
    if manner == "worker" and workers:
        return killing.kill(workers), manner
    return killing.kill([executor, *workers] if manner == "machine" else [executor]), manner


def _await_whole(running: Any, batches: Batches, from_s: float, executors: int, usual_s: float) -> float:
    """Wait until all executors are there and some batches in a row came at the usual pace. Returns when the last one came.

    from_s: not before this.
    """
    while time.monotonic() < from_s + WHOLE_WITHIN_S:
        _pass(running, 0.2)
        later = batches.moments
        later = later[later > from_s]
        recent = np.diff(later[-SETTLED_BATCHES - 1 :])
        if len(killing.executors()) >= executors and len(recent) >= SETTLED_BATCHES and float(recent.max()) <= 1.5 * usual_s:
            return float(later[-1])
    raise ClusterError(f"Structured Streaming did not run as before within {WHOLE_WITHIN_S:.0f} s of a kill")


def _pass(running: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        if not running.isActive:
            raise ClusterError(f"Structured Streaming ended before its time: {running.exception()}")
        time.sleep(min(left_s, 0.2))
