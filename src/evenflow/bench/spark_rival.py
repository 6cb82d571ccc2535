"""What Structured Streaming reaches on the same cluster with the same rows: the other side of `evenflow bench`.

Wherever there is a choice, it is made in Spark's favour: the native JVM aggregation with its combine before the exchange, the batch
size, the number of shuffle partitions and the state store that serve it best, a sink that does nothing, the better one of two
ways to compute a rate, results that count as delivered before their batch is committed. Only the reading is held equal: a
predicate touches every column, so that whole rows are read.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from evenflow.bench.rows import link_copies
from evenflow.bench.spark_latency import Latency, micro_batch_latency
from evenflow.bench.streaming_query import StateStore, run_to_end, session_settings
from evenflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE_ROW: Final = "ts > TIMESTAMP_NTZ '1970-01-01 00:00:00' AND (p0 ^ p1 ^ p2 ^ p3 ^ p4 ^ p5) <> -1"
"""True for every generated row. With key, value and price in the aggregates it makes Spark read all ten columns."""

__all__ = ["Best", "Latency", "Throughput", "best_grouped_aggregation", "grouped_aggregation", "micro_batch_latency", "row_window_average"]

COLD_BATCHES: Final = 2
"""Batches at the beginning of a query that are not counted: planning, code generation, listing of the files."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one streaming query reached once it was warm.

    rows_per_s: the better one of rows per second of batch time and rows per second of wall clock. batch_rows: rows per micro-batch.
    rows, batches: how much was counted. batch_p50_ms: median duration of a micro-batch.
    """

    rows_per_s: float
    batch_rows: int
    shuffle_partitions: int
    state_store: StateStore
    rows: int
    batches: int
    batch_p50_ms: float


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting of a sweep and everything that was tried, in that order."""

    best: Throughput
    tried: tuple[Throughput, ...]


def grouped_aggregation(
    spark: SparkSession,
    files: Sequence[Path],
    *,
    files_per_batch: int,
    batches: int = 4,
    shuffle_partitions: int = 4,
    state_store: StateStore = "hdfs",
) -> Throughput:
    """Count, sum and avg per key of the rows in `files`, all read whole, in update mode into a sink that does nothing.

    files: as `write_rows` makes them, of equal size. They are offered as often as needed for `batches` counted micro-batches of
    `files_per_batch` files each, after COLD_BATCHES that are not counted.
    """

    def query(rows: DataFrame) -> DataFrame:
        return rows.where(WHOLE_ROW).groupBy("key").agg({"*": "count", "value": "sum", "price": "avg"})

    return _run(spark, files, query, files_per_batch, batches, shuffle_partitions, state_store)


def best_grouped_aggregation(
    spark: SparkSession,
    files: Sequence[Path],
    *,
    files_per_batch: Sequence[int] = (2, 4, 8, 16),
    shuffle_partitions: Sequence[int] = (4, 2, 8),
    state_stores: Sequence[StateStore] = ("hdfs", "rocksdb"),
    batches: int = 4,
) -> Best:
    """The best of a greedy sweep: batch size first, at the best one the shuffle partitions, then the state store."""
    grouped_aggregation(spark, files, files_per_batch=files_per_batch[0], batches=2)  # Warms the JVMs and is not counted.
    tried: list[Throughput] = []

    def attempt(per_batch: int, partitions: int, store: StateStore) -> None:
        tried.append(
            grouped_aggregation(spark, files, files_per_batch=per_batch, batches=batches, shuffle_partitions=partitions, state_store=store)
        )

    for per_batch in files_per_batch:
        attempt(per_batch, shuffle_partitions[0], state_stores[0])
    per_batch = files_per_batch[tried.index(_best(tried))]
    for partitions in shuffle_partitions[1:]:
        attempt(per_batch, partitions, state_stores[0])
    for store in state_stores[1:]:
        attempt(per_batch, _best(tried).shuffle_partitions, store)
    return Best(_best(tried), tuple(tried))


