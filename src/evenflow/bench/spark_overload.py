"""Structured Streaming under a load that its tasks can do, or cannot: how old rows are when they leave, and whether that grows.

A micro-batch takes all that was due when it began, so what a query is behind shows in how long its batches take. One that is new takes
seconds for the first of them, and then works off what fell due meanwhile: a query is run before that is thrown away, and what was due
before a query is warm counts nowhere. Where batches take longer and longer there is no age that one could name: what is over is younger
than what waits.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenflow.bench.gaps import weighted_percentile
from evenflow.bench.slept import ROW_US
from evenflow.bench.slowed import DEBT
from evenflow.errors import ClusterError
from evenflow.stream.arrays import Floats

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LEVELS: Final = 400
"""Quantiles of the ages of a batch's rows."""
LEVEL: Final = 1.25
"""Batches that take so many times as long are not those of before."""
LEVEL_S: Final = 0.2
"""And by more than this."""
FIRST_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch. first_s, last_s: its rows were due from then on, and before then, when it began. over_s: when it was over; all seconds
    since 1970. ages_ms: quantiles of what its rows' ages were when they left. rows: how many."""

    first_s: float
    last_s: float
    over_s: float
    ages_ms: Floats
    rows: int

    @property
    def span_s(self) -> float:
        return self.last_s - self.first_s

    @property
    def behind_s(self) -> float:
        """How far the query is behind the clock when it is over."""
        return self.over_s - self.last_s

    @staticmethod
    def of(progress: Mapping[str, Any]) -> Batch | None:
        """Of a progress report. None: nobody knows since when its rows were due, or it had none."""
        ages = progress.get("observedMetrics", {}).get("ages", {})
        first_us, last_us = (_offset_us(progress["sources"][0].get(name)) for name in ("startOffset", "endOffset"))
        if first_us is None or last_us is None or not ages.get("n"):
            return None
        began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
        over_s = began_s + progress["durationMs"]["triggerExecution"] / 1e3
        return Batch(first_us / 1e6, last_us / 1e6, over_s, np.asarray(ages["q"], np.float64), int(ages["n"]))


def _offset_us(told: Any) -> int | None:
    offset = json.loads(told) if isinstance(told, str) else told
    return None if offset is None else int(offset["us"])


def judged(batches: Sequence[Batch], begin_s: float, warm_s: float, end_s: float) -> dict[str, float]:
    """p99_ms: age of the rows that were due from `warm_s` on, once batches are as long as they stay; nan where they get longer and longer,
    or none was over. behind_s: at `end_s`, how far the newest row of a batch that was over was behind the clock. begin_s: since when there
    have been rows. All moments are seconds since 1970."""
    over = [each for each in batches if each.over_s <= end_s]
    behind_s = end_s - max((each.last_s for each in over), default=begin_s)
    warm = [each for each in over if each.first_s >= warm_s]
    usual_s = median(each.span_s for each in warm) if warm else 0.0
    while warm and longer(warm[0].span_s, usual_s):  # What fell due at the start is still being worked off.
        warm.pop(0)
    if not warm:
        return {"p99_ms": math.nan, "behind_s": behind_s}
    # What a batch finds is what the one before it took; the one that is not over yet takes at least as long as it has taken.
    lags = [warm[0].span_s, *(each.behind_s for each in warm)]
    lags += [behind_s] if behind_s > lags[-1] + usual_s else []
    third = max(1, len(lags) // 3)
    grows = longer(fmean(lags[-third:]), fmean(lags[:third]))
    return {"p99_ms": math.nan if grows else p99_of(warm), "behind_s": behind_s}


def longer(seconds: float, usual_s: float) -> bool:
    return seconds > LEVEL * usual_s and seconds > usual_s + LEVEL_S


def p99_of(batches: Sequence[Batch]) -> float:
    """Of all rows; each batch's quantiles weigh as much as it has rows."""
    ages = np.concatenate([each.ages_ms for each in batches])
    weights = np.concatenate([np.full(len(each.ages_ms), each.rows / len(each.ages_ms)) for each in batches])
    return weighted_percentile(ages, weights, 99)


def micro_batch_overload(spark: SparkSession, rate: int, tasks: int, *, warm_s: float, seconds: float) -> dict[str, float]:
    """What `judged` says of a query over so many rows per second, of the same cost each, in so many tasks, for `seconds` from `warm_s`
    behind its first batch on, which has no rows yet. Raises ClusterError if it ends, or has none within FIRST_S."""
    from pyspark.sql import functions

    from evenflow.bench.spark_latency import PacedRows
    from evenflow.bench.streaming_query import as_dict, session_settings

    def slept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            DEBT.add(batch.num_rows * ROW_US)
            yield batch.select(["ts", "value"])

    spark.dataSource.register(PacedRows)
    levels = ", ".join(str((level + 0.5) / LEVELS) for level in range(LEVELS))
    age = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT) - unix_millis(CAST(ts AS TIMESTAMP))"
    with tempfile.TemporaryDirectory(prefix="evenflow-rival-") as scratch, session_settings(spark, tasks, "hdfs"):
        options = {"rate": str(rate), "keys": "1000", "partitions": str(tasks)}
        rows = spark.readStream.format(PacedRows.name()).options(**options).load()
        aged = rows.mapInArrow(slept, "ts timestamp_ntz, value bigint").withColumn("age", functions.expr(age))
        quantiles = functions.expr(f"percentile_approx(age, array({levels}), 1000)").alias("q")
        watched = aged.observe("ages", functions.expr("count(*)").alias("n"), quantiles)
        begin_s = time.time()
        running = watched.writeStream.format("noop").option("checkpointLocation", scratch).start()
        try:
            while running.isActive and not running.recentProgress:
                running.awaitTermination(1)
                if time.time() > begin_s + FIRST_S:
                    raise ClusterError(f"Structured Streaming had no batch within {FIRST_S:.0f} s")
            first_s = time.time()
            running.awaitTermination(math.ceil(warm_s + seconds))
            end_s = time.time()
            if not running.isActive:
                raise ClusterError(f"Structured Streaming ended before its time: {running.exception()}")
            batches = [Batch.of(as_dict(each)) for each in running.recentProgress]
        finally:
            running.stop()
    return judged([each for each in batches if each is not None], begin_s, first_s + warm_s, end_s)
