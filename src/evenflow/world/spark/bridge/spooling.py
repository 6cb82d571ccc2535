"""DataFrames in front of a run with a checkpoint location: Spark writes their rows below the location once, and sites read them there.

A batch one is written before the run begins. Of a streaming one the batches come as Spark makes them, see `bridge.streamed`.

    LOCATION/backfill/BOX.json                the files that count, and what is in them
    LOCATION/backfill/BOX-NONCE/TASK.parquet  what an attempt of a task has written

A DataFrame gives other rows, or the same in another order, whenever it is asked again, so no restart could go on in its middle. Files
stay. What counts is the object that names them, which is made once and only if there is none: an attempt that Spark gave up is in none, and
a driver that dies before it leaves files that nobody reads. A later start does not ask the DataFrame at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as arrow_fs

from evenflow.errors import LocationError
from evenflow.query.kept import batches, kept, streams
from evenflow.query.network import Box, Network
from evenflow.sources.replay import ReplaySource
from evenflow.sources.source import Source
from evenflow.sources.spooled import SpooledSource
from evenflow.store.location import named
from evenflow.store.opening import explain, open_store
from evenflow.world.spark.bridge.pushing import conform
from evenflow.world.spark.cluster.job_groups import grouped
from evenflow.world.spark.cluster.placement import check_slots
from evenflow.world.spark.cluster.ship import on_executor, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "backfill"
MOST_LIST_BYTES: Final = 1 << 26
RESULT: Final = "file string, rows bigint"


def spooled(network: Network, url: str, spark: SparkSession, executors: int) -> Network:
    """The network with files instead of its DataFrames. Batch ones are written now if they were not before.

    executors: those that have a site. Raises QueryError, LocationError, ClusterError if no task slot is left, and what Spark raises.
    """
    found, live = batches(network), {box.name: _live(box, url) for box in streams(network)}
    if not found and not live:
        return network
    kept(network, live | {box.name: _nowhere(box) for box in found})  # What is wrong with the query is said before anything is written.
    return kept(network, live | {box.name: _files(box, url, spark, executors) for box in found})


def _live(box: Box, url: str) -> Source:
    return SpooledSource(_columns(box), _folder(box), url, _dataframe(box))


def _dataframe(box: Box) -> Any:
    """Raises LocationError if there is none."""
    dataframe = box.params["source"].dataframe
    if dataframe is None:
        raise LocationError(f"box {box.name!r}: the dataflow was loaded from JSON and has no DataFrame; build it with from_spark")
    return dataframe


def _nowhere(box: Box) -> Source:
    return ReplaySource(("nowhere",), "parquet", _columns(box), "ts", None)


def _folder(box: Box) -> str:
    """Of no other box, whatever is in their names."""
    return f"{named(box.name)[:60]}-{hashlib.sha256(box.name.encode()).hexdigest()[:8]}"


def _columns(box: Box) -> pa.Schema:
    """As `Source.schema` of the DataFrame itself; of one that waits, of that."""
    schema: pa.Schema = box.params["source"].schema
    return schema


def _files(box: Box, url: str, spark: SparkSession, executors: int) -> Source:
    store, name = open_store(url), f"{FOLDER}/{_folder(box)}.json"
    try:
        try:
            said = json.loads(store.get(name, MOST_LIST_BYTES))
        except FileNotFoundError:
            written = json.dumps(_written(box, url, spark, executors)).encode()
            try:
                store.create(name, written)
            except FileExistsError:
                pass  # Another driver was faster, and its files count.
            said = json.loads(store.get(name, MOST_LIST_BYTES))
        files = tuple(f"{_place(url)}/{file}" for file in said["files"])
    except OSError as error:
        raise LocationError(explain(f"keep the rows of {box.name!r} in {name}", url, error)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LocationError(f"checkpoint location {url}: {name} does not say which files it means; it was altered or cut off") from error
    return ReplaySource(files, "parquet", _columns(box), "ts", None)


def _written(box: Box, url: str, spark: SparkSession, executors: int) -> dict[str, Any]:
    """Let Spark write the rows. Returns what names them."""
    dataframe = _dataframe(box)
    check_slots(spark.sparkContext, executors, f"box {box.name!r}, whose rows Spark writes,")
    folder = f"{FOLDER}/{_folder(box)}-{uuid.uuid4().hex[:12]}"
    schema = _columns(box).serialize().to_pybytes()
    task = on_executor(
        ship(spark.sparkContext), "evenflow.world.spark.bridge.spooling", "write", f"{_place(url)}/{folder}", schema, box.name
    )
    with grouped(spark, f"Evenflow writes the rows of {box.name}"):
        made = dataframe.mapInArrow(lambda given: task(given), RESULT).collect()
    files = sorted((row["file"], row["rows"]) for row in made)
    if not files:  # A DataFrame without a single partition.
        empty = _write(f"{_place(url)}/{folder}", "000000.parquet", _columns(box), box.name, ())
        files = [("000000.parquet", empty)]
    return {"version": 1, "files": [f"{folder}/{file}" for file, _ in files], "rows": sum(rows for _, rows in files)}


def write(place: str, schema: bytes, source: str, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write a task's rows as a file. Yields its name, and how many they were. Raises SchemaChanged, OSError."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    name = f"{context.partitionId():06d}-{context.taskAttemptId()}.parquet"
    rows = _write(place, name, pa.ipc.read_schema(pa.py_buffer(schema)), source, given)
    yield pa.record_batch({"file": pa.array([name]), "rows": pa.array([rows], pa.int64())})


def _write(place: str, name: str, schema: pa.Schema, source: str, given: Iterable[pa.RecordBatch]) -> int:
    with _opened(place, name) as out:
        rows = 0
        with pq.ParquetWriter(out, schema) as writer:
            for batch in given:
                writer.write_batch(conform(batch, schema, source))
                rows += batch.num_rows
        if not urlsplit(place).scheme:
            out.flush()
            os.fsync(out.fileno())
    return rows


def _opened(place: str, name: str) -> Any:
    if not urlsplit(place).scheme:
        os.makedirs(place, exist_ok=True)
        return open(f"{place}/{name}", "wb")
    store, path = arrow_fs.FileSystem.from_uri(place)
    return store.open_output_stream(f"{path}/{name}")


def _place(url: str) -> str:
    """The location as pyarrow names it: a path, or a URI of S3. Raises LocationError."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return os.path.abspath(os.path.expanduser(url if not parts.scheme else unquote(parts.path)))
    if parts.scheme in ("s3", "s3a"):
        return parts._replace(scheme="s3").geturl().rstrip("/")
    raise LocationError(
        f"checkpoint location {url}: the rows of a batch DataFrame are kept in a directory or in S3 only; write them to files, and let "
        "those be the source"
    )


__all__ = ["spooled", "write"]
