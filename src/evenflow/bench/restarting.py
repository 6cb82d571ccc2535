"""What `evenflow bench restart` kills: one generation of a dataflow at a checkpoint location, or of a Structured Streaming query at one.

A process of its own, `python -m evenflow.bench.restarting SETTING`, with a cluster of its own: Spark's, or bare site processes, which start
in a third of the time and are lost in the same way. It writes every row of the source into a
table of SQLite, so that each row can be looked for; the rival's table has its counts. It says `running` when it has begun and `ended` at
the end, or what went wrong. When its standard input ends it takes in no more, finishes what it has, and ends.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from evenflow.errors import EvenflowError

if TYPE_CHECKING:
    from evenflow.world.spark.driver.engine import Engine

KEYS: Final = 64
SOURCE_PARTITIONS: Final = 2


@dataclass(frozen=True, slots=True)
class Generation:
    """home: everything is below it. kind: whose query. rate: rows/s. lease_s: of the engine. bare: on site processes of its own, without
    Spark. take_over: from a driver that lives. checkpoint_s: generations are short, and each is to leave a checkpoint or two."""

    home: str
    kind: Literal["evenflow", "spark"] = "evenflow"
    rate: int = 1_000
    sites: int = 2
    lease_s: float = 5.0
    bare: bool = False
    take_over: bool = False
    checkpoint_s: float = 1.0

    @property
    def location(self) -> str:
        return str(Path(self.home) / "location")

    @property
    def database(self) -> str:
        return str(Path(self.home) / "rows.sqlite")

    @property
    def master(self) -> str:
        return f"local-cluster[{self.sites},2,1024]"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "evenflow.bench.restarting", json.dumps(asdict(self))]

    def dataflow(self) -> Any:
        import evenflow as ef

        flow = ef.Dataflow("bench_restart")
        made = flow.source(ef.sources.generator(rate=self.rate, keys=KEYS, partitions=SOURCE_PARTITIONS), name="made")
        totals = made.with_watermark("ts", "1 second").group_by("key").window("1 second").agg(n="count(*)")
        totals.to(ef.sinks.parquet(str(Path(self.home) / "windows")), name="windows")
        made.select("key", "ts", "value").to(ef.sinks.table(self.database, "rows"), name="rows")
        return flow

    def count(self) -> int:
        """Rows of the table; 0 before it is there."""
        if not Path(self.database).exists():
            return 0
        with closing(sqlite3.connect(self.database, timeout=10)) as connection:
            try:
                # Nothing is ever deleted there, and to count a million rows takes longer than the time between two looks.
                return int(connection.execute("SELECT max(rowid) FROM rows").fetchone()[0] or 0)
            except sqlite3.OperationalError:
                return 0


def is_free(database: str) -> bool:
    """Whether nobody writes or reads the file right now: a process that is stopped in the middle of that keeps its lock."""
    with closing(sqlite3.connect(database, timeout=0)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
            connection.rollback()
            return True
        except sqlite3.OperationalError:
            return False


def main(generation: Generation) -> None:
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        (run_evenflow if generation.kind == "evenflow" else run_spark)(generation, over)
        print("ended", flush=True)
    except EvenflowError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


def run_evenflow(generation: Generation, over: threading.Event) -> None:
    options: dict[str, Any] = {"sites": generation.sites, "lease_s": generation.lease_s, "checkpoint_s": generation.checkpoint_s}
    if generation.bare:
        from evenflow.bench.bare import BareEngine

        with BareEngine(**options) as engine:
            run_on(engine, generation, over)
        return
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    spark = embedded_session(generation.master, "evenflow-bench-restart", sites_only=True)
    try:
        with Engine(spark, **options) as engine:
            run_on(engine, generation, over)
    finally:
        stop_session(spark)


def run_on(engine: Engine, generation: Generation, over: threading.Event) -> None:
    """Until it ends by itself, or is told to take in no more."""
    run = engine.start(generation.dataflow(), checkpoint_location=generation.location, take_over=generation.take_over)
    print("running", flush=True)
    while not run.await_termination(0.1):
        if over.is_set():
            run.stop(drain=True)


def run_spark(generation: Generation, over: threading.Event) -> None:
    """The rows go through a count per key, and the counts of each batch into the table."""
    from evenflow.bench.spark_latency import PacedRows
    from evenflow.bench.streaming_query import session_settings
    from evenflow.world.spark.cluster.session import embedded_session, stop_session

    spark = embedded_session(generation.master, "evenflow-bench-restart")
    try:
        spark.dataSource.register(PacedRows)
        with session_settings(spark, generation.sites, "hdfs"):
            options = {"rate": str(generation.rate), "keys": str(KEYS), "partitions": str(SOURCE_PARTITIONS)}
            rows = spark.readStream.format(PacedRows.name()).options(**options).load()
            counts = rows.groupBy("key").count().writeStream.outputMode("update").foreachBatch(_into(generation.database))
            query = counts.option("checkpointLocation", generation.location).start()
            print("running", flush=True)
            while not over.is_set() and not query.awaitTermination(1):
                pass
            query.stop()
    finally:
        stop_session(spark)


def _into(database: str) -> Any:
    def write(results: Any, batch: int) -> None:
        found = [(batch, row["key"], row["count"]) for row in results.collect()]
        with closing(sqlite3.connect(database, timeout=10)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS rows (batch INTEGER, key INTEGER, n INTEGER)")
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", found)
            connection.commit()

    return write


def new_home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="evenflow-restart-", ignore_cleanup_errors=True)


if __name__ == "__main__":
    main(Generation(**json.loads(sys.argv[1])))
