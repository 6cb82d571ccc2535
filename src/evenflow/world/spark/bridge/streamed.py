"""A streaming DataFrame in front of a run with a checkpoint location: Spark writes its batches below the location as they come (J5).

    LOCATION/streamed/BOX/  the batches, see `evenflow.sources.spooled`
    LOCATION/spark/BOX/     what Spark itself notes of its query: how far each batch goes

Spark's own checkpoint moves on when a batch is named, and so durable: what it has answered for is never asked of it again. A batch that was
being written when the driver died is made again by the next one from what Spark had noted of it, and counts once, since who names it first
has named it. That driver goes on with both, and a stale one finds the names taken.

The query lives as long as the run. If it ends before, since somebody has stopped all queries of the session, another driver's took its
notes, or something failed, it is started again and goes on where it was: its end would close windows that are not whole.

What every checkpoint that is kept has behind it is deleted as new batches come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from evenflow.availability.entries import Completed
from evenflow.availability.retained import RETAINED
from evenflow.coordinator.events import RunBroken
from evenflow.errors import LocationError
from evenflow.sources.spooled import Piece, Spool, SpooledSource
from evenflow.store.journal import is_near
from evenflow.store.objects import Store
from evenflow.store.opening import explain, open_store
from evenflow.world.locations.streamed import position_in
from evenflow.world.spark.bridge.ingest import ingest_error
from evenflow.world.spark.bridge.pushing import conform
from evenflow.world.spark.cluster.ship import on_executor, ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from evenflow.world.spark.driver.driver_loop import DriverLoop
    from evenflow.world.spark.driver.in_place import Generations

RESULT: Final = "name string, rows bigint, digest string"
NOTES: Final = "spark"
LOOK_S: Final = 0.1
TRIES: Final = 4
"""So often in a row a query may end without a batch, at a store that answers: then the run ends."""
LIVED_S: Final = 10.0
"""A query that somebody has stopped after so long counts as one with a batch, though no rows came."""
PAUSE_S: Final = 0.5
"""Before it is started again; it doubles. A driver that was replaced finds that out within two seconds, and until then its query may be in
the way of its successor's, since Spark lets only one use its notes."""
PAUSE_MAX_S: Final = 4.0
MOST_SAID: Final = 1_000

log = logging.getLogger("evenflow")


def spooling(generations: Generations, coordinator: DriverLoop, spark: SparkSession) -> list[Spooler]:
    """Those that write what the streaming DataFrames of a run give, from now on until it is over. Raises LocationError."""
    layout = generations.newest.layout
    if generations.over.is_set():
        return []
    found = [(segment.id, layout.sources.get(segment.source or "")) for segment in layout.segments]
    return [Spooler(segment, one, generations, coordinator, spark) for segment, one in found if isinstance(one, SpooledSource)]


