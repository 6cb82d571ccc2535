"""What `evenflow bench restore` kills: one driver of a query with a large state, with a cluster of its own.

A process of its own, `python -m evenflow.bench.restoring SETTING`: Evenflow's, or Structured Streaming's. It goes on at the location where
the one before it was killed, tells how it goes in the file `status`, and what comes out in a `Tally`. When its standard input ends it takes
in no more, finishes, and ends: so it does not outlive who started it, however that ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from evenflow.bench.checkpoint import ROW_BYTES
from evenflow.bench.events import ScheduledEvents
from evenflow.bench.tally import Tally
from evenflow.errors import ClusterError, EvenflowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenflow.query.builder import Dataflow

STATUS_S: Final = 0.25
ENDLESS: Final = 2**50
SHUFFLE_PARTITIONS_PER_SITE: Final = 2
EXECUTOR_MIB: Final = {"evenflow": 1024, "spark": 4096}
"""Of which half is the heap. Evenflow's state is in the Python workers beside it; Spark sorts the rows of the first batch there."""


@dataclass(frozen=True, slots=True)
class Driver:
    """home: everything is below it. kind: whose query. state_mb: of all keys, in millions of bytes. rate: rows/s. every_s: from one
    checkpoint to the next. sites: executors. begin_us: when the rows begin to come, behind those that fill the state in."""

    home: str
    kind: Literal["evenflow", "spark"]
    state_mb: int
    rate: int
    every_s: float
    sites: int
    begin_us: int
    lease_s: float = 5.0
    partitions: int = 64

    @property
    def keys(self) -> int:
        return max(self.partitions, self.state_mb * 1_000_000 // ROW_BYTES)

    @property
    def location(self) -> str:
        return str(Path(self.home) / "location")

    @property
    def master(self) -> str:
        return f"local-cluster[{self.sites},2,{EXECUTOR_MIB[self.kind]}]"

    def source(self) -> ScheduledEvents:
        return ScheduledEvents(self.rate, ENDLESS, self.keys, count=self.sites, begin_us=self.begin_us, at_once=self.keys)

    def tally(self) -> Tally:
        return Tally(Path(self.home), self.keys)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "evenflow.bench.restoring", json.dumps(asdict(self))]

    def dataflow(self, tally: Tally) -> Dataflow:
        import evenflow as ef

        flow = ef.Dataflow("bench_restore")
        totals = flow.source(self.source(), name="events").group_by("key").agg(n="count(*)", total="sum(value)", combine=False)
        totals.name("totals").to(ef.sinks.callback(tally), name="answers")
        return flow


class Status:
    """The file by which others know how it goes: replaced as a whole, so nobody reads half of it. at_s: monotonic, of the writing."""

    def __init__(self, home: str) -> None:
        self._path, self._said = Path(home) / "status", dict[str, Any]()

    def say(self, **what: Any) -> None:
        self._said |= {**what, "pid": os.getpid(), "at_s": time.monotonic()}
        aside = self._path.with_suffix(".new")
        aside.write_text(json.dumps(self._said), encoding="utf-8")
        aside.rename(self._path)

    @staticmethod
    def read(home: str) -> dict[str, Any]:
        """{} before there is anything."""
        path = Path(home) / "status"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found


def main(driver: Driver) -> None:
    over, status = threading.Event(), Status(driver.home)

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        (run_evenflow if driver.kind == "evenflow" else run_spark)(driver, over, status)
        print("ended", flush=True)
    except EvenflowError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


def run_evenflow(driver: Driver, over: threading.Event, status: Status) -> None:
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    spark = embedded_session(driver.master, "evenflow-bench-restore", sites_only=True)
    try:
        watch = _watch_executors(spark, driver.sites, status)
        options: dict[str, Any] = {"lease_s": driver.lease_s, "checkpoint_s": driver.every_s, "partitions": driver.partitions}
        with Engine(spark, sites=driver.sites, place_timeout_s=300.0, **options) as engine:
            watch.join()
            status.say(sites_s=time.monotonic())
            run, generation = engine.start(driver.dataflow(driver.tally()), checkpoint_location=driver.location), 0
            while not run.await_termination(STATUS_S):
                numbers = run.numbers()
                journal, checkpoint = numbers.journal, numbers.checkpoint
                assert journal is not None and checkpoint is not None
                if journal.generation != generation:
                    generation = journal.generation
                    status.say(begun_s=time.monotonic())
                whole_s = None if checkpoint.age_s is None else time.monotonic() - checkpoint.age_s
                state = sum(site.state_bytes for site in numbers.sites)
                status.say(
                    generation=journal.generation, whole_s=whole_s, took_s=checkpoint.seconds, bytes=checkpoint.bytes, state_bytes=state
                )
                if over.is_set():
                    run.stop(drain=True)
    finally:
        stop_session(spark)


