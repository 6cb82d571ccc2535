"""Results as messages of a Kafka topic, each epoch once: one transaction an epoch, with the epoch's number in it.

The number is committed as the offset of a consumer group of the run's own, in the same transaction as the messages. If it is not known
whether a transaction was committed, a new producer of the same name asks: opening it ends what the old one had begun, and then the group's
offset says which epoch is the last. Where each generation of a run is one of its own here, the note beside the offset says which one that
epoch is of. Consumers that read committed messages only (`isolation.level=read_committed`) see each epoch whole and once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from evenflow.errors import QueryError, SinkError, TypeMismatch, UnknownColumn
from evenflow.sinks.sink import PATIENCE, Appender, Sink, Where, Writer, read_note, replaced, with_note
from evenflow.sources.description import LATER
from evenflow.sources.kafka_client import SETTINGS, check_no_secrets, client, cluster_settings, problem
from evenflow.stream.declared import Declared, May
from evenflow.stream.ids import generation_of, run_of
from evenflow.stream.schema import type_name
from evenflow.stream.values import shown_values

TIMEOUT_S: Final = 15.0
FULL_WAIT_S: Final = 0.05
AGAIN_MS: Final = 5
"""After so long a broker that is not ready is asked again; twice as long each time, up to the client's bound of a second."""
LOOK_S: Final = 1.0
"""So long a region that waits for its turn asks for the last epoch."""
Headers = list[tuple[str, bytes | None]] | None
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Transactions:
    """A topic, the producer whose transactions it takes, and the consumer group whose offset says which epoch is the last. name: of the
    group, and the producer's transactional id. Each is opened when it is needed."""

    def __init__(self, sink: KafkaSink, name: str) -> None:
        self._sink, self._name = sink, name
        self._settings = cluster_settings(sink.servers, sink.options)
        self._producer: Any = None
        self._group: Any = None

    def _join(self) -> None:
        """Open the group. Raises SinkError where there is no such topic, and KafkaException."""
        reading = {"group.id": self._name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._group = client().Consumer({**self._settings, **reading, "allow.auto.create.topics": False})
        known = self._group.list_topics(self._sink.topic, timeout=TIMEOUT_S).topics[self._sink.topic]
        if known.error is not None:
            raise SinkError(f"kafka sink: {self._sink.servers} has no topic {self._sink.topic!r}; create it, or check the name")

    def _noted_at(self, timeout_s: float) -> Any:
        """Where the group stands: an offset, and the note beside it."""
        (done,) = self._group.committed([client().TopicPartition(self._sink.topic, 0)], timeout_s)
        return done

    def _give_up(self) -> None:
        """A producer whose transaction went wrong is not used again: the next one finds out what became of it."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(client().KafkaException):
                producer.abort_transaction(TIMEOUT_S)

    def _failed(self, what: str, error: Any) -> SinkError:
        return SinkError(f"kafka sink {self._sink.topic} at {self._sink.servers} {what}: {problem(error)}")

    def close(self) -> None:
        """Forget the producer; a transaction that is open is aborted."""
        self._give_up()
        if self._group is not None:
            self._group.close()
            self._group = None


class KafkaWriter(Transactions, Writer):
    """The topic as one run's sink sees it."""

    def __init__(self, sink: KafkaSink, run_id: str) -> None:
        self._run, self._generation = run_of(run_id), generation_of(run_id)
        # One for all generations, so that each ends what the one before has left open, and hears of the one behind it.
        super().__init__(sink, f"evenflow-{self._run}-{sink.name}")
        self._last = 0
        self._open()
        self.newest = self._last

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        """Commit the rows of an epoch, unless it is committed already. Raises SinkError."""
        if not batch.num_rows:
            return
        if self._producer is None:
            self._open()
        if epoch <= self._last:
            return
        kafka, failures = client(), list[Any]()
        try:
            producer = self._producer
            producer.begin_transaction()
            refused = produce(producer, self._sink, batch, failures)
            note = {"metadata": str(self._generation)} if self._generation else {}
            done = kafka.TopicPartition(self._sink.topic, 0, epoch, **note)
            producer.send_offsets_to_transaction([done], self._group.consumer_group_metadata(), TIMEOUT_S)
            if refused is not None:
                raise refused
            producer.commit_transaction(TIMEOUT_S)
        except kafka.KafkaException as error:
            self._give_up()
            raise self._failed(f"cannot take epoch {epoch}", failures[0] if failures else error.args[0]) from error
        except BaseException:
            self._give_up()
            raise
        self._last = epoch

    # ------------------------------------------------ beginning, and beginning again

    def _open(self) -> None:
        kafka = client()
        try:
            if self._group is None:
                self._join()
            if self._generation:
                with suppress(kafka.KafkaException):  # A transaction is under way.
                    self._noted(LOOK_S)  # One that was replaced shuts nobody out.
            producer = kafka.Producer(producing(self._settings, self._name))
            producer.init_transactions(TIMEOUT_S)
            last = self._noted(TIMEOUT_S)
        except kafka.KafkaException as error:
            raise self._failed("cannot be opened", error.args[0]) from error
        self._producer, self._last = producer, last

    def _noted(self, timeout_s: float) -> int:
        """The last epoch of this run that is in the topic. Raises SinkError where a later generation writes it."""
        done = self._noted_at(timeout_s)
        noted = int(done.metadata or 0) if self._generation else 0
        if noted > self._generation:
            raise replaced(f"kafka sink {self._sink.topic}", self._generation, self._run)
        last: int = max(0, done.offset) if noted == self._generation else 0
        return last


class KafkaAppender(Transactions, Appender):
    """The topic as the regions of a group write to it: one transactional id for all of them, so whoever opens a producer ends what another
    one has under way, and that one is fenced. The group's offset says the last epoch, and the note beside it the digest.

    A region opens its producer only when it is its turn.
    """

    forgets = True

    def __init__(self, sink: KafkaSink, group: str, name: str, whose: str = "") -> None:
        super().__init__(sink, f"evenflow-{group}-{sink.topic}-{name}")
        self._whose = whose
        self._held: tuple[int, int] | None = None
        try:
            self._join()
        except client().KafkaException as error:
            raise self._failed("cannot be opened", error.args[0]) from error

    def last(self) -> tuple[int, int]:
        kafka = client()
        try:
            self._held = self._committed(LOOK_S)
        except kafka.KafkaException as error:
            # A transaction is under way, of a region that may hang: what was known holds until somebody ends it.
            if self._held is None:
                self._held = self._ended(error)
        return self._held

    def _ended(self, why: Any) -> tuple[int, int]:
        """What the topic has behind the transaction that is under way, of whomever: nothing is known yet that would hold meanwhile, and who
        has begun it may be dead. Raises SinkError."""
        kafka = client()
        try:
            self._own()
            return self._committed(TIMEOUT_S)
        except kafka.KafkaException as error:
            raise self._failed("does not say what it has", error.args[0]) from why
        finally:
            self._give_up()

    def _own(self) -> None:
        """Open the producer, which ends what another one has under way."""
        self._producer = client().Producer(producing(self._settings, self._name))
        self._producer.init_transactions(TIMEOUT_S)

    def _committed(self, timeout_s: float) -> tuple[int, int]:
        done = self._noted_at(timeout_s)
        if done.offset < 0:
            return 0, 0
        digest, self.noted = read_note(done.metadata)
        return done.offset, digest

    def append(self, prev: int, epoch: int, digest: int, batch: pa.RecordBatch) -> bool:
        kafka, failures = client(), list[Any]()
        self.fenced = False
        try:
            if self._producer is None:
                self._own()
                self._held = self._committed(TIMEOUT_S)
                if self._held[0] != prev:
                    self._give_up()
                    return False
            self._producer.begin_transaction()
            self._commit(epoch, digest, self._whose, produce(self._producer, self._sink, batch, failures))
        except kafka.KafkaException as error:
            self._give_up()
            if error.args[0].code() in fencings():
                self.fenced = True
                return False
            raise self._failed(f"cannot take epoch {epoch}", failures[0] if failures else error.args[0]) from error
        except BaseException:
            self._give_up()
            raise
        self._held, self.noted = (epoch, digest), self._whose
        return True

    def _commit(self, epoch: int, digest: int, whose: str, refused: Any = None) -> None:
        """What is in the transaction, and that this is the last epoch. refused: see `produce`."""
        done = client().TopicPartition(self._sink.topic, 0, epoch, metadata=with_note(digest, whose))
        self._producer.send_offsets_to_transaction([done], self._group.consumer_group_metadata(), TIMEOUT_S)
        if refused is not None:
            raise refused
        self._producer.commit_transaction(TIMEOUT_S)

    def say_again(self) -> None:
        """Commit the offset again: of a group without members a broker forgets what nobody commits for `offsets.retention.minutes`."""
        kafka = client()
        try:
            if self._producer is None:
                self._own()
                self._held = self._committed(TIMEOUT_S)
            if self._held is not None and self._held[0]:
                self._producer.begin_transaction()
                self._commit(*self._held, self.noted)
        except kafka.KafkaException as error:
            self._give_up()
            if error.args[0].code() not in fencings():  # Else another region writes, or has just said it.
                raise self._failed("cannot be told again what it has", error.args[0]) from error


def producing(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A producer's settings: those of the user, and a transactional id.

    A transaction is over for its producer before it is for the broker, which refuses the next one for a few milliseconds. By default it is
    asked again after 100 ms, so a topic took seven epochs a second.
    """
    return {"retry.backoff.ms": AGAIN_MS, **settings, "transactional.id": name, "linger.ms": 1, "compression.type": "lz4"}


def fencings() -> frozenset[int]:
    """Codes of errors that say that another producer of the same id has been opened."""
    codes = client().KafkaError
    return frozenset(getattr(codes, name) for name in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED") if hasattr(codes, name))


def produce(producer: Any, sink: KafkaSink, batch: pa.RecordBatch, failures: list[Any]) -> Any:
    """Hand the rows of an epoch to the producer; what becomes of them is known when its transaction is committed.

    If the transaction has failed in the background meanwhile, the producer takes no more and does not say why: then this returns its
    KafkaException, and the next request of the transaction raises what it was, such as a fence.
    """
    kafka = client()
    over = (kafka.KafkaError._FATAL, kafka.KafkaError._STATE)

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    for (key, value), headers in zip(sink.messages(batch), sink.headers_of(batch), strict=True):
        while True:
            try:
                producer.produce(sink.topic, value, key, on_delivery=delivered, headers=headers)
                producer.poll(0)
                break
            except BufferError:
                producer.poll(FULL_WAIT_S)
            except kafka.KafkaException as error:
                if error.args[0].code() not in over:
                    raise
                return error
    return None


@dataclass(frozen=True)
class KafkaSink(Declared, Sink):
    """See `evenflow.sinks.kafka`. headers: the column of them. name: tells the sinks of one run that write to the same topic apart."""

    kind: ClassVar[str] = "kafka"
    where: ClassVar[Where] = "driver"
    compares: ClassVar[bool] = True
    servers: str
    topic: str
    name: str
    format: Literal["json", "raw"] = "json"
    key: str | None = None
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    headers: str | None = field(default=None, metadata=LATER)
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    MAY: ClassVar[Mapping[str, May]] = {**PATIENCE, "options": SETTINGS}
    option_owner: ClassVar[str] = "kafka sink"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format == "raw" and self.key not in (None, "key"):
            raise QueryError(f"kafka sink {self.topic}: format is json, with a key column, or raw, with the columns key and value")

    def goes_on_as(self, known: Mapping[str, Any]) -> KafkaSink:
        """A name that was given by itself is counted in a process, and the topic knows the run by that of its first start."""
        was, by_itself = known.get("name"), re.fullmatch(rf"{re.escape(self.topic)}-\d+", self.name) is not None
        return replace(self, name=was) if by_itself and known.get("topic") == self.topic and isinstance(was, str) else self

    def open(self, run_id: str) -> KafkaWriter:
        return KafkaWriter(self, run_id)

    def open_for_group(self, group: str, name: str, whose: str = "") -> Appender:
        return KafkaAppender(self, group, name, whose)

    def check(self, schema: pa.Schema) -> None:
        """Raises UnknownColumn if the rows lack the column of the key or of the value."""
        needed = "value" if self.format == "raw" else self.key
        if needed is not None and needed not in schema.names:
            raise UnknownColumn(f"kafka sink {self.topic}: there is no column {needed!r}; the columns are {', '.join(schema.names)}")
        for column in schema if self.format == "json" else ():
            if column.name != self.headers and _has_interval(column.type):
                raise TypeMismatch(
                    f"kafka sink {self.topic}: {column.name!r} is {type_name(column.type)}, and intervals have no form in JSON; select its "
                    "seconds, such as cast(cast(took as interval second) as bigint) as seconds"
                )
        if self.headers is None:
            return
        if self.headers not in schema.names:
            raise UnknownColumn(f"kafka sink {self.topic}: there is no column {self.headers!r}; the columns are {', '.join(schema.names)}")
        type_ = schema.field(self.headers).type
        if not _has_headers(type_):
            raise TypeMismatch(
                f"kafka sink {self.topic}: the column of the headers is {type_}; give an array of structs of key and value, or a map"
            )

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None]]:
        """(key, value) of every row. Raises UnknownColumn, TypeMismatch."""
        self.check(batch.schema)
        keyed = self.key or ("key" if self.format == "raw" and "key" in batch.schema.names else None)
        keys = [None] * batch.num_rows if keyed is None else map(_bytes, shown_values(batch.column(keyed)))
        values: Iterable[bytes | None]
        given: Iterable[tuple[Any, ...]]
        if self.format == "raw":
            values = map(_bytes, batch.column("value").to_pylist())
        else:
            shown = batch if self.headers is None else batch.drop_columns([self.headers])
            columns = [[_in_json(value, column.type) for value in shown_values(column)] for column in shown.columns]
            given = zip(*columns, strict=True) if columns else [()] * batch.num_rows
            rows = (dict(zip(shown.schema.names, row, strict=True)) for row in given)
            values = (json.dumps(row, default=_plain, separators=(",", ":")).encode() for row in rows)
        return zip(keys, values, strict=True)

    def headers_of(self, batch: pa.RecordBatch) -> list[Headers]:
        """The headers of every row. One without a name has none."""
        if self.headers is None:
            return [None] * batch.num_rows
        given = batch.column(self.headers).to_pylist()
        pairs = ([(one["key"], one["value"]) if isinstance(one, dict) else one for one in row or () if one is not None] for row in given)
        return [[(name, _bytes(value)) for name, value in row if name is not None] for row in pairs]

    def to_json(self) -> dict[str, Any]:
        check_no_secrets(self.options, f"kafka sink {self.topic}")
        return super().to_json()


def _bytes(value: Any) -> bytes | None:
    """A key, or a value of format raw."""
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def _has_interval(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_interval(type_.field(at).type) for at in range(type_.num_fields))
    return bool(pa.types.is_duration(type_))


def _has_headers(type_: pa.DataType) -> bool:
    """An array of structs of key and value, as Spark has headers, or a map; names are text, values text or bytes."""
    if pa.types.is_map(type_):
        name, value = type_.key_type, type_.item_type
    elif pa.types.is_list(type_) and pa.types.is_struct(type_.value_type) and {f.name for f in type_.value_type} == {"key", "value"}:
        name, value = type_.value_type.field("key").type, type_.value_type.field("value").type
    else:
        return False
    return bool(pa.types.is_string(name) and (pa.types.is_string(value) or pa.types.is_binary(value)))


def _in_json(value: Any, type_: pa.DataType) -> Any:
    """NaN and the infinities as text, and maps as objects, as Spark's to_json writes them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(str(value), value)
    if value is None or not pa.types.is_nested(type_):
        return value
    if pa.types.is_struct(type_):
        return {field.name: _in_json(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {_name_in_json(key): _in_json(item, type_.item_type) for key, item in value}
    return [_in_json(each, type_.value_type) for each in value]


def _name_in_json(key: Any) -> str:
    """What a map's key is called in JSON."""
    if isinstance(key, bool):
        return str(key).lower()
    return key if isinstance(key, str) else str(key) if isinstance(key, int | float) else str(_plain(key))


def _plain(value: Any) -> Any:
    """What JSON has no type for: times in ISO 8601, decimals as text, bytes in hexadecimal digits."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


__all__ = ["KafkaSink", "KafkaWriter"]