class Spooler:
    """Of one source. segment: its ingress segment. Its thread is made in the thread that starts the run, so that it inherits the user's job
    properties."""

    def __init__(self, segment: int, source: SpooledSource, generations: Generations, coordinator: DriverLoop, spark: SparkSession) -> None:
        from pyspark import InheritableThread

        self._segment, self._source, self._spark = segment, source, spark
        self._generations, self._coordinator = generations, coordinator
        self._store = open_store(source.url)
        self._spool, self._notes = Spool(self._store, source.folder), f"{NOTES}/{source.folder}"
        self._frame: DataFrame = source.dataframe
        self._schema = source.schema.serialize().to_pybytes()
        self._archive = ship(spark.sparkContext)
        self._forgotten: Completed | None = None
        self._written = 0
        check_notes(self._store, self._spool, self._notes)
        self._thread = InheritableThread(target=self._serve, session=spark)
        self._thread.daemon = True
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        """Until the run is over: a query that has ended goes on from its notes, whatever has ended it. None ends by itself."""
        tries, pause_s = 0, PAUSE_S
        while True:
            before, began_s = self._written, time.monotonic()
            error = self._stream()
            if self._generations.over.is_set():
                return
            if self._written > before or (error is None and time.monotonic() - began_s > LIVED_S):
                tries, pause_s = 0, PAUSE_S
            tries += self._is_answered()
            if tries == TRIES:
                break
            said = "somebody has stopped it" if error is None else f"{type(error).__name__}: {str(error)[:MOST_SAID]}"
            log.warning("Spark's query of %s has ended, and is started again: %s", self._source.folder, said)
            self._generations.over.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        made = ingest_error(self._source.folder, error or RuntimeError(f"somebody has stopped its query {TRIES} times in a row"))
        self._coordinator.call_soon(lambda: self._generations.newest.handle(RunBroken(made)))

    def _stream(self) -> Exception | None:
        """Run the DataFrame's query until it ends, or the run does. Returns what it failed of: None if somebody has stopped it."""
        query = None
        try:
            writer = self._frame.writeStream.foreachBatch(lambda frame, batch: self._write(frame, int(batch)))
            writer = writer.option("checkpointLocation", notes_at(self._store, self._notes))
            query = writer.queryName(f"evenflow-{self._generations.newest.run_id}-{self._source.folder}").start()
            while query.isActive and not self._generations.over.wait(LOOK_S):
                pass
            return None if self._generations.over.is_set() else query.exception()
        except Exception as error:  # Spark's own, of any kind: its session may be gone, too.
            return error
        finally:
            with suppress(Exception):
                if query is not None and query.isActive:
                    query.stop()

    def _is_answered(self) -> bool:
        """The store answers, so it was not that. One that does not is waited for as long as it takes, as the journal does."""
        try:
            self._store.names(f"{self._notes}/offsets/")
        except OSError:
            return False
        return True

    def _write(self, frame: DataFrame, number: int) -> None:
        """One of Spark's batches. One that was named before a driver died is asked for again, and is there. Raises LocationError behind the
        end of the stream, where nobody would read it."""
        found = self._spool.batch(number)
        if found is not None and found.ended:
            raise LocationError(
                f"{self._store.url}: batch {number} of {self._spool.folder} is the stream's end, and no row comes behind it"
            )
        if found is None:
            task = on_executor(
                self._archive, "evenflow.world.spark.bridge.streamed", "write", self._source.url, self._source.folder, number, self._schema
            )
            made = frame.mapInArrow(lambda given: task(given), RESULT).collect()
            self._spool.name(number, [Piece(row["name"], row["rows"], row["digest"]) for row in made])
        self._written += 1
        self._forget()

    def _forget(self) -> None:
        """What the oldest checkpoint that is kept has behind it goes, once for each."""
        retained = self._generations.newest.machine.checkpointing.retained
        if len(retained) < RETAINED or retained[0] == self._forgotten:
            return
        self._forgotten = retained[0]
        try:
            self._spool.forget(position_in(retained[0], self._segment))
        except (OSError, LocationError) as error:
            log.warning("rows that nobody needs stay in %s until the next checkpoint is whole: %r", self._spool.folder, error)


def check_notes(store: Store, spool: Spool, notes: str) -> None:
    """Spark counts its batches anew where its notes are lost. Raises LocationError if batches are there and no notes."""
    try:
        lost = bool(spool.numbers()) and not store.names(f"{notes}/offsets/")
    except OSError as error:
        raise LocationError(explain("look at what Spark has written", store.url, error)) from error
    if lost:
        raise LocationError(
            f"checkpoint location {store.url}: there are rows of a streaming DataFrame in {spool.folder}, and Spark's notes of how far it "
            f"was, {notes}, are gone: start at a location of its own"
        )


def notes_at(store: Store, notes: str) -> str:
    """A place below the location, as Hadoop names it: a path alone would be one of the cluster's usual file system."""
    if is_near(store):
        return (Path(store.url) / notes).as_uri()
    scheme, _, place = store.url.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{place.rstrip('/')}/{notes}"


# ---------------------------------------------------------------- in a task of Spark


def write(url: str, folder: str, number: int, schema: bytes, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's rows of a batch. Yields a row for each object. Raises SchemaChanged, OSError."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    declared, task = pa.ipc.read_schema(pa.py_buffer(schema)), f"{context.partitionId():06d}-{context.attemptNumber():02d}"
    batches = (conform(batch, declared, folder) for batch in given)
    pieces = [piece._asdict() for piece in Spool(open_store(url), folder).put(number, task, batches)]
    yield pa.RecordBatch.from_pylist(pieces, pa.schema([("name", pa.string()), ("rows", pa.int64()), ("digest", pa.string())]))


__all__ = ["Spooler", "spooling", "write"]