def row_window_average(
    spark: SparkSession,
    files: Sequence[Path],
    *,
    files_per_batch: int,
    history: int = 100,
    slide: int = 10,
    batches: int = 2,
    shuffle_partitions: int = 4,
    state_store: StateStore = "hdfs",
) -> Throughput:
    """Average price of the last `history` rows of each key after every `slide` of its rows, by `applyInPandasWithState`.

    Structured Streaming has no row-count window of its own; a function in Python over the rows of a key and its state is its way to
    have one. The function works on whole NumPy columns, and keeps only the last `history` prices and a count.
    """
    from evenflow.bench.spark_window import RESULT, STATE, row_window

    def query(rows: DataFrame) -> DataFrame:
        grouped: Any = rows.where(WHOLE_ROW).select("key", "price").groupBy("key")
        averages: DataFrame = grouped.applyInPandasWithState(row_window(history, slide), RESULT, STATE, "update", "NoTimeout")
        return averages

    return _run(spark, files, query, files_per_batch, batches, shuffle_partitions, state_store, cold=1)


def _best(tried: Sequence[Throughput]) -> Throughput:
    return max(tried, key=lambda taken: taken.rows_per_s)


def _run(
    spark: SparkSession,
    files: Sequence[Path],
    query: Any,
    files_per_batch: int,
    batches: int,
    shuffle_partitions: int,
    state_store: StateStore,
    cold: int = COLD_BATCHES,
) -> Throughput:
    needed = files_per_batch * (batches + cold)
    copies = -(-needed // len(files))
    with tempfile.TemporaryDirectory(prefix="evenflow-rival-", dir=files[0].parent.parent) as scratch:
        link_copies(list(files), Path(scratch, "input"), copies)
        for surplus in sorted(Path(scratch, "input").iterdir())[needed:]:
            surplus.unlink()
        with session_settings(spark, shuffle_partitions, state_store):
            schema = spark.read.parquet(str(files[0])).schema
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch).parquet(f"{scratch}/input")
            progress = run_to_end(query(stream), Path(scratch, "checkpoint"))
    counted = progress[cold:]
    if not counted:
        raise ClusterError(f"Structured Streaming finished only {len(progress)} micro-batches: give it more files")
    rows = sum(int(each["numInputRows"]) for each in counted)
    durations_ms = sorted(float(each["durationMs"]["triggerExecution"]) for each in counted)
    batch_rows = pq.read_metadata(files[0]).num_rows * files_per_batch
    by_batch_time = rows / (sum(durations_ms) / 1000)
    by_progress = [float(each.get("processedRowsPerSecond") or 0.0) for each in counted]
    return Throughput(
        rows_per_s=max(by_batch_time, sum(by_progress) / len(by_progress)),
        batch_rows=batch_rows,
        shuffle_partitions=shuffle_partitions,
        state_store=state_store,
        rows=rows,
        batches=len(counted),
        batch_p50_ms=durations_ms[len(durations_ms) // 2],
    )


def main() -> None:
    """`python -m evenflow.bench.spark_rival throughput|window|latency|realtime`: one rival alone on an embedded cluster, for trying."""
    from evenflow.bench.rows import write_rows
    from evenflow.bench.spark_realtime import realtime_latency
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    parser = argparse.ArgumentParser(prog="python -m evenflow.bench.spark_rival", description=main.__doc__)
    parser.add_argument("what", choices=["throughput", "window", "latency", "realtime"])
    parser.add_argument("--master", default="local-cluster[4,1,1024]")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=16_384)
    parser.add_argument("--distribution", choices=["uniform", "zipf"], default="uniform")
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=20)
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {"spark.task.maxFailures": "4"}
    if asked.what == "realtime":
        found = realtime_latency(rate=asked.rate, keys=asked.keys, seconds=asked.seconds, master=asked.master)
        print(json.dumps(dataclasses.asdict(found), indent=2))
        return
    spark = embedded_session(asked.master, "evenflow-rival", conf)
    try:
        with tempfile.TemporaryDirectory(prefix="evenflow-rows-") as scratch:
            taken: Any
            if asked.what == "latency":
                taken = micro_batch_latency(spark, rate=asked.rate, keys=asked.keys, seconds=asked.seconds)
            else:
                files = write_rows(Path(scratch, "rows"), asked.rows, asked.keys, asked.distribution, 16)
                taken = (
                    best_grouped_aggregation(spark, files)
                    if asked.what == "throughput"
                    else row_window_average(spark, files, files_per_batch=4)
                )
        print(json.dumps(dataclasses.asdict(taken), indent=2))
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main()
