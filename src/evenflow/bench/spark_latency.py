"""Latency of Structured Streaming's micro-batches at a set rate, without Kafka: a paced source and a sink that does nothing.

The source is a function of time: a micro-batch takes the rows that were due up to the moment it asked, as a Python data source of Arrow
batches. (Spark's own `rate` source hands out whole seconds only, which alone costs half a second.) A result counts as delivered when it
leaves the last operator, by the JVM's clock and before its batch is committed, in Spark's favour.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from evenflow.bench.gaps import weighted_percentile
from evenflow.bench.streaming_query import StateStore, as_dict, session_settings
from evenflow.errors import ClusterError
from evenflow.sources.generator import BLOCK_ROWS, SCHEMA
from evenflow.sources.generator import payload as payload_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVELS: Final = 2000
"""Each batch reports its latencies at this many evenly spaced quantiles; all batches are put together by their numbers of results."""

DDL: Final = "key bigint, ts timestamp_ntz, value bigint, price double, " + ", ".join(f"p{i} bigint" for i in range(6))


@dataclass(frozen=True, slots=True)
class Latency:
    """Results' age when they leave, milliseconds. results: how many. batch_p50_ms: median duration of a micro-batch.

    rows_per_s: what the query kept up with; below `rate` it fell behind and the latencies grow with time.
    """

    rate: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    results: int
    batch_p50_ms: float
    rows_per_s: float


@dataclass
class Span(InputPartition):
    """Rows of one partition that are due in [first_us, last_us), microseconds since 1970."""

    number: int
    first_us: int
    last_us: int


class PacedRows(DataSource):
    """Rows of the generator at a set rate. Options: rate (rows/s in all), keys, partitions."""

    @classmethod
    def name(cls) -> str:
        return "evenflow_paced"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return PacedReader(int(self.options["rate"]), int(self.options["keys"]), int(self.options["partitions"]))


class PacedReader(DataSourceStreamReader):
    """Offsets are times in microseconds: nothing but the clock says which rows there are."""

    def __init__(self, rate: int, keys: int, partitions: int) -> None:
        self._rate, self._keys, self._partitions = rate, keys, partitions

    def initialOffset(self) -> dict[str, int]:
        return {"us": time.time_ns() // 1000}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"us": time.time_ns() // 1000}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Span(number, start["us"], end["us"]) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        share = self._rate / self._partitions
        first, last = (int(us * share / 1e6) for us in (partition.first_us, partition.last_us))
        payload = list(payload_of(0, partition.number).values())
        for row in range(first, last, BLOCK_ROWS):
            count = min(BLOCK_ROWS, last - row)
            ts = (np.arange(row, row + count) * (1e6 / share)).astype(np.int64)
            key = np.random.default_rng([row, partition.number]).integers(0, self._keys, count)
            columns = [pa.array(key), pa.array(ts).cast(pa.timestamp("us")), *(each.slice(row % BLOCK_ROWS, count) for each in payload)]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def commit(self, end: dict[str, int]) -> None:
        return None


def micro_batch_latency(
    spark: SparkSession,
    *,
    rate: int = 50_000,
    keys: int = 16_384,
    seconds: float = 30,
    warm_s: float = 20,
    source_partitions: int = 2,
    shuffle_partitions: int = 2,
    state_store: StateStore = "hdfs",
) -> Latency:
    """Count, sum and avg per key in update mode, each batch as soon as the one before is done, measured for `seconds` after `warm_s`.

    A result's latency is that of the youngest row in it. Needs `PYSPARK_PYTHON` to be a Python that has Evenflow.
    """
    spark.dataSource.register(PacedRows)
    levels = ", ".join(str((level + 0.5) / LEVELS) for level in range(LEVELS))
    with tempfile.TemporaryDirectory(prefix="evenflow-rival-") as scratch, session_settings(spark, shuffle_partitions, state_store):
        options = {"rate": str(rate), "keys": str(keys), "partitions": str(source_partitions)}
        rows = spark.readStream.format(PacedRows.name()).options(**options).load()
        grouped = rows.groupBy("key").agg({"*": "count", "value": "sum", "price": "avg", "ts": "max"})
        aged = grouped.withColumn("age", _age())
        from pyspark.sql import functions

        watched = aged.observe(
            "latency", functions.expr("count(*)").alias("n"), functions.expr(f"percentile_approx(age, array({levels}), 10000)").alias("q")
        )
        running = watched.writeStream.format("noop").outputMode("update").option("checkpointLocation", scratch).start()
        try:
            running.awaitTermination(math.ceil(warm_s))
            known = len(running.recentProgress)
            running.awaitTermination(math.ceil(seconds))
            if not running.isActive:
                raise ClusterError(f"Structured Streaming ended before its time: {running.exception()}")
            progress = [as_dict(each) for each in running.recentProgress[known:] if each["numInputRows"]]
        finally:
            running.stop()
    return _together(rate, progress)


def _age() -> Any:
    from pyspark.sql import functions

    # A call into the JVM per result, since Spark's own current time stands still within a batch.
    return functions.expr("CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT) - unix_millis(CAST(`max(ts)` AS TIMESTAMP))")


def _together(rate: int, progress: Sequence[dict[str, Any]]) -> Latency:
    """Put the batches' quantiles together, each weighing as much as its batch has results."""
    seen = [each["observedMetrics"]["latency"] for each in progress if each.get("observedMetrics", {}).get("latency", {}).get("n")]
    if not seen:
        raise ClusterError("no micro-batch was finished while it was measured: measure for longer, or at a lower rate")
    ages = np.concatenate([np.asarray(each["q"], dtype=np.float64) for each in seen])
    weights = np.concatenate([np.full(len(each["q"]), each["n"] / len(each["q"])) for each in seen])
    p50, p99, p999 = (weighted_percentile(ages, weights, percent) for percent in (50, 99, 99.9))
    durations: list[float] = sorted(float(each["durationMs"]["triggerExecution"]) for each in progress)
    spent_s = sum(durations) / 1000
    rows = sum(int(each["numInputRows"]) for each in progress)
    return Latency(rate, p50, p99, p999, int(sum(each["n"] for each in seen)), durations[len(durations) // 2], rows / spent_s)
