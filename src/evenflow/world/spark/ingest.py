"""Rows of a Spark DataFrame into the ingress (protocol I2): the driver's half, and what runs in Spark's tasks.

A batch DataFrame is one Spark job; a streaming one a query whose every batch is one. Each task sends its partition's rows to the site of
ingress partition `partition modulo n`, where they are staged until the task has finished. When all tasks of a batch have ended well, the
sites hear that the batch is whole; when there will be no other, that the source has ended.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenflow.coordinator.events import RunBroken
from evenflow.errors import EvenflowError, SchemaChanged, SourceError
from evenflow.world.spark import control
from evenflow.world.spark.channel import receive_message, send_message
from evenflow.world.spark.coordinator import Coordinator
from evenflow.world.spark.driving import DrivenRun
from evenflow.world.spark.handshake import Hello, dial
from evenflow.world.spark.ship import on_executor, ship
from evenflow.world.spark.wire import CONTROL, ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSH_ROWS_MAX: Final = 16_384
"""Rows per message of a task: large enough to cost little, small enough to enter an epoch without being cut."""
RESULT: Final = "rows bigint"

log = logging.getLogger("evenflow")


# ---------------------------------------------------------------- in Spark's tasks


def push(
    target: dict[str, Any], schema: bytes, addresses: list[tuple[str, int]], secret: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Push a task's rows and wait until the ingress has taken them. Yields one row: how many there were.

    target: run, source, query, batch. addresses: where the site of each ingress partition listens. Raises SchemaChanged, SourceError,
    OSError.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    declared = pa.ipc.read_schema(pa.py_buffer(schema))
    partition = context.partitionId()
    to = partition % len(addresses)
    hello: Hello = {"as": "push", "to": to, "partition": partition, "attempt": context.attemptNumber(), **target}
    rows = 0
    with dial(addresses[to], secret, hello) as sock:
        for batch in batches:
            for start in range(0, batch.num_rows, PUSH_ROWS_MAX):
                send_message(sock, ROWS, [conform(batch.slice(start, PUSH_ROWS_MAX), declared, str(target["source"])).serialize()])
            rows += batch.num_rows
        send_message(sock, CONTROL, [json.dumps({"ask": "finish"}).encode()])
        receive_message(sock)
    yield pa.record_batch({"rows": pa.array([rows], pa.int64())})


def conform(batch: pa.RecordBatch, declared: pa.Schema, source: str) -> pa.RecordBatch:
    """The batch with the declared schema; its types may differ in what they are called only (a zone's name, a large string).

    Raises SchemaChanged.
    """
    if batch.schema.equals(declared):
        return batch
    if batch.schema.names != declared.names:
        raise SchemaChanged(f"source {source!r}: the columns are now {batch.schema.names}, declared were {declared.names}")
    columns = []
    for field, column in zip(declared, batch.columns, strict=True):
        if not same_kind(column.type, field.type):
            raise SchemaChanged(f"source {source!r}: column {field.name!r} is now {column.type}, declared was {field.type}")
        if not field.nullable and column.null_count:
            raise SchemaChanged(f"source {source!r}: column {field.name!r} has nulls now, declared was that it has none")
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=declared)


def same_kind(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of `found` are values of `declared` under another name."""
    if found == declared:
        return True
    types = pa.types
    if types.is_timestamp(found) and types.is_timestamp(declared):
        return (found.tz is None) == (declared.tz is None)
    if (types.is_string(found) or types.is_large_string(found)) and types.is_string(declared):
        return True
    if (types.is_binary(found) or types.is_large_binary(found)) and types.is_binary(declared):
        return True
    return types.is_list(found) and types.is_list(declared) and same_kind(found.value_type, declared.value_type)


# ---------------------------------------------------------------- in the driver


class Ingest:
    """One pushed source of one run. `begin` when the sites have started, `end` when the run is over; both return at once.

    Its thread is made at once, in the thread that starts the run, so that it inherits the user's job properties; then it waits for `begin`.
    """

    def __init__(self, spark: SparkSession, coordinator: Coordinator, run: DrivenRun, source: str) -> None:
        self._spark, self._coordinator, self._run, self._source = spark, coordinator, run, source
        from pyspark import InheritableThread

        description = run.layout.sources[source]
        self._frame: DataFrame = description.dataframe
        self._streaming = description.streaming
        self._schema = description.schema.serialize().to_pybytes()
        self._group = f"evenflow-{coordinator.engine}-ingest-{run.number}-{source}"
        self._archive = ship(spark.sparkContext)
        self._ending = threading.Event()
        self._begun = threading.Event()
        self._thread = InheritableThread(target=self._serve, session=spark)
        self._thread.daemon = True
        self._thread.start()

    def begin(self) -> None:
        self._begun.set()

    def end(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            self._begun.set()
            threading.Thread(target=self._cancel, daemon=True, name="evenflow-ingest-end").start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _cancel(self) -> None:
        try:
            self._spark.sparkContext.cancelJobGroup(self._group)
        except Exception as error:
            log.debug("while an ingest was stopped: %r", error)  # The JVM may be gone already.

    def _serve(self) -> None:
        self._begun.wait()
        try:
            if self._ending.is_set():
                return
            if self._frame is None:
                raise SourceError(f"box {self._source!r}: the dataflow was loaded from JSON and has no DataFrame; build it with from_spark")
            if self._streaming:
                self._stream()
            else:
                self._push(self._frame, self._source, 0, in_group=True)
            self._tell(-1, ended=True)
        except Exception as error:
            if not self._ending.is_set():
                made = ingest_error(self._source, error)
                self._coordinator.call_soon(lambda: self._run.handle(RunBroken(made)))

    def _push(self, frame: DataFrame, query: str, batch: int, in_group: bool) -> None:
        """One Spark job: push every row of the frame, then tell the sites that the batch is whole."""
        context = self._spark.sparkContext
        if in_group:
            context.setJobGroup(self._group, f"Evenflow ingest {self._source}", interruptOnCancel=False)
            context.setLocalProperty("spark.scheduler.pool", "evenflow-ingest")
        target = {"run": self._run.number, "source": self._source, "query": query, "batch": batch}
        task = on_executor(
            self._archive, "evenflow.world.spark.ingest", "push", target, self._schema, self._addresses(), self._coordinator.secret
        )
        frame.mapInArrow(lambda batches: task(batches), RESULT).collect()
        self._tell(batch, ended=False)

    def _addresses(self) -> list[tuple[str, int]]:
        """Where the site of each ingress partition listens."""
        segment = next(s for s in self._run.layout.segments if s.source == self._source)
        return [self._coordinator.sites[leader.site].address for leader in self._run.machine.membership.leaders[segment.id]]

    def _tell(self, batch: int, ended: bool) -> None:
        message = control.Pushed(self._run.number, self._source, batch, ended)
        self._coordinator.call_soon(lambda: self._coordinator.send_all(message))

    def _stream(self) -> None:
        """Run the DataFrame's query until it ends by itself (a source that ends) or the run does."""
        checkpoints = tempfile.mkdtemp(prefix="evenflow-ingest-") if self._local() else None
        writer = self._frame.writeStream.foreachBatch(lambda frame, batch: self._push(frame, self._source, int(batch), in_group=False))
        if checkpoints is not None:
            writer = writer.option("checkpointLocation", checkpoints)
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
        finally:
            if query.isActive:
                query.stop()
            if checkpoints is not None:
                shutil.rmtree(checkpoints, ignore_errors=True)

    def _local(self) -> bool:
        """Whether a directory of this machine can hold a query's checkpoints; else Spark's own default for them counts."""
        return str(self._spark.sparkContext.master).startswith("local")


def ingest_error(source: str, error: Exception) -> EvenflowError:
    """The user's error for an ingest job that failed for good."""
    text = str(error)
    for line in text.splitlines():
        if "SchemaChanged: " in line:
            return SchemaChanged(line.split("SchemaChanged: ", 1)[1])
    made = SourceError(f"box {source!r}: the Spark job that reads the source failed: {text[:4000]}")
    made.__cause__ = error
    return made