def _watch_executors(spark: SparkSession, sites: int, status: Status) -> threading.Thread:
    """Say when Spark itself is there: all executors are known to the driver."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()

    def look() -> None:
        # The driver is one of them.
        while len(tracker.getExecutorInfos()) <= sites:
            time.sleep(0.02)
        status.say(spark_s=time.monotonic())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


# ---------------------------------------------------------------- Structured Streaming


class DueRows(DataSource):
    """The rows of `ScheduledEvents`, the same ones that Evenflow reads. Option: driver, a `Driver` as JSON."""

    @classmethod
    def name(cls) -> str:
        return "evenflow_due"

    def schema(self) -> str:
        return "key bigint, value bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return DueReader(Driver(**json.loads(self.options["driver"])).source())


@dataclass
class Rows(InputPartition):
    """Rows of one partition: `count` from `first` on."""

    number: int
    first: int
    count: int


class DueReader(DataSourceStreamReader):
    """An offset says how many rows of the whole source there are before it."""

    def __init__(self, source: ScheduledEvents) -> None:
        self._source = source

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"rows": self._source.due(time.time_ns() // 1000)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        count = self._source.count
        bounds = [[(each["rows"] - 1 - number) // count + 1 for each in (start, end)] for number in range(count)]
        return [Rows(number, first, last - first) for number, (first, last) in enumerate(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        reader, left = self._source.open(partition.number, self._source.count), partition.count
        reader.skip(partition.first)
        while left:
            batch = reader.read(2**60, left)
            assert batch is not None
            left -= batch.num_rows
            yield batch.select(["key", "value"])

    def commit(self, end: dict[str, int]) -> None:
        return None


def run_spark(driver: Driver, over: threading.Event, status: Status) -> None:
    """Counts and sums by key in update mode, each batch as soon as the one before is done. A batch is out when all of its results have left
    the last operator, before it is committed, in Spark's favour."""
    from pyspark.sql import functions as f

    from evenflow.bench.streaming_query import as_dict, session_settings
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    every = f"{driver.every_s:g}s"
    conf = {
        "spark.sql.streaming.stateStore.maintenanceInterval": every,
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    }
    spark = embedded_session(driver.master, "evenflow-bench-restore", conf)
    try:
        _watch_executors(spark, driver.sites, status).join()
        tally = driver.tally()
        spark.dataSource.register(DueRows)

        def out(results: Any, batch: int) -> None:
            results.write.format("noop").mode("overwrite").save()
            tally.mark()

        with session_settings(spark, SHUFFLE_PARTITIONS_PER_SITE * driver.sites, "rocksdb"):
            rows = spark.readStream.format(DueRows.name()).option("driver", json.dumps(asdict(driver))).load()
            totals = rows.groupBy("key").agg(f.count("*").alias("n"), f.sum("value").alias("total"))
            written = totals.writeStream.outputMode("update").foreachBatch(out).option("checkpointLocation", driver.location)
            query = written.start()
            while query.isActive and not over.wait(STATUS_S):
                if (last := query.lastProgress) is not None:
                    report = as_dict(last)
                    end = report["sources"][0]["endOffset"]
                    rows_in = (json.loads(end) if isinstance(end, str) else end)["rows"]
                    status.say(rows=rows_in, batch_s=report["durationMs"].get("triggerExecution", 0) / 1e3)
            if query.exception() is not None:
                raise ClusterError(f"Structured Streaming ended before its time: {query.exception()}")
            query.stop()
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main(Driver(**json.loads(sys.argv[1])))
