"""Structured Streaming fed by Kafka: its micro-batches, and its real-time mode as far as that runs.

Both read the same topic with the same query and write to the same kind of topic, so they differ in the trigger alone. A result's
latency is the time at which Spark's sink made its record less the time of the youngest input record it counts; the way to the
broker is not in it, in Spark's favour.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from evenflow.bench.kafka_broker import Jar, KafkaBroker, resolve
from evenflow.bench.streaming_query import restore, session_settings
from evenflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTORS: Final = (("4.2.0", "4.2.0"), ("4.2.0", "4.1.0-preview1"))
"""Versions of the connector and of its token provider to try after Spark's own: not every release of both is in Maven Central."""

KAFKA_CLIENTS: Final = "3.9.2"
COMMONS_POOL: Final = "2.13.1"
TOPIC_PARTITIONS: Final = 2
WARM_RATE: Final = 2000
WARM_S: Final = 45
PERCENTILES: Final = (0.5, 0.99, 0.999)

Query = Literal["stateful", "stateless"]
QUERIES: Final[tuple[Query, ...]] = ("stateful", "stateless")


class NothingCameOut(ClusterError):
    """The query ran and had no result within the time that was measured."""


@dataclass(frozen=True, slots=True)
class KafkaLatency:
    """Latency of the results of one query, milliseconds. results: how many were measured. query: what ran.

    If it did not run, the numbers are None and reason says why; with query "stateless", reason says why the stateful one did not.
    """

    rate: int
    query: Query
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    results: int
    reason: str | None = None


def connector_jars(spark_version: str) -> list[str]:
    """Jars that a session needs in `spark.jars` to read from Kafka. Raises ClusterError if Maven Central has none that fit."""
    reasons = []
    for connector, tokens in ((spark_version, spark_version), *CONNECTORS):
        jars = (
            Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", connector, alone=True),
            Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens, alone=True),
            Jar("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS, alone=True),
            Jar("org.apache.commons", "commons-pool2", COMMONS_POOL, alone=True),
        )
        try:
            return [str(path) for path in resolve(f"spark-kafka-{connector}-{tokens}", jars)]
        except ClusterError as error:
            reasons.append(str(error))
    raise ClusterError("; ".join(reasons))


def kafka_latency(
    spark: SparkSession,
    broker: KafkaBroker,
    *,
    rate: int = 50_000,
    keys: int = 16_384,
    real_time: bool,
    query: Query = "stateful",
    warm_s: float = 15,
    seconds: float = 20,
) -> KafkaLatency:
    """Measure one query for `seconds` after `warm_s`. The session needs `connector_jars` and, in real-time mode, a slot for every task
    of both stages (4). Raises what Spark raises."""
    name = f"{'real-time' if real_time else 'micro-batch'}-{query}-{time.monotonic_ns()}"
    broker.create_topic(f"in-{name}", TOPIC_PARTITIONS)
    broker.create_topic(f"out-{name}", TOPIC_PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="evenflow-rival-") as scratch, _settings(spark):
        rows = _topic(spark.readStream, broker, f"in-{name}").load()
        results = _count(rows) if query == "stateful" else _pass(rows)
        writer: Any = results.writeStream.format("kafka").outputMode("update").option("kafka.bootstrap.servers", broker.address)
        writer = writer.option("topic", f"out-{name}").option("checkpointLocation", scratch)
        writer = writer.trigger(realTime="5 seconds") if real_time else writer
        running = writer.start()
        try:
            broker.produce(f"in-{name}", rate, int(warm_s + seconds) + 30, keys)
            _watch(running, warm_s)
            first_ms = time.time_ns() // 1_000_000
            _watch(running, seconds)
        finally:
            broker.stop_producing()
            running.stop()
        return _read_back(spark, broker, f"out-{name}", first_ms, seconds, rate, query)


