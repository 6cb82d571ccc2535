"""Rows of a Spark DataFrame into the ingress (protocol I2): the driver's half. What runs in Spark's tasks is in `pushing.py`.

A batch DataFrame is one Spark job; a streaming one a query whose every batch is one. Each task sends its partition's rows to the site that
leads ingress partition `partition modulo n`, where they are staged until the task has finished. When all tasks of a batch have ended well,
the sites hear that the batch is whole; when there will be no other, that the source has ended. All sites hear it and remember it, since any
of them may lead later on. With replicas a task ends well when its rows are settled, so that the word never overtakes them.

A streaming query never ends by itself. Where somebody stops it, some tasks of its last batch may have given their rows and others not: the
run has failed, since the end of its source would close windows that are not whole.

A job is never run again from here: another run of it may cut its rows into other tasks. Tasks find the successor of a site that is lost by
themselves, and a task that is lost itself is Spark's to run again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from evenflow.coordinator.events import RunBroken
from evenflow.errors import EvenflowError, SchemaChanged, SourceError
from evenflow.sources.then import awaited, followed
from evenflow.world.owned import OwnedDirectory
from evenflow.world.spark.bridge.pushing import Ingresses, first_leaders
from evenflow.world.spark.cluster.job_groups import cancel_until_over
from evenflow.world.spark.cluster.leftovers import INGEST
from evenflow.world.spark.cluster.located import driver_host
from evenflow.world.spark.cluster.ship import on_executor, ship
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.run_loop import RunLoop
from evenflow.world.spark.net import control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULT: Final = "rows bigint"


def ingesting(run: RunLoop, coordinator: DriverLoop, spark: SparkSession) -> list[Ingest]:
    """All pushed sources of a run. They begin when it has started, those that wait for another one when that has given everything."""
    sources = run.layout.sources
    ingests: dict[str, Ingest] = {}
    for name in (name for name, source in sources.items() if source.pushed):
        ingests[name] = Ingest(spark, coordinator, run, name)
        run.when_over(ingests[name].end)  # At once: another one may not be made.
    for name, ingest in ingests.items():
        first = awaited(sources[name])
        (run.on_started if first is None else ingests[first].on_given).append(ingest.begin)
    return list(ingests.values())


class Ingest:
    """One pushed source of one run. `begin` when the sites have started, `end` when the run is over; both return at once.

    on_given: called when all its rows have been given, by its thread.

    Its thread is made at once, in the thread that starts the run, so that it inherits the user's job properties; then it waits for `begin`.
    """

    def __init__(self, spark: SparkSession, coordinator: DriverLoop, run: RunLoop, source: str) -> None:
        self._spark, self._coordinator, self._run, self._source = spark, coordinator, run, source
        from pyspark import InheritableThread

        description = run.layout.sources[source]
        self._frame: DataFrame = description.dataframe
        self._streaming = description.streaming
        self._schema = description.schema.serialize().to_pybytes()
        self._group = f"evenflow-{coordinator.engine}-ingest-{run.number}-{source}"
        self._archive = ship(spark.sparkContext)
        self.on_given: list[Callable[[], None]] = []
        self._settling = run.numbers.replicas > 1 or followed(run.layout.sources, source)
        self._ending = threading.Event()
        self._begun = threading.Event()
        self._newest = -1
        self._thread = InheritableThread(target=self._serve, session=spark)
        self._thread.daemon = True
        self._thread.start()

    def begin(self) -> None:
        self._begun.set()

    def end(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            self._begun.set()
            cancel_until_over(self._spark, self._group, self._thread)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        self._begun.wait()
        try:
            if self._ending.is_set():
                return
            if self._frame is None:
                raise SourceError(f"box {self._source!r}: the dataflow was loaded from JSON and has no DataFrame; build it with from_spark")
            if self._streaming:
                self._stream()
                return
            self._push(self._frame, 0, in_group=True)
            self._tell(ended=True)
            for begin in self.on_given:
                begin()
        except Exception as error:
            if not self._ending.is_set():
                made = ingest_error(self._source, error)
                self._coordinator.call_soon(lambda: self._run.handle(RunBroken(made)))

    def _push(self, frame: DataFrame, batch: int, in_group: bool) -> None:
        """One Spark job: push every row of the frame, then tell the sites that the batch is whole."""
        context = self._spark.sparkContext
        if in_group:
            context.setJobGroup(self._group, f"Evenflow ingest {self._source}", interruptOnCancel=False)
            context.setLocalProperty("spark.scheduler.pool", "evenflow-ingest")
        task = on_executor(self._archive, "evenflow.world.spark.bridge.pushing", "push", self._ingresses(), batch, self._schema)
        frame.mapInArrow(lambda batches: task(batches), RESULT).collect()
        self._newest = batch
        self._tell(ended=False)

    def _ingresses(self) -> Ingresses:
        """Where the rows go, as of now."""
        run, coordinator = self._run, self._coordinator
        host = driver_host(self._spark.sparkContext)
        leaders = first_leaders(run, self._source, coordinator.sites)
        return Ingresses(run.number, self._source, leaders, (host, coordinator.port), self._settling, coordinator.secret)

    def _tell(self, ended: bool) -> None:
        message = control.Pushed(self._run.number, self._source, self._newest, ended)
        self._coordinator.call_soon(lambda: self._run.pushed(message))

    def _stream(self) -> None:
        """Run the DataFrame's query until the run is over, or drains and takes nothing in. Raises what the query fails of, and SourceError
        if somebody has stopped it."""
        checkpoints = OwnedDirectory(INGEST) if self._local() else None
        writer = self._frame.writeStream.foreachBatch(lambda frame, batch: self._push(frame, int(batch), in_group=False))
        if checkpoints is not None:
            writer = writer.option("checkpointLocation", str(checkpoints.path))
        query = writer.queryName(f"{self._group}").start()
        try:
            while query.isActive and not self._ending.is_set():
                self._ending.wait(0.1)
            if self._ending.is_set():
                query.stop()
                return
            error = query.exception()
            if error is not None:
                raise error
            if not self._run.machine.draining:
                raise SourceError(
                    f"box {self._source!r}: somebody has stopped Spark's query of it, {self._group!r}, and what its last batch lacks is "
                    "not known: stop the run instead; with a checkpoint location the query goes on where it was"
                )
        finally:
            if query.isActive:
                query.stop()
            if checkpoints is not None:
                checkpoints.remove()

    def _local(self) -> bool:
        """Whether a directory of this machine can hold a query's checkpoints; else Spark's own default for them counts."""
        return str(self._spark.sparkContext.master).startswith("local")


def ingest_error(source: str, error: Exception) -> EvenflowError:
    """The user's error for an ingest job that failed for good."""
    if isinstance(error, SourceError):
        return error
    text = str(error)
    for line in text.splitlines():
        if "SchemaChanged: " in line:
            return SchemaChanged(line.split("SchemaChanged: ", 1)[1])
    made = SourceError(f"box {source!r}: the Spark job that reads the source failed: {text[:4000]}")
    made.__cause__ = error
    return made
