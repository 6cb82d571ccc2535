"""Nexmark in Spark: the right answers by batch Spark SQL, and the rate that Structured Streaming reaches with the same text.

A query runs in update mode if Structured Streaming has it there, else in append mode; what it has in neither it cannot run, and says why.
As elsewhere the sink does nothing, the first micro-batch is not counted, and no batch is spent on windows that end with the input.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from evenflow import nexmark
from evenflow.bench.nexmark_files import PARTS
from evenflow.bench.streaming_query import MODES, OutputMode, run_to_end, session_settings
from evenflow.errors import ClusterError
from evenflow.nexmark import NexmarkQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLD_BATCHES: Final = 1
SHUFFLE_PARTITIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Streamed:
    """How Structured Streaming did. rows_per_s: None if it cannot run the query. mode: the output mode. reason: why it cannot."""

    rows_per_s: float | None
    mode: OutputMode | None = None
    batches: int = 0
    reason: str | None = None


def batch_answer(spark: SparkSession, query: NexmarkQuery, folders: Mapping[str, Path]) -> pa.Table:
    """What batch Spark SQL makes of the files in `folders`, by stream."""
    for stream, folder in folders.items():
        spark.read.parquet(str(folder)).createOrReplaceTempView(stream)
    _side_input(spark, query)
    return cast(pa.Table, spark.sql(query.sql).toArrow())


def streamed(
    spark: SparkSession, query: NexmarkQuery, folders: Mapping[str, Path], *, delay: str, rows: int, slices_per_batch: int, timeout_s: float
) -> Streamed:
    """Rows per second of micro-batch time. folders: the files of each stream. rows: of all of them together."""
    _side_input(spark, query)
    for stream, folder in folders.items():
        schema = spark.read.parquet(str(folder)).schema
        read = spark.readStream.schema(schema).option("maxFilesPerTrigger", slices_per_batch * PARTS).parquet(str(folder))
        read.withWatermark(nexmark.TIME_COLUMN, delay).createOrReplaceTempView(stream)
    # PySpark would print every refusal as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    reasons = []
    for mode in MODES:
        with tempfile.TemporaryDirectory(prefix="evenflow-rival-") as scratch, session_settings(spark, SHUFFLE_PARTITIONS, "hdfs"):
            try:
                progress = run_to_end(spark.sql(query.sql), Path(scratch), mode, timeout_s)
            except Exception as error:  # What the rival cannot do, for whatever reason, is its result.
                reasons.append((str(error).strip() or type(error).__name__).splitlines()[0])
                continue
        counted = progress[COLD_BATCHES:]
        if not counted:
            raise ClusterError(f"Structured Streaming finished {query.name} in {len(progress)} micro-batches: give it more rows")
        # A stream that the query names twice is read twice and counted twice by Spark; a batch is the same part of the rows as any.
        seconds = sum(float(each["durationMs"]["triggerExecution"]) for each in counted) / 1000
        return Streamed(rows * len(counted) / len(progress) / seconds, mode, len(counted))
    return Streamed(None, reason="; ".join(dict.fromkeys(reasons)))


def _side_input(spark: SparkSession, query: NexmarkQuery) -> None:
    if nexmark.SIDE_INPUT in query.inputs:
        spark.createDataFrame(nexmark.side_input()).createOrReplaceTempView(nexmark.SIDE_INPUT)
