"""The rows, the operator and the slow executor of `evenflow bench skew` under Structured Streaming.

The operator is a function over a key's rows and its state, as Evenflow's is. A task takes all the slots of its executor, so that the cost
of a row is paid one row at a time in each, as at a site. An answer counts as delivered when it leaves the operator, by the JVM's clock
and before its batch is committed, in Spark's favour; so is the choice of the best of several settings.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from evenflow.bench.delivered import Delivered
from evenflow.bench.drifting import BLOCK_ROWS, SCHEMA, Popularity
from evenflow.bench.slowed import RowCost
from evenflow.bench.streaming_query import as_dict, session_settings
from evenflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL: Final = "number bigint, key bigint, due_us bigint"
RESULT: Final = "number bigint, key bigint, due_us bigint, rows bigint"
STATE: Final = "rows bigint"
LEVELS: Final = 500
"""Each batch reports the ages of its rows at this many evenly spaced quantiles."""
TASK_CPUS: Final = 2
"""As many as an executor of the benchmark's cluster has: one task at a time."""
PATIENCE_S: Final = 120.0
LEAST_BATCHES: Final = 3
"""As many are measured at least, however long they take."""
ASK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Tuning:
    """shuffle_partitions: tasks of the stateful stage. batch_rows: rows of a micro-batch when they are read as fast as they are taken."""

    shuffle_partitions: int
    batch_rows: int


@dataclass
class Numbers(InputPartition):
    """The rows first, first + step, ... before last. begin_us and rate: row n was due n / rate seconds after that moment; 0: at once."""

    first: int
    last: int
    step: int
    begin_us: int
    rate: int


class DriftingStream(DataSource):
    """The rows of `evenflow.bench.drifting`. Options: keys, exponent, drift_rows, seed, partitions, rate (rows/s; 0: as fast as they are
    taken), batch_rows (with rate 0)."""

    @classmethod
    def name(cls) -> str:
        return "evenflow_drifting"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        given = self.options
        popularity = Popularity(int(given["keys"]), float(given["exponent"]), int(given["drift_rows"]), int(given["seed"]))
        return DriftingStreamReader(popularity, int(given["partitions"]), int(given["rate"]), int(given["batch_rows"]))


