"""Running one Structured Streaming query: its settings, and what it reports about its micro-batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from evenflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

StateStore = Literal["hdfs", "rocksdb"]
OutputMode = Literal["update", "append"]
MODES: Final[tuple[OutputMode, ...]] = get_args(OutputMode)

PROVIDERS: Final[dict[str, str]] = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
START_TIMEOUT_S: Final = 600.0


def run_to_end(
    results: DataFrame, checkpoint: Path, mode: OutputMode = "update", timeout_s: float = START_TIMEOUT_S
) -> list[dict[str, Any]]:
    """Run the query over what is there, and return the progress of each micro-batch that had rows, in order."""
    writer = results.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    try:
        if not running.awaitTermination(int(timeout_s)):
            raise ClusterError(f"Structured Streaming did not finish within {timeout_s:.0f} s: use fewer rows")
        return [as_dict(each) for each in running.recentProgress if each["numInputRows"]]
    finally:
        running.stop()


def as_dict(progress: Any) -> dict[str, Any]:
    """A progress report as plain values, in every PySpark 4."""
    report: dict[str, Any] = json.loads(progress.json)
    return report


@contextmanager
def session_settings(spark: SparkSession, shuffle_partitions: int, state_store: StateStore) -> Iterator[None]:
    """Settings of the rival's queries, and the session's own again afterwards."""
    chosen = {
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": PROVIDERS[state_store],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    before = {name: spark.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            restore(spark, name, old)


def restore(spark: SparkSession, name: str, value: str | None) -> None:
    """Give a setting the value it had before; None: it had none."""
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)
