"""Where results can go. Each function returns a description for `Stream.to`.

A sink's file says how rows are stored, and what makes storing them again harmless. It knows no epoch's frames, no replicas
and no plan: who calls it, and which rows are new, is the business of sites and worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Literal, cast

import pyarrow as pa

from evenflow.sinks.callback import CallbackSink, ConsoleSink, DiscardSink, SparkSink
from evenflow.sinks.delta import DeltaSink
from evenflow.sinks.iceberg import IcebergSink
from evenflow.sinks.kafka import KafkaSink
from evenflow.sinks.memory import MemorySink
from evenflow.sinks.parquet import ParquetSink, read_committed
from evenflow.sinks.shared_parquet import SharedParquetSink
from evenflow.sinks.sink import Sink, Where, Writer
from evenflow.sinks.stream import StreamSink
from evenflow.sinks.table import TableSink
from evenflow.sources.description import description_from_json
from evenflow.sources.kafka_client import as_options
from evenflow.sources.settings import as_settings, names_of
from evenflow.stream.declared import fitted, number

KINDS: Final[Mapping[str, type[Sink]]] = {
    s.kind: s
    for s in (
        CallbackSink, ConsoleSink, DeltaSink, DiscardSink, IcebergSink, KafkaSink, MemorySink, ParquetSink, SharedParquetSink,
        SparkSink, StreamSink, TableSink,
    )
}  # fmt: skip
UNNAMED: Final = count(1)


def parquet(
    path: str, *, partition_by: str | Sequence[str] = (), commit_s: float | None = None, commit_interval_ms: int = 1000,
    file_s: float | None = None, writers: int | None = None, retries: int = 5, backoff_ms: int = 100,
) -> ParquetSink:  # fmt: skip
    """A directory of Parquet files in which whole epochs become visible, each exactly once, to any reader (protocol O2).

    path: a local directory that all sites see, or a URI that pyarrow knows (s3://, gs://, hdfs://). partition_by: columns with few values,
    for each of which there is a folder (day=2026-11-23); a commit is then a file in each. commit_s: seconds between two commits, by the
    epochs' stamps; more makes fewer and larger files. commit_interval_ms: the same in milliseconds, if there is no commit_s. file_s: the
    commits of so many seconds become one file, which other readers see then; `read` sees each commit at once. None: each is a file.
    writers: partitions that write in parallel; None: one per site.
    """
    if commit_s is not None:
        seconds = fitted("parquet sink", "commit_s", commit_s, number(None, 1e6))
        commit_interval_ms = max(1, round(seconds * 1000))
    interval_ms = 0 if file_s is None else max(1, round(fitted("parquet sink", "file_s", file_s, number(None, 1e6)) * 1000))
    return ParquetSink(path, commit_interval_ms, writers, names_of(partition_by), interval_ms, retries=retries, backoff_ms=backoff_ms)


def shared_parquet(
    path: str, *, compression: Literal["zstd", "snappy", "none"] = "zstd", retries: int = 5, backoff_ms: int = 100
) -> SharedParquetSink:
    """A directory of Parquet files that all regions of a group write to as one run (`ef.group`): each epoch with rows is a file, made once.

    path: a directory that all regions see, s3://bucket/place (extra `s3`) or webhdfs://host:port/place. compression: of the files. The
    drivers write; epochs should be wide enough for files of a useful size.
    """
    return SharedParquetSink(path, compression, retries=retries, backoff_ms=backoff_ms)


def delta(
    path: str, *, partition_by: str | Sequence[str] = (), commit_s: float = 10.0, writers: int | None = None,
    options: Mapping[str, str] | str | None = None, retries: int = 5, backoff_ms: int = 100,
) -> DeltaSink:  # fmt: skip
    """A Delta table, to which whole epochs are added, each exactly once (extra `delta`, in the driver and on the executors).

    path: a directory that all sites see, or a URI such as s3://bucket/table. The table is made if it is not there; one that is there must
    have the columns of the rows. partition_by: columns with few values, such as a date, by which a table that is made is divided. commit_s:
    seconds between two commits of the table, by the epochs' stamps; less shows rows sooner, in more and smaller files. writers: partitions
    that write in parallel, each a file of its own; None: one per site. options: of the store, as deltalake names them (AWS_REGION, ...).
    """
    settings = as_settings(options, "a Delta table")
    return DeltaSink(path, commit_s, names_of(partition_by), writers, settings, retries=retries, backoff_ms=backoff_ms)


def iceberg(
    table: str, *, catalog: str = "default", partition_by: str | Sequence[str] = (), commit_s: float = 10.0, writers: int | None = None,
    options: Mapping[str, str] | str | None = None, retries: int = 5, backoff_ms: int = 100,
) -> IcebergSink:  # fmt: skip
    """An Iceberg table, to which whole epochs are added, each exactly once (extra `iceberg`, in the driver and on the executors).

    table: namespace.name in the catalog. It is made if it is not there; one that is there must have the columns of the rows. catalog: its
    name in PyIceberg's configuration. options: of the catalog besides, or instead of a configuration (type, uri, warehouse, s3.endpoint,
    ...). partition_by: columns with few values, or years(c), months(c), days(c), hours(c) of a time, by which a table that is made is
    divided. Others as for `delta`.
    """
    settings = as_settings(options, "an Iceberg catalog")
    return IcebergSink(table, catalog, commit_s, names_of(partition_by), writers, settings, retries=retries, backoff_ms=backoff_ms)


def kafka(
    servers: str, topic: str, *, key: str | None = None, format: Literal["json", "raw"] = "json", headers: str | None = None,
    name: str | None = None, options: Mapping[str, str] | str | None = None, retries: int = 5, backoff_ms: int = 100,
) -> KafkaSink:  # fmt: skip
    """Messages of a Kafka topic, a transaction for each epoch, each committed exactly once in a run (read them with read_committed).

    servers: "host:port,host:port". key: the column whose values are the messages' keys. format: "json", an object of all columns; "raw",
    the columns `key` and `value`. headers: the column that has the messages' headers, an array of structs of key and value, or a map; it is
    in no object. name: unlike that of any other sink of the same run that writes to this topic. options: librdkafka's.
    """
    named = name or f"{topic}-{next(UNNAMED)}"
    return KafkaSink(servers, topic, named, format, key, as_options(options), headers, retries=retries, backoff_ms=backoff_ms)


def memory(name: str | None = None) -> MemorySink:
    """Keeps results in the driver: `.rows()` is a pa.Table, `.epochs()` a list of (epoch, pa.RecordBatch)."""
    return MemorySink(name or f"memory-{next(UNNAMED)}")


def callback(function: Callable[[int, pa.RecordBatch], object], *, retries: int = 5, backoff_ms: int = 100) -> CallbackSink:
    """Calls `function(epoch, batch)` in the driver, in epoch order, again if it raises: at least once."""
    return CallbackSink(function, retries=retries, backoff_ms=backoff_ms)


def console(limit: int = 20, stream: Literal["stdout", "stderr"] = "stdout") -> ConsoleSink:
    """Prints the first `limit` rows of every epoch in the driver."""
    return ConsoleSink(limit, stream)


def spark() -> SparkSink:
    """Results are read by a Spark streaming query, whose offsets are (run, epoch)."""
    return SparkSink()


def stream(
    port: int, *, host: str = "127.0.0.1", secret_file: str | None = None, keep_s: float = 60.0, keep_mb: int = 256,
    tls_certificate: str | None = None, tls_key: str | None = None,
) -> StreamSink:  # fmt: skip
    """Epochs for whoever subscribes (`ef.subscribe`, `evenflow subscribe`), from a port of the driver. The run waits for no subscriber.

    port: at which the driver listens. host: of which interface; another one than this machine's own needs TLS. secret_file: a file whose
    text subscribers have to know, too, 16 characters at least; None: the text is the driver's environment variable EVENFLOW_STREAM_SECRET.
    keep_s, keep_mb: for how long, in seconds, and how much is kept of what is finished: who was away for longer has lost its place.
    tls_certificate, tls_key: files in PEM in the driver.
    """
    return StreamSink(port, host, secret_file, keep_s, keep_mb, tls_certificate, tls_key)


def discard() -> DiscardSink:
    """Results are counted and dropped where they are produced."""
    return DiscardSink()


def table(
    database: str | Callable[[], Any], table: str, key: str | Sequence[str] = (), *, overwrite: bool = False, retries: int = 5,
    backoff_ms: int = 100,
) -> TableSink:  # fmt: skip
    """A table of a database. Each epoch is one transaction, which also notes the epoch's number, so that it counts once (protocol O2).

    database: the file of an SQLite database, the URL of a PostgreSQL database (postgresql://user@host/name, extra `postgres`), or a
    function that gives a connection of another one (DB-API). The driver connects. The table is made if it is not there. key: columns by
    which a row takes the place of the one before, such as those of a group whose newest row is its result; without a key every row stays.
    Changes of a changelog are carried out on the rows of those keys. overwrite: an epoch with rows takes the place of all that is there, as
    a stream of whole tables (`Stream.complete`) wants it.
    """
    names = tuple(name.strip() for name in key.split(",")) if isinstance(key, str) and key else () if key == "" else key
    return TableSink(database, table, cast(Any, names), overwrite, retries=retries, backoff_ms=backoff_ms)


def from_json(data: Mapping[str, Any]) -> Sink:
    """The sink that `Sink.to_json` described. Raises QueryError for an unknown kind."""
    sink: Sink = description_from_json(KINDS, data, "sink")
    return sink


__all__ = [
    "CallbackSink", "ConsoleSink", "DeltaSink", "DiscardSink", "IcebergSink", "KafkaSink", "MemorySink", "ParquetSink", "SharedParquetSink",
    "Sink", "SparkSink", "StreamSink", "TableSink", "Where", "Writer", "callback", "console", "delta", "discard", "from_json", "iceberg",
    "kafka", "memory", "parquet", "read_committed", "shared_parquet", "spark", "stream", "table",
]  # fmt: skip
