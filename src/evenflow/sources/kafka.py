"""Messages of a Kafka topic, read inside the sites without a micro-batch in between.

Each partition of the topics is one of the source's, read from an offset that the description fixes, so every replica that ever reads it
reads the same messages. A row carries its offset, and that is the source's position: who takes over goes on behind the last offset in
the log, without reading what came before. Offsets have gaps (transactions, compaction), which do not matter.

A broker that cannot be reached for a while is waited for; the client library reconnects by itself. Consumer groups are not used, and
nothing is committed to the broker: what has been read is the run's own business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import QueryError, SourceError
from evenflow.sources.debezium import POSITION, DebeziumDecoder, Misfit
from evenflow.sources.decoding import Decoder, asks, decoder_of
from evenflow.sources.description import LATER
from evenflow.sources.kafka_client import SETTINGS, check_no_secrets, client, cluster_settings, problem
from evenflow.sources.kafka_topics import Place, configured, kept_since, most_partitions, oldest, places_of, since, topics_like
from evenflow.sources.messages import parse_messages
from evenflow.sources.registry import RegistryAway
from evenflow.sources.source import Reader, Source
from evenflow.stream.change import CHANGE_FIELD
from evenflow.stream.cut import NO_NUMBER
from evenflow.stream.declared import WIDEST, Declared, May, a, each, one_of, optional, row_schema, whole

MessageFormat = Literal["json", "csv", "text", "raw", "avro", "protobuf", "debezium"]

RAW: Final = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip
"""Columns of messages as they are: those of Spark's Kafka source."""
OFFSET, TIMESTAMP = "kafka_offset", "kafka_timestamp"
PULSE: Final = "evenflow-pulse"
KEY, HEADERS = "kafka_key", "kafka_headers"
INCLUDED: Final[Mapping[str, pa.Field]] = {
    "key": pa.field(KEY, pa.binary()),
    "topic": pa.field("kafka_topic", pa.string(), False),
    "partition": pa.field("kafka_partition", pa.int32(), False),
    "headers": pa.field(HEADERS, pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}
"""Columns that are asked for: the message's key, its headers as Spark's Kafka source has them, and where it was."""
AWAY_S: Final = 300.0
"""So long a schema registry is waited for that has answered before, or has not."""
"""Columns behind those of a schema: the message's offset, and the time that the broker has for it."""
TEXT: Final = pa.schema([("value", pa.string())])


PLACES: Final = each(each(whole(0, WIDEST), "a partition and an offset"), "an offset for each partition")
MOST_SPARE: Final = 1_000
LOOK_MS: Final = 5_000
"""So often the library asks the broker whether a partition is there that may come."""
QUEUED_KB: Final = 16_384
"""Messages that the library fetches ahead for one partition."""


class KafkaReader(Reader):
    """One partition, from an offset on. bad_messages: how many were left out because they are not of the schema."""

    def __init__(self, source: KafkaSource, place: Place) -> None:
        self._source, self._at = source, place
        self._partition, self._next, self._end = place.number, place.start, place.end
        self._consumer: Any = None
        self.bad_messages = 0
        self.ended = place.end is not None and place.start >= place.end
        self._decoder: Decoder | None = None
        self._waiting: list[Any] = []
        self._away_us: int | None = None
        self._half = -1
        self._pulsed, self._held = False, list[Any]()
        self._pulses: list[int] = []
        self._before_us = source.begin_us

    def heed_pulses(self) -> None:
        self._pulsed = True

    def times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        column = batch.column("timestamp" if self._source.format == "raw" else TIMESTAMP)
        found: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(NO_NUMBER).to_numpy(zero_copy_only=False)
        return found

    def pulses(self) -> npt.NDArray[np.int64]:
        return np.array(self._pulses, np.int64)

    def skip(self, rows: int) -> None:
        """rows: the offset to go on from; of changes twice that, and one more behind the first of two rows."""
        if self._source.format == "debezium":
            rows, self._half = rows // 2, rows // 2 if rows % 2 else -1
        self._next = max(self._next, rows)
        self._before_us = None
        self.ended = self._end is not None and self._next >= self._end

    def meet(self, names: Sequence[str]) -> None:
        if 0 <= self._at.newcomer < len(names):
            self._at = self._at._replace(topic=names[self._at.newcomer], newcomer=-1)

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        self._pulses = []
        if self.ended or self._at.newcomer >= 0:
            return None
        if now_us < (self.wake_us or 0) and self._waiting:
            return None
        messages, self._waiting = self._waiting, []
        given: list[Any] = []
        if not messages:
            given, self._held = self._held or self._open().consume(num_messages=max_rows, timeout=0), []
        for at, message in enumerate(given):
            if message.error() is not None or (self._at.beyond is not None and message.partition() == self._at.beyond):
                self._heed(message)
            elif self._end is not None and message.offset() >= self._end:
                self._next = self._end  # Offsets before it that have not come have no message. The topic's own end may never come.
            elif self._before_us is not None and message.timestamp()[1] * 1000 < self._before_us:
                self._next = message.offset() + 1  # A region that was started earlier has not been told of it, and one later not either.
            elif self._pulsed and is_pulse(message):
                if messages:
                    self._held = given[at:]  # Rows before it are as old as they are.
                    break
                self._pulses.append(message.timestamp()[1] * 1000)
                self._next, self._before_us = message.offset() + 1, None
            else:
                self._before_us = None
                messages.append(message)
        if messages:
            self._next = max(self._next, messages[-1].offset() + 1)
        self.next_place = self._next
        self.ended = self._end is not None and self._next >= self._end
        try:
            batch = self._rows(messages) if messages else None
            self._away_us, self.wake_us = None, None
        except RegistryAway as error:
            self._wait(now_us, messages, error)
            self.next_place = None
            return None
        if self.ended:
            self.close()
        return batch if batch is not None and batch.num_rows else None

    def behind(self) -> tuple[str, int] | None:
        """By what the broker said when it was last asked for messages."""
        consumer = self._consumer
        if consumer is None:
            return None
        kafka = client()
        try:
            marks = consumer.get_watermark_offsets(kafka.TopicPartition(self._at.topic, self._partition), cached=True)
        except (RuntimeError, kafka.KafkaException):
            return None  # It has been closed meanwhile.
        return None if marks is None or marks[1] < 0 else (self._at.topic, max(0, marks[1] - self._next))

    def _wait(self, now_us: int, messages: list[Any], error: RegistryAway) -> None:
        """The registry is away: the messages wait for it. Raises SourceError when that has been too long."""
        self._away_us = now_us if self._away_us is None else self._away_us
        if now_us - self._away_us > AWAY_S * 1e6:
            raise SourceError(f"{self._place}: the schema registry has not answered for {AWAY_S:.0f} s: {error}") from error
        self._waiting, self.ended, self.wake_us = messages, False, now_us + 1_000_000

    def _open(self) -> Any:
        if self._consumer is None:
            kafka = client()
            source = self._source
            looking = {"topic.metadata.refresh.interval.ms": LOOK_MS} if self._at.waits else {}
            settings = {
                **looking, **cluster_settings(source.servers, source.options), "group.id": "evenflow", "enable.auto.commit": False,
                "auto.offset.reset": "error", "enable.partition.eof": True, "isolation.level": "read_committed",
                "allow.auto.create.topics": False,  "queued.max.messages.kbytes": QUEUED_KB, "fetch.wait.max.ms": 50,
            }  # fmt: skip
            self._consumer = kafka.Consumer(settings)
            assigned = [kafka.TopicPartition(self._at.topic, self._partition, self._next)]
            if self._at.beyond is not None:
                assigned.append(kafka.TopicPartition(self._at.topic, self._at.beyond, 0))
            self._consumer.assign(assigned)
        return self._consumer

    def _heed(self, message: Any) -> None:
        """What comes instead of a message. Raises SourceError unless it passes by itself."""
        error, kafka = message.error(), client()
        if (
            error is not None
            and self._at.waits
            and error.code() in (kafka.KafkaError._UNKNOWN_PARTITION, kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)
        ):
            return  # It has not come yet.
        if message.partition() == self._at.beyond and self._at.beyond is not None:
            raise SourceError(
                f"kafka source {self._source.name}: {self._at.topic} has a partition {self._at.beyond} now, and there were places for "
                f"{self._at.beyond}; start this dataflow with a greater spare=, at a location of its own"
            )
        if error.code() == kafka.KafkaError._PARTITION_EOF:
            if self._end is not None and message.offset() >= self._end:
                self._next = self._end  # Behind the last messages there were offsets without one.
        elif not error.retriable() and error.code() not in (kafka.KafkaError._ALL_BROKERS_DOWN, kafka.KafkaError._TRANSPORT):
            raise SourceError(f"{self._place}: {problem(error)}")

    @property
    def _place(self) -> str:
        return f"kafka source {self._source.name}, partition {self._partition}, from offset {self._next}"

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # ------------------------------------------------ messages to rows

    def _rows(self, messages: Sequence[Any]) -> pa.RecordBatch:
        source = self._source
        offsets = pa.array([m.offset() for m in messages], pa.int64())
        times = pa.array([m.timestamp()[1] if m.timestamp()[0] else None for m in messages], pa.timestamp("ms", "UTC"))
        times = times.cast(pa.timestamp("us", "UTC"))
        if source.format == "raw":
            count = len(messages)
            columns = [
                pa.array([m.key() for m in messages], pa.binary()), pa.array([m.value() for m in messages], pa.binary()),
                pa.array([self._at.topic] * count, pa.string()), pa.array([self._partition] * count, pa.int32()), offsets, times,
            ]  # fmt: skip
            return pa.RecordBatch.from_arrays(columns, schema=RAW)
        if source.format == "debezium":
            return self._changes(messages, offsets, times)
        values = [m.value() for m in messages]
        parsed = self._parsed(values)
        if parsed is None:
            good = [self._one(message) for message in messages]
            kept = pa.array([at for at, row in enumerate(good) if row is not None], pa.int64())
            offsets, times, messages = offsets.take(kept), times.take(kept), [messages[at] for at in kept.to_pylist()]
            rows = pa.Table.from_batches([row for row in good if row is not None], source.columns).combine_chunks().to_batches()
            parsed = rows[0] if rows else pa.RecordBatch.from_pylist([], schema=source.columns)
        return pa.RecordBatch.from_arrays([*parsed.columns, offsets, times, *self._included(messages)], schema=source.schema)

    def _included(self, messages: Sequence[Any]) -> list[pa.Array]:
        """The columns that were asked for besides."""
        found = []
        for name in self._source.include:
            if name == "key":
                found.append(pa.array([m.key() for m in messages], pa.binary()))
            elif name in ("topic", "partition"):
                found.append(pa.array([self._at.topic if name == "topic" else self._partition] * len(messages), INCLUDED[name].type))
            else:
                each = [[{"key": key, "value": _as_bytes(value)} for key, value in m.headers() or ()] for m in messages]
                found.append(pa.array(each, INCLUDED[name].type))
        return found

    def _changes(self, messages: Sequence[Any], offsets: pa.Array, times: pa.Array) -> pa.RecordBatch:
        """Rows of a changelog, none to two of each message."""
        decoder, found, origin, places = DebeziumDecoder(self._source.columns), list[pa.RecordBatch](), list[int](), list[int]()
        for at, message in enumerate(messages):
            try:
                rows = decoder.rows(message.value())
            except Misfit as error:
                self._bad(message, f"no change of rows of the declared schema: {error}")
                continue
            given = rows.slice(1) if message.offset() == self._half else rows  # The first of its two rows was given before.
            found.append(given)
            origin += [at] * given.num_rows
            places += [2 * message.offset() + 1 - left for left in reversed(range(given.num_rows))]
        whole = pa.Table.from_batches(found, decoder.schema).combine_chunks()
        of = pa.array(origin, pa.int64())
        own = [offsets.take(of), times.take(of), *self._included([messages[at] for at in origin]), pa.array(places, pa.int64())]
        columns = [*(column.combine_chunks() for column in whole.columns), *own]
        return pa.RecordBatch.from_arrays(columns, schema=self._source.schema)

    def _parsed(self, values: Sequence[bytes | None]) -> pa.RecordBatch | None:
        """A row per message; None if any of them is not one row of the schema."""
        columns, format_ = self._source.columns, self._source.format
        if self._source.decoding is not None:
            if self._decoder is None:
                self._decoder = decoder_of(self._source.decoding, columns, dict(self._source.options))
            return self._decoder.rows(values)
        return parse_messages(values, columns, "csv" if format_ == "csv" else "text" if format_ == "text" else "json")

    def _one(self, message: Any) -> pa.RecordBatch | None:
        """The row of one message; None if it is bad and bad messages are skipped. Raises SourceError if they are not."""
        value: bytes | None = message.value()
        row = self._parsed([value])
        if row is not None:
            return row
        why = "" if self._decoder is None else self._decoder.why(value)
        self._bad(message, f"not {self._source.format} of the declared schema" + (why and f" ({why})"))
        return None

    def _bad(self, message: Any, why: str) -> None:
        """Count it, or raise SourceError if bad messages are not skipped."""
        value: bytes | None = message.value()
        self.bad_messages += 1
        if self._source.bad_messages == "error":
            shown = "null" if value is None else repr(value.decode(errors="backslashreplace")[:200])
            raise SourceError(
                f"kafka source {self._source.name}: the message at offset {message.offset()} of partition {self._partition} is {why}: "
                f"{shown}; mend the producer, give bad_messages='skip' to count and drop such messages, or read them with format='raw' and "
                "parse them in a box"
            )


def is_pulse(message: Any) -> bool:
    """A message that only says that time goes on: no value, and a header of that name. Anyone may write it, twice too."""
    return message.value() is None and any(name == PULSE for name, _ in message.headers() or ())


def _as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@dataclass(frozen=True)
class KafkaSource(Declared, Source):
    """See `evenflow.sources.kafka`. starts: (partition, first offset) of every partition. ends: the offset before which each of them ends,
    or empty. places: (topic, partition) of each, where there are several topics, and then starts and ends say which of these they mean.
    spare: so many partitions may come to each topic. spare_topics: so many topics may come that are as `topic` says, a pattern. starting:
    how starts were said. begin_us: of a region, which is given no message before the first that is not older."""

    kind: ClassVar[str] = "kafka"
    looked_up: ClassVar[tuple[str, ...]] = ("starts", "ends", "places")
    servers: str
    topic: str
    columns: pa.Schema
    format: MessageFormat
    starts: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int], ...] = ()
    bad_messages: Literal["error", "skip"] = "error"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    decoding: str | None = field(default=None, metadata=LATER)
    include: tuple[str, ...] = field(default=(), metadata=LATER)
    places: tuple[tuple[str, int], ...] = field(default=(), metadata=LATER)
    spare: int = field(default=0, metadata=LATER)
    spare_topics: int = field(default=0, metadata=LATER)
    starting: Literal["earliest", "latest", "offsets"] = field(default="offsets", metadata=LATER, repr=False)
    begin_us: int | None = field(default=None, metadata=LATER, repr=False)
    MAY: ClassVar[Mapping[str, May]] = {
        "columns": row_schema().called("schema"), "starts": PLACES, "ends": PLACES, "options": SETTINGS,
        "places": each(each(a("a topic and a partition", lambda one: isinstance(one, str | int)), "a topic and a partition"), "places"),
        "begin_us": optional(whole(0, WIDEST)), "spare": whole(0, MOST_SPARE), "spare_topics": whole(0, MOST_SPARE),
        "include": each(one_of(*INCLUDED), f"some of {', '.join(INCLUDED)}"),
    }  # fmt: skip
    option_owner: ClassVar[str] = "kafka source"

    def __post_init__(self) -> None:
        super().__post_init__()
        for taken in (OFFSET, TIMESTAMP, *(INCLUDED[name].name for name in self.include), *self._of_changes().names):
            if taken in self.columns.names:
                raise QueryError(f"kafka source {self.name}: the schema has a column {taken!r}, which every message gets; rename it")
        if self.waits and self.ends:
            raise QueryError(f"kafka source {self.name}: spare= and spare_topics= are for a source that goes on; leave ending= out")

    @property
    def name(self) -> str:
        return f"{self.topic} at {self.servers}"

    @property
    def schema(self) -> pa.Schema:
        if self.format == "raw":
            return RAW
        own = [pa.field(OFFSET, pa.int64(), False), pa.field(TIMESTAMP, pa.timestamp("us", "UTC"))]
        behind, change = list(self._of_changes()), list[pa.Field]()
        if behind:
            change, behind = [behind[0]], behind[1:]
        return pa.schema([*self.columns, *change, *own, *(INCLUDED[name] for name in self.include), *behind])

    def _of_changes(self) -> pa.Schema:
        """Columns that rows of a changelog have besides."""
        return pa.schema([CHANGE_FIELD, pa.field(POSITION, pa.int64(), False)] if self.format == "debezium" else [])

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return asks(self.decoding)

    @property
    def streaming(self) -> bool:
        return not self.ends

    @property
    def position(self) -> str:
        return {"raw": "offset", "debezium": POSITION}.get(self.format, OFFSET)

    @cached_property
    def _places(self) -> list[Place]:
        return places_of(self.topic, self.starts, self.ends, self.places, self.spare, self.spare_topics)

    @property
    def waits(self) -> bool:
        return bool(self.spare or self.spare_topics)

    @property
    def newcomers_most(self) -> int:
        return self.spare_topics

    def look(self, known: Sequence[str]) -> tuple[str, ...]:
        first = {topic for topic, _ in self.places}
        there = topics_like(self.servers, self.topic, self.options)
        return tuple(name for name in there if name not in first and name not in known)

    @property
    def cuts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("time",) if self.format == "debezium" else ("time", "place")

    def not_cut(self, by: str, *, trusted: bool, mirrored: bool) -> str | None:
        if self.waits:
            return "partitions that may come would hold all epochs back; leave spare= and spare_topics= out"
        return super().not_cut(by, trusted=trusted, mirrored=mirrored)

    def ask_cut(self, by: str, *, trusted: bool, mirrored: bool) -> str | None:
        named = tuple(str(topic) for topic in dict.fromkeys(topic for topic, _ in self.places)) or (self.topic,)
        for topic, told in configured(self.servers, named, self.options).items():
            if "compact" in told.get("cleanup.policy", ""):
                return f"topic {topic!r} is compacted, so that who reads it later reads other rows"
            producers = told.get("message.timestamp.type") != "LogAppendTime"
            if by == "time" and producers and not (trusted or mirrored):
                return (
                    f"producers set the times of topic {topic!r}, and a wrong clock jumps years; give cut_ahead_ms, the most that a time "
                    "may be ahead of those before it, or mirrored=True if the topic has the times of a log that it is a copy of"
                )
        return None

    def begun_in_group(self, begin_us: int) -> KafkaSource:
        """From the first messages that are not older, unless offsets were given: "latest" would be another one in each region."""
        if self.starting == "offsets" or self.begin_us == begin_us:
            return self
        found = since(self.servers, self.options, self._named, begin_us)
        starts = tuple((key, offset) for (key, _), offset in zip(self.starts, found, strict=True))
        return replace(self, starts=starts, begin_us=begin_us)

    def lacks(self, now_us: int) -> str | None:
        if self.begin_us is None:
            return None
        firsts = oldest(self.servers, self.options, self._named)
        suspect = [(*place, first) for place, first, (_, start) in zip(self._named, firsts, self.starts, strict=True) if 0 < first >= start]
        topics = tuple(dict.fromkeys(topic for topic, _, _ in suspect))
        told = configured(self.servers, topics, self.options) if topics else {}
        for topic, number, first in suspect:
            if not kept_since(told[topic], self.begin_us, now_us):
                begin = datetime.fromtimestamp(self.begin_us / 1e6, UTC)
                return (
                    f"kafka source {self.name}: the group begins at {begin}, and partition {number} of {topic} has messages from offset "
                    f"{first} on: what was written between may have been deleted, and its epochs would be left out in silence. Let the "
                    "topic keep messages for longer, go on at a region's checkpoint location, or begin another group later"
                )
        return None

    def places_alike(self, by: str) -> Any:
        follows = by == "time" and self.begin_us is not None
        starts = [] if follows else [[*place, start] for place, (_, start) in zip(self._named, self.starts, strict=True)]
        ends = [list(pair) for pair in self.ends]
        return [starts, ends] if starts or ends else None

    @property
    def _named(self) -> list[tuple[str, int]]:
        """(topic, partition) of each place that was there first."""
        return [(str(topic), number) for topic, number in self.places] or [(self.topic, number) for number, _ in self.starts]

    def first_place(self, partition: int) -> int:
        return self._places[partition].start

    def partitions(self, sites: int) -> int:
        return len(self._places)

    def goes_on(self, looked_up: str, was: Any, is_: Any) -> bool:
        """Partitions, and topics of the pattern, that have come since are read where places wait for them."""
        if looked_up != "places" and self.places:
            return True  # These are by place, and the places are compared.
        named = tuple(is_ if looked_up == "places" else ((self.topic, number) for number, _ in is_))
        first = Counter(topic for topic, _ in was) if looked_up == "places" else {self.topic: len(was)}
        came = {topic for topic, _ in named} - set(first)
        if len(came) <= self.spare_topics:
            first = {**first, **dict.fromkeys(came, most_partitions(tuple(was), self.spare) - self.spare if came else 0)}
        known = {tuple(place) for place in was} if looked_up == "places" else {(self.topic, number) for number, _ in was}
        new = [place for place in named if place not in known]
        return known <= set(named) and all(topic in first and number < first[topic] + self.spare for topic, number in new)

    def warm_up(self) -> None:
        client()

    def open(self, partition: int, of: int) -> KafkaReader:
        return KafkaReader(self, self._places[partition])

    def to_json(self) -> dict[str, Any]:
        check_no_secrets(self.options, f"kafka source {self.name}")
        return super().to_json()


__all__ = ["KafkaReader", "KafkaSource"]
