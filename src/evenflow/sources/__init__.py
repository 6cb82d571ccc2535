"""Where rows can come from. Each function returns a description for `Dataflow.source`.

A source's file says what its partitions are, how they are read, and from where they can be read again. It knows no epoch,
no replica and no plan: which rows form an epoch is decided where they enter a site.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from evenflow.errors import QueryError
from evenflow.sources import files
from evenflow.sources.cut import CutSource
from evenflow.sources.decoding import BINARY, described
from evenflow.sources.delta import DeltaSource, columns_of, table_at
from evenflow.sources.description import description_from_json, schema_from_json, schema_to_json
from evenflow.sources.dropped import dropped
from evenflow.sources.files import Format
from evenflow.sources.generator import GeneratorSource
from evenflow.sources.group import GroupSource
from evenflow.sources.iceberg import NAME, IcebergSource, table_of
from evenflow.sources.kafka import TEXT, KafkaSource, MessageFormat
from evenflow.sources.kafka_client import as_options
from evenflow.sources.kafka_topics import OFFSETS, Offsets, bounds, chosen
from evenflow.sources.memory import Given, MemorySource, split_batches
from evenflow.sources.messages import LineFormat
from evenflow.sources.nexmark import NexmarkSource
from evenflow.sources.nexmark_events import StreamName
from evenflow.sources.pace import FIRST_US, MOST_PARTITIONS
from evenflow.sources.packets import PacketsSource
from evenflow.sources.pushed import SparkSource, schema_of_dataframe
from evenflow.sources.replay import ReplaySource
from evenflow.sources.settings import as_settings, names_of
from evenflow.sources.source import Reader, Source
from evenflow.sources.spooled import SpooledSource
from evenflow.sources.table import TableSource
from evenflow.sources.tcp import TcpSource
from evenflow.sources.then import AfterSource, ChainSource
from evenflow.stream.declared import fitted, one_of, optional, text, whole
from evenflow.stream.declared import path as path_
from evenflow.stream.schema import as_schema

KINDS: Final[Mapping[str, type[Source]]] = {
    s.kind: s
    for s in (
        DeltaSource, GeneratorSource, GroupSource, IcebergSource, KafkaSource, MemorySource, NexmarkSource, PacketsSource, ReplaySource,
        SparkSource, TableSource, TcpSource,
    )
}  # fmt: skip


PATH: Final = path_("the path of a file or a directory, or a glob pattern, as text or as a Path")
FORMAT: Final = optional(one_of(*get_args(Format)))
PARTITIONS: Final = optional(whole(1, MOST_PARTITIONS))
Schema: TypeAlias = pa.Schema | str | Any
"""A pyarrow schema, or what PySpark takes as one: DDL or a StructType."""


def generator(
    rate: int | None = None,
    keys: int = 16384,
    distribution: Literal["uniform", "zipf"] = "uniform",
    s: float = 1.2,
    *,
    rows: int | None = None,
    seed: int = 0,
    partitions: int | None = None,
) -> GeneratorSource:
    """80-byte rows: key bigint, ts timestamp, value bigint 0..999, price double 0..1024, p0..p5 bigint.

    rate: rows/s of the whole source, None: as fast as they are taken. keys: key is 0..keys-1, uniform or Zipf(s), 0 the most
    frequent. rows: of the whole source, None: endless. partitions: None: one per site. Everything but ts is a function of (seed,
    partition, row); ts is the row's scheduled time, or, without a rate, a microsecond per row from a fixed time on.
    """
    return GeneratorSource(rate, keys, distribution, s, rows, seed, partitions)


def packets(
    rate: int | None = 20_000, hosts: int = 2000, *, seed: int = 0, rows: int | None = None, partitions: int | None = None
) -> PacketsSource:
    """Packet headers of made-up network traffic: ts, src, dst, sport, dport, proto, length, tcp_flags.

    rate: packets/s of the whole source, None: as fast as they are taken. hosts: clients, with a server for every ten. Other
    arguments as for `generator`. Both directions of a session are in the same partition, in order.
    """
    return PacketsSource(rate, hosts, seed, rows, partitions)


def nexmark(
    stream: StreamName = "bid",
    rate: int | None = None,
    *,
    events: int | None = None,
    seed: int = 0,
    event_rate: int | None = None,
    disorder: int = 1,
    start_us: int = FIRST_US,
    partitions: int | None = None,
) -> NexmarkSource:
    """One stream of the Nexmark auction: "person", "auction" or "bid", with the event time `dateTime`. Of 50 events 1, 3 and 46 are theirs.

    rate: events/s of all three streams together, of which this one delivers its share; None: as fast as they are taken. events: of
    all three together, None: endless. event_rate: events per second of event time, default `rate`, else 10,000. disorder: the times of
    so many events in a row are shuffled; `.delay_us` is what a watermark then has to wait. start_us: event time of the first event. A
    row is a function of (seed, event number), whatever the partitions; `.table()` has the rows of all partitions.
    """
    return NexmarkSource(stream, rate, events, seed, event_rate, disorder, start_us, partitions)


def replay(
    path: str,
    time_column: str = "ts",
    speed: float | None = 1.0,
    *,
    format: Format | None = None,
    schema: Schema | None = None,
    time_unit: Literal["s", "ms", "us"] = "us",
    keep_time: bool = True,
) -> ReplaySource:
    """Files replayed by a time column, once; a directory or glob pattern is read in order of file names, dealt round-robin to
    partitions.

    path: must be the same file on every executor, or a URI of a store (s3://bucket/folder/*.parquet). speed: 2.0 is twice as fast as
    it happened; None: as fast as they are taken. format: from the file names if None. schema: from the first file if None. time_unit:
    of a time column that is a number. keep_time=False: rows carry the time at which they were due now instead of the one they had.
    Raises SourceError, UnknownColumn, TypeMismatch.
    """
    found = files.list_files(fitted("replay source", "path", path, PATH))
    chosen = fitted("replay source", "format", format, FORMAT) or files.format_of(found[0])
    declared = files.plain_schema(as_schema(schema)) if schema is not None else files.schema_of(found[0], chosen)
    groups = files.row_groups(found[0]) if chosen == "parquet" and len(found) == 1 else 1
    return ReplaySource(found, chosen, declared, time_column, speed, time_unit, keep_time, groups)


def pcap(path: str, speed: float | None = None) -> ReplaySource:
    """Capture files (pcap, pcapng) as the columns of `packets`: TCP and UDP over IPv4; other packets are skipped. speed: as in
    `replay`.
    """
    return replay(path, "ts", speed, format="pcap")


def tcp_lines(
    host: str,
    port: int,
    schema: Schema | None = None,
    format: LineFormat = "csv",
    listen: bool = False,
    *,
    bad_lines: Literal["error", "skip"] = "error",
    on_close: Literal["reconnect", "end"] = "reconnect",
    durability: Literal["kept", "none"] = "kept",
) -> TcpSource:
    """Lines from a TCP peer: CSV without a header, one JSON object each, or text (one column `line`).

    listen: wait for peers on host:port instead of connecting to it; "0.0.0.0" is any address of IPv4, "::" any of IPv6, too. bad_lines:
    what to do with a line that does not fit the schema, or has more than 1 MiB. on_close: what it means that the peer (listening: the last
    one) closed the connection. Lines cannot be had twice: those that a lost site had received, and no other had in its log, are lost.
    durability: with a checkpoint location, "kept": lines are written there before anything counts them; "none": they are not, and a restart
    goes on without those that came after the newest checkpoint, and says how many.
    """
    if schema is None:
        if format != "text":
            raise QueryError(f"tcp source {host}:{port}: give schema= for lines of {format}")
        schema = pa.schema([("line", pa.string())])
    return TcpSource(host, port, files.plain_schema(as_schema(schema)), format, listen, bad_lines, on_close, durability=durability)


def group(
    urls: Sequence[str] | str,
    group: str,
    sink: str,
    schema: Schema,
    *,
    after: int = 0,
    race: bool = False,
    secret_file: str | None = None,
    tls_ca: str | None = None,
    patience_s: float = 300.0,
) -> GroupSource:
    """What the regions of a group have made, read from whichever is there: each epoch of a stream sink once, in order.

    urls: "host:port" of each region's `ef.sinks.stream`, as the sites reach it, the nearest first, as a list or as text with commas.
    group, sink: the names that the regions have. schema: the sink's columns, those that are wanted; `group_position`, a row's place, and
    `group_time`, when its upstream epoch ended, come behind. after: begin behind this epoch; 0: with the first. race, tls_ca: as for
    `ef.subscribe`. secret_file: at every site; None: the sites' environment variable EVENFLOW_STREAM_SECRET. patience_s: for how long no
    region may be there.

    Cut by content, its epochs are the upstream ones if the width and the begin are the same; then every replica and every region reads for
    itself, and all read the same. Raises OptionError, and QueryError for a changelog.
    """
    given: Any = [url.strip() for url in urls.split(",")] if isinstance(urls, str) else urls
    return GroupSource(given, group, sink, files.plain_schema(as_schema(schema)), after, race, secret_file, tls_ca, patience_s)


def kafka(
    servers: str,
    topic: str | Sequence[str] | None = None,
    schema: Schema | None = None,
    format: MessageFormat | None = None,
    *,
    topic_pattern: str | None = None,
    spare: int = 0,
    spare_topics: int = 0,
    starting: Offsets = "latest",
    ending: Offsets | None = None,
    bad_messages: Literal["error", "skip"] = "error",
    registry: str | None = None,
    avro_schema: str | None = None,
    descriptors: str | bytes | None = None,
    message: str | None = None,
    include: str | Sequence[str] = (),
    options: Mapping[str, str] | str | None = None,
) -> KafkaSource:
    """Messages of Kafka topics, read by the sites, one partition of the source for each of the topics'. The broker is asked for these now.

    servers: "host:port,host:port". topic: one, or several, as a list or with commas. topic_pattern: a regular expression instead; the
    topics with such a name that are there. spare: so many partitions may come to each topic while the dataflow runs; spare_topics: so many
    topics with such a name may come. schema: of messages
    that are JSON objects or lines of CSV; `kafka_offset` and `kafka_timestamp` come behind it. format: "json" if there is a schema, else
    "raw", the columns of Spark's Kafka source; "text" is one column `value`; "avro" by `avro_schema` (JSON), or by the `registry` of
    Confluent that has the topic's schemas; "protobuf" by `descriptors` (a file that protoc wrote) and the name of the `message`;
    "debezium": changes of rows of `schema`, a changelog. include: some of "key", "headers", "topic", "partition". starting: "earliest",
    "latest" (what is written from now on) or an offset for each partition (of several topics: a dict of such dicts); in a group without
    offsets, the first message since its begin. ending: the stream
    ends there; None: never. bad_messages: what to do with a message that is not one row of the schema. options: librdkafka's, such as
    security.protocol.

    Raises SourceError if no broker answers or there is no such topic, QueryError without the package confluent-kafka.
    """
    fitted("kafka source", "servers", servers, text())
    wanted = chosen(topic, topic_pattern)
    named = wanted.pattern if isinstance(wanted, re.Pattern) else ", ".join(wanted)
    fitted("kafka source", "starting", starting, OFFSETS)
    fitted("kafka source", "ending", ending, optional(OFFSETS))
    settings = as_options(options)
    form: MessageFormat = format or ("json" if schema is not None else "avro" if registry or avro_schema else "raw")
    if (schema is None) != (form in ("raw", "text", *BINARY)):
        raise QueryError(f"kafka source {named}: give schema= for messages of json, csv or debezium, and none for the other formats")
    for name, one in (("registry", registry), ("avro_schema", avro_schema), ("message", message)):
        fitted("kafka source", name, one, optional(text()))
    if registry is not None and form == "avro" and avro_schema is None and (isinstance(wanted, re.Pattern) or len(wanted) > 1):
        raise QueryError(f"kafka source {named}: several topics may have several schemas in the registry; give avro_schema=")
    decoding, found = described(form, named, avro_schema, descriptors, message, registry, dict(settings))
    plain = TEXT if form == "text" else pa.schema([])
    columns = found if found is not None else files.plain_schema(as_schema(schema)) if schema is not None else plain
    there = bounds(servers, wanted, settings, starting, ending)
    if spare_topics and not isinstance(wanted, re.Pattern):
        raise QueryError(f"kafka source {named}: spare_topics= is for topic_pattern=; topics that are named are there")
    more = names_of(include), there.places, spare, spare_topics
    said: Literal["earliest", "latest", "offsets"] = starting if isinstance(starting, str) else "offsets"
    return KafkaSource(servers, named, columns, form, there.starts, there.ends, bad_messages, settings, decoding, *more, said)


def spark(dataframe: Any) -> SparkSource:
    """The rows of a Spark DataFrame, batch or streaming. Raises TypeMismatch naming a column whose type Evenflow does not have."""
    return SparkSource(schema_of_dataframe(dataframe), bool(dataframe.isStreaming), dataframe)


def memory(
    batches: Given | Iterable[Given] | Iterable[Iterable[Given]],
    partitions: int | None = None,
    *,
    ended: bool = True,
    schema: Schema | None = None,
) -> MemorySource:
    """Rows that are already here: a batch or table, a list of them dealt to `partitions` (default 1), or one list per partition.

    ended: the stream ends after them. schema: needed when there is no batch at all. Raises QueryError if schemas differ.
    """
    lists = split_batches(batches, fitted("memory source", "partitions", partitions, PARTITIONS))
    schemas = [batch.schema for part in lists for batch in part]
    if schema is None and not schemas:
        raise QueryError("memory source: there is no batch to take the schema from; give schema=")
    declared = as_schema(schema) if schema is not None else schemas[0]
    for found in schemas:
        if not found.equals(declared):
            raise QueryError(f"memory source: batches have different schemas: {found} and {declared}")
    return MemorySource(declared, tuple(tuple(part) for part in lists), ended)


def table(
    database: str | Callable[[], Any], table: str, schema: Schema, order_by: str, *, follow: bool = True, poll_ms: int = 100,
    retries: int = 10, backoff_ms: int = 100,
) -> TableSource:  # fmt: skip
    """The rows of a table of a database, in the order of a column, and those that are added to it, as they are added.

    database: the file of an SQLite database, the URL of a PostgreSQL database (postgresql://user@host/name, extra `postgres`), or a
    function that gives a connection of another one (DB-API). Every site connects.
    schema: the columns to read, such as "id bigint, name string". order_by: one of them, unique, and greater in every row that is
    committed later. follow: wait for more when all rows have been read, and look every poll_ms; otherwise the stream ends there.
    retries, backoff_ms: a database that goes away is looked for again so many times, after so long, twice that, and so on up to 10 s.
    """
    columns = files.plain_schema(as_schema(schema))
    return TableSource(database, table, columns, order_by, follow, poll_ms, retries, backoff_ms)


def delta(
    path: str, *, version: int | None = None, follow: bool = True, poll_ms: int = 1000, options: Mapping[str, str] | str | None = None
) -> DeltaSource:
    """The rows of a Delta table, and those that are added to it, as versions are committed (extra `delta`).

    path: a directory that all sites see, or a URI (s3://bucket/table). version: of the table, whose rows come first; None: the newest one
    now. follow: go on with what later versions add, and look every poll_ms; otherwise the stream ends there. options: of the store, as
    deltalake names them. Rows have a column `table_position` besides. Raises SourceError if there is no such table.
    """
    place = fitted("delta source", "path", path, PATH)
    number = fitted("delta source", "version", version, optional(whole(0)))
    settings = as_settings(options, "a Delta table")
    table = table_at(place, number, settings)
    return DeltaSource(place, columns_of(place, table.schema()), table.version(), follow, poll_ms, settings)


def iceberg(
    table: str, *, catalog: str = "default", follow: bool = True, poll_ms: int = 1000, options: Mapping[str, str] | str | None = None
) -> IcebergSource:
    """The rows of an Iceberg table, and those that are added to it, as snapshots are committed (extra `iceberg`).

    table: "namespace.name". catalog: its name in PyIceberg's configuration. follow: go on with what later snapshots add, and look every
    poll_ms; otherwise the stream ends with the rows that are there now. options: of the catalog, besides (type, uri, warehouse, ...). Rows
    have a column `table_position` besides. Raises SourceError if there is no such table.
    """
    settings = as_settings(options, "an Iceberg catalog")
    found = table_of(fitted("iceberg source", "table", table, NAME), fitted("iceberg source", "catalog", catalog, text()), settings)
    begin = found.current_snapshot()
    snapshot, sequence = (0, 0) if begin is None else (begin.snapshot_id, begin.sequence_number)
    columns = files.plain_schema(found.schema().as_arrow())
    return IcebergSource(table, catalog, columns, snapshot, sequence, follow, poll_ms, settings)


def from_json(data: Mapping[str, Any]) -> Source:
    """The source that `Source.to_json` described. Raises QueryError for an unknown kind."""
    try:
        if data.get("kind") == ChainSource.kind:
            return ChainSource(from_json(data["first"]), from_json(data["second"]))
        if data.get("kind") == CutSource.kind:
            given = {name: value for name, value in data.items() if name not in ("kind", "source")}
            try:
                return CutSource(from_json(data["source"]), **given)
            except TypeError as error:
                raise QueryError(f"the saved source that is cut by content does not fit this version: {error}") from error
        if data.get("kind") == AfterSource.kind:
            return AfterSource(from_json(data["source"]), str(data["after"]))
    except KeyError as error:
        raise QueryError(f"the saved {data['kind']} source lacks {error}; correct the JSON") from error
    source: Source = description_from_json({**KINDS, SpooledSource.kind: SpooledSource}, data, "source")
    return source


__all__ = [
    "DeltaSource", "GeneratorSource", "GroupSource", "IcebergSource", "KafkaSource", "MemorySource", "NexmarkSource",
    "PacketsSource", "Reader",
    "ReplaySource", "Source", "SparkSource", "TableSource", "TcpSource",
    "delta", "dropped", "from_json", "generator", "group", "iceberg", "kafka", "memory",
    "nexmark", "packets", "pcap", "replay", "schema_from_json", "schema_to_json", "spark", "table", "tcp_lines",
]  # fmt: skip