def realtime_latency(
    *,
    rate: int = 50_000,
    keys: int = 16_384,
    seconds: float = 20,
    warm_s: float = 15,
    master: str = "local-cluster[4,1,1024]",
) -> KafkaLatency:
    """Spark's real-time mode as far as it runs: the stateful query, else the stateless one with the reason, else only the reason.

    Starts a broker and a session of its own, with the Kafka connector, and leaves neither behind. No session may be active.
    """
    import pyspark

    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    reasons: list[str] = []
    try:
        jars = ",".join(connector_jars(pyspark.__version__))
        with KafkaBroker() as broker:
            spark = embedded_session(master, "evenflow-rival", {"spark.jars": jars, "spark.task.maxFailures": "4"})
            try:
                for query in QUERIES:
                    try:
                        _warm(spark, broker, keys, query)
                        taken = kafka_latency(
                            spark, broker, rate=rate, keys=keys, real_time=True, query=query, warm_s=warm_s, seconds=seconds
                        )
                    except Exception as error:
                        reasons.append(f"{query}: {_first_line(error)}")
                    else:
                        return replace(taken, reason="; ".join(reasons) or None)
            finally:
                stop_session(spark)
    except ClusterError as error:
        reasons.append(str(error))
    return KafkaLatency(rate, "stateful", None, None, None, 0, "; ".join(reasons))


def _warm(spark: SparkSession, broker: KafkaBroker, keys: int, query: Query) -> None:
    """Run the query once at a low rate, uncounted: a cold first batch takes so long that its backlog would be all one measures."""
    try:
        kafka_latency(spark, broker, rate=WARM_RATE, keys=keys, real_time=True, query=query, warm_s=WARM_S, seconds=1)
    except NothingCameOut:
        return


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _topic(reader: Any, broker: KafkaBroker, topic: str) -> Any:
    return reader.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)


def _count(rows: DataFrame) -> DataFrame:
    parsed = rows.selectExpr(
        "CAST(substring(CAST(value AS STRING), 1, 8) AS BIGINT) AS key",
        "CAST(substring(CAST(value AS STRING), 9, 8) AS BIGINT) AS number",
        "timestamp",
    )
    grouped = parsed.groupBy("key").agg({"*": "count", "number": "sum", "timestamp": "max"})
    return grouped.selectExpr("CAST(key AS STRING) AS key", "CAST(unix_millis(`max(timestamp)`) AS STRING) AS value")


def _pass(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("substring(CAST(value AS STRING), 1, 8) AS key", "CAST(unix_millis(timestamp) AS STRING) AS value")


def _watch(running: Any, seconds: float) -> None:
    """Wait, and raise what the query raises meanwhile."""
    running.awaitTermination(math.ceil(seconds))
    if not running.isActive:
        raise ClusterError("Structured Streaming ended before its time")


def _read_back(
    spark: SparkSession, broker: KafkaBroker, topic: str, first_ms: int, seconds: float, rate: int, query: Query
) -> KafkaLatency:
    written = _topic(spark.read, broker, topic).option("startingOffsets", "earliest").load()
    levels = ", ".join(str(level) for level in PERCENTILES)
    row = (
        written.selectExpr("unix_millis(timestamp) AS made", "CAST(CAST(value AS STRING) AS BIGINT) AS taken")
        .where(f"made >= {first_ms} AND made < {first_ms + int(seconds * 1000)}")
        .selectExpr("count(*) AS results", f"percentile(made - taken, array({levels})) AS latency")
        .first()
    )
    if row is None or not row["results"]:
        raise NothingCameOut("no result came out while it was measured: measure for longer, or at a lower rate")
    p50, p99, p999 = row["latency"]
    return KafkaLatency(rate, query, p50, p99, p999, int(row["results"]))


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    before = spark.conf.get(name, None)
    with session_settings(spark, TOPIC_PARTITIONS, "rocksdb"):
        spark.conf.set(name, "2")  # Real-time mode refuses the first format.
        try:
            yield
        finally:
            restore(spark, name, before)