def wall_clock_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class DriftingStreamReader(DataSourceStreamReader):
    """An offset is the number of the next row, and when row 0 was due."""

    def __init__(
        self,
        popularity: Popularity,
        partitions: int,
        rate: int,
        batch_rows: int,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._popularity, self._partitions, self._rate, self._batch_rows, self._now_us = popularity, partitions, rate, batch_rows, now_us
        self._latest: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        self._latest = {"row": 0, "begin_us": self._now_us()}
        return self._latest

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """start: None in releases of Spark that do not say where the last batch ended."""
        start = start or self._latest
        row = (self._now_us() - start["begin_us"]) * self._rate // 1_000_000 if self._rate else start["row"] + self._batch_rows
        self._latest = {"row": max(row, start["row"]), "begin_us": start["begin_us"]}
        return self._latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [
            Numbers(start["row"] + number, end["row"], self._partitions, start["begin_us"], self._rate)
            for number in range(self._partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Numbers)
        for first in range(partition.first, partition.last, BLOCK_ROWS * partition.step):
            numbers = np.arange(first, min(first + BLOCK_ROWS * partition.step, partition.last), partition.step, dtype=np.int64)
            due = partition.begin_us + (numbers * 1_000_000 // partition.rate if partition.rate else np.zeros_like(numbers))
            columns = (numbers, self._popularity.keys_of(numbers), due)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)

    def commit(self, end: dict[str, int]) -> None:
        return None


def running_counts(cost: RowCost) -> Callable[[Any, Iterator[Any], Any], Iterator[Any]]:
    """A function for `applyInPandasWithState` that does what `evenflow.bench.slowed.RunningCounts` does."""

    def counts(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
        import numpy
        import pandas

        (seen,) = state.get if state.exists else (0,)
        answers = []
        for batch in batches:
            cost.spend(len(batch))
            counted = numpy.arange(seen + 1, seen + len(batch) + 1)
            answers.append(pandas.DataFrame({"number": batch["number"], "key": key[0], "due_us": batch["due_us"], "rows": counted}))
            seen += len(batch)
        state.update((seen,))
        yield from answers

    return counts


def streaming_counts(
    spark: SparkSession,
    popularity: Popularity,
    cost: RowCost,
    *,
    rate: int | None,
    tuning: Tuning,
    partitions: int,
    warm_s: float,
    seconds: float,
) -> Delivered:
    """Run the query, from the end of its first batch on for `warm_s` and then `seconds` and LEAST_BATCHES, and stop it.

    rate: rows/s, None: as fast as they are taken. Ages mean nothing then. Returns what came out, by seconds since that moment. Raises
    ClusterError if the query ends, or has no batch within PATIENCE_S.
    """
    from pyspark.sql import functions

    spark.dataSource.register(DriftingStream)
    options = {
        "keys": popularity.keys,
        "exponent": popularity.exponent,
        "drift_rows": popularity.drift_rows,
        "seed": popularity.seed,
        "partitions": partitions,
        "rate": rate or 0,
        "batch_rows": tuning.batch_rows,
    }
    levels = ", ".join(str((level + 0.5) / LEVELS) for level in range(LEVELS))
    # A call into the JVM per result, since Spark's own current time stands still within a batch.
    age = functions.expr("CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT) - due_us / 1000")
    quantiles = functions.expr(f"percentile_approx(age, array({levels}), 10000)").alias("q")
    with tempfile.TemporaryDirectory(prefix="evenflow-rival-") as scratch, session_settings(spark, tuning.shuffle_partitions, "hdfs"):
        rows = spark.readStream.format(DriftingStream.name()).options(**{name: str(value) for name, value in options.items()}).load()
        grouped: Any = rows.groupBy("key")
        counted = grouped.applyInPandasWithState(running_counts(cost), RESULT, STATE, "update", "NoTimeout")
        watched = counted.withColumn("age", age).observe("answers", functions.expr("count(*)").alias("n"), quantiles)
        running = watched.writeStream.format("noop").outputMode("update").option("checkpointLocation", scratch).start()
        try:
            await_batches(running, 1)
            running.awaitTermination(math.ceil(warm_s))
            known = len(running.recentProgress)
            running.awaitTermination(math.ceil(seconds))
            await_batches(running, known + LEAST_BATCHES)
            if not running.isActive:
                raise ClusterError(f"Structured Streaming ended before its time: {running.exception()}")
            progress = [as_dict(each) for each in running.recentProgress if each["numInputRows"]]
        finally:
            running.stop()
    return delivered(progress)


def await_batches(running: Any, count: int) -> None:
    """Wait until a query has had so many batches, at most PATIENCE_S, or has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while running.isActive and len(running.recentProgress) < count and time.monotonic() < deadline:
        time.sleep(ASK_S)


def delivered(progress: Sequence[dict[str, Any]]) -> Delivered:
    """What micro-batches put out, each at its end, by their progress reports. Seconds count from the end of the first.

    Raises ClusterError if there are none.
    """
    if not progress:
        raise ClusterError("no micro-batch was finished while it was measured: measure for longer, or at a lower rate")
    begins = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in progress]
    ends = [begin_s + float(each["durationMs"]["triggerExecution"]) / 1000 for begin_s, each in zip(begins, progress, strict=True)]
    seen = [each["observedMetrics"]["answers"] for each in progress]
    counts = [len(each["q"] or ()) for each in seen]
    return Delivered(
        np.repeat(np.array(ends) - ends[0], counts),
        np.concatenate([np.asarray(each["q"] or (), np.float64) for each in seen]),
        np.repeat([each["n"] / max(count, 1) for each, count in zip(seen, counts, strict=True)], counts),
    )
