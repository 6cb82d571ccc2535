"""Kafka as source and sink, on a real broker. What is not about losing or repeating messages is left to `make conformance`."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.kafka_broker import KafkaBroker
from evenflow.errors import QueryError, SinkError, SourceError, TypeMismatch, UnknownColumn
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.cut import cut_by_content
from evenflow.sources.kafka import KafkaReader
from evenflow.sources.kafka_topics import oldest
from evenflow.sources.source import place
from evenflow.world.grouping import as_region, group
from evenflow.world.sim.world import SimWorld
from tests.kafka import broker
from tests.sources.reading import read_all
from tests.sources.test_formats import Schemas, avro, served

__all__ = ["broker"]
confluent_kafka = pytest.importorskip("confluent_kafka")
AdminClient, NewTopic = (getattr(pytest.importorskip("confluent_kafka.admin"), name) for name in ("AdminClient", "NewTopic"))
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
NOBODY = "127.0.0.1:1"

Topic = Callable[..., str]


@pytest.fixture
def topic(broker: KafkaBroker) -> Topic:
    """A new topic with messages: values by partition."""

    def make(*partitions: list[bytes | None], transactional: bool = False) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(name, max(len(partitions), 1))])[name].result()
        settings: dict[str, Any] = {"bootstrap.servers": broker.address, "linger.ms": 0}
        producer = confluent_kafka.Producer({**settings, "transactional.id": name} if transactional else settings)
        if transactional:
            producer.init_transactions()
        for number, values in enumerate(partitions):
            for at, value in enumerate(values):
                if transactional:
                    producer.begin_transaction()
                producer.produce(name, value, b"key", partition=number)
                if transactional and at % 3 == 2:
                    producer.flush()  # An abort before the broker has the message is fatal to a producer (INVALID_TXN_STATE).
                    producer.abort_transaction()
                elif transactional:
                    producer.commit_transaction()
        producer.flush()
        return name

    return make


def rows(*values: int) -> list[bytes | None]:
    return [json.dumps({"k": f"k{value % 3}", "v": value}).encode() for value in values]


def source(broker: KafkaBroker, topic: str, **more: Any) -> ef.sources.KafkaSource:
    return ef.sources.kafka(broker.address, topic, SCHEMA, **{"starting": "earliest", "ending": "latest", **more})


# ---------------------------------------------------------------- source


def test_messages_are_rows_in_order_of_their_offsets(broker: KafkaBroker, topic: Topic) -> None:
    made = source(broker, topic(rows(*range(2500)), rows(7)))
    table = read_all(made, 0, 2)
    assert table["v"].to_pylist() == list(range(2500)) == table["kafka_offset"].to_pylist()
    assert table["kafka_timestamp"].null_count == 0
    assert read_all(made, 1, 2).select(["k", "v", "kafka_offset"]).to_pylist() == [{"k": "k1", "v": 7, "kafka_offset": 0}]
    assert made.partitions(8) == 2 and not made.streaming


def test_a_reader_goes_on_behind_an_offset_over_gaps(broker: KafkaBroker, topic: Topic) -> None:
    """Goal: the same rows from the same place. Method: transactions, every third of which was aborted, leave gaps in the offsets."""
    made = source(broker, topic(rows(*range(30)), transactional=True))
    whole = read_all(made)
    assert whole["v"].to_pylist() == [value for value in range(30) if value % 3 != 2]
    offsets = whole["kafka_offset"].to_pylist()
    assert offsets[-1] > len(offsets), "there are gaps"
    for kept in (1, 7, 20):
        reader = made.open(0, 1)
        reader.skip(offsets[kept - 1] + 1)
        seen: list[int] = []
        while not reader.ended:
            batch = reader.read(0, 5)
            seen += batch.column(1).to_pylist() if batch is not None else []
        assert seen == whole["v"].to_pylist()[kept:]


def test_an_end_behind_a_gap_is_the_end_though_the_topic_goes_on(broker: KafkaBroker, topic: Topic) -> None:
    """Goal: what is written behind the end is not read to its own end, which may never come. Method: the offset before the end is a
    transaction's, and there are messages behind it."""
    name = topic(rows(*range(4)), transactional=True)
    made = source(broker, name)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for value in rows(*range(100, 1100)):
        producer.produce(name, value, partition=0)
    producer.flush()
    reader = made.open(0, 1)
    consumer, given, seen = reader._open(), list[Any](), list[int]()

    class Counting:
        def consume(self, num_messages: int, timeout: float) -> list[Any]:
            given.extend(got := consumer.consume(num_messages=num_messages, timeout=timeout))
            return got

        def close(self) -> None:
            consumer.close()

    reader._consumer = Counting()
    while not reader.ended:
        batch = reader.read(0, 1)
        seen += batch.column(1).to_pylist() if batch is not None else []
    assert seen == [0, 1, 3]
    assert [message.offset() for message in given if message.offset() >= made.ends[0][1]] == [made.ends[0][1]]


@pytest.mark.conformance
def test_other_formats(broker: KafkaBroker, topic: Topic) -> None:
    name = topic([b"a,1", b'"b, c",2', None])
    raw = read_all(ef.sources.kafka(broker.address, name, starting="earliest", ending="latest"))
    assert raw["value"].to_pylist() == [b"a,1", b'"b, c",2', None] and raw["key"].to_pylist() == [b"key"] * 3
    assert raw["offset"].to_pylist() == [0, 1, 2] and set(raw["topic"].to_pylist()) == {name}
    text = read_all(ef.sources.kafka(broker.address, name, format="text", starting="earliest", ending="latest"))
    assert text["value"].to_pylist() == ["a,1", '"b, c",2', None]
    csv = read_all(source(broker, name, format="csv", bad_messages="skip"))
    assert csv.select(["k", "v"]).to_pylist() == [{"k": "a", "v": 1}, {"k": "b, c", "v": 2}]


def test_several_topics_and_those_of_a_pattern(broker: KafkaBroker, topic: Topic) -> None:
    first, second = sorted((topic(rows(1), rows(2)), topic(rows(3))))
    values_of = {first: 0, second: 0}
    for asked in ({"topic": [second, first]}, {"topic_pattern": f"{first}|{second[:-1]}."}):
        made = ef.sources.kafka(
            broker.address,
            schema=SCHEMA,
            include="topic, partition",
            starting="earliest",
            ending={first: "latest", second: "latest"},
            **asked,
        )
        assert made.partitions(2) == 3 and ef.sources.from_json(json.loads(json.dumps(made.to_json()))) == made
        seen = [row for part in range(3) for row in read_all(made, part, 3).to_pylist()]
        assert sorted(row["v"] for row in seen) == [1, 2, 3]
        values_of = {name: sum(row["v"] for row in seen if row["kafka_topic"] == name) for name in values_of}
        assert sorted(values_of.values()) == [3, 3] and {row["kafka_partition"] for row in seen} == {0, 1}
    with pytest.raises(SourceError, match="no topic whose whole name"):
        ef.sources.kafka(broker.address, topic_pattern="nothing.*like it")


def until_some(reader: Any) -> pa.RecordBatch:
    """The next rows of a reader, however long the broker takes."""
    late_s = time.monotonic() + 40.0
    while (batch := reader.read(0, 100)) is None:
        assert time.monotonic() < late_s
        threading.Event().wait(0.02)  # Who asks the broker meanwhile keeps it from answering the reader.
    return batch


def test_partitions_that_come_are_read_at_their_places(broker: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: rows of a new partition, by whoever reads its place, from the beginning or on. Method: a topic gets one, then one too many."""
    monkeypatch.setattr(sys.modules["evenflow.sources.kafka"], "LOOK_MS", 50)
    name = topic(rows(1))
    made = source(broker, name, ending=None, spare=1)
    assert made.partitions(1) == 2
    reader = made.open(1, 2)
    assert reader.read(0, 10) is None
    admin = AdminClient({"bootstrap.servers": broker.address})
    grow(admin, name, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for value in rows(7, 8):
        producer.produce(name, value, partition=1)
    producer.flush()
    seen = until_some(reader)
    while seen.num_rows < 2:
        seen = pa.concat_batches([seen, until_some(reader)])
    assert seen.column("v").to_pylist() == [7, 8] and reader.behind() == (name, 0)
    again = made.open(1, 2)
    again.skip(1)
    assert until_some(again).column("v").to_pylist() == [8]
    again.close()
    now = source(broker, name, ending=None, spare=1)
    assert made.goes_on("starts", made.starts, now.starts)
    grow(admin, name, 3)
    with pytest.raises(SourceError, match="greater spare="):
        until_some(reader)
    reader.close()
    assert not made.goes_on("starts", made.starts, source(broker, name, ending=None).starts)


def grow(admin: Any, topic: str, partitions: int) -> None:
    new = sys.modules["confluent_kafka.admin"].NewPartitions
    admin.create_partitions([new(topic, partitions)])[topic].result()


BAD = {
    "no JSON": b"garbage", "another type": b'{"k": "k1", "v": "seven"}', "two objects": b'{"v": 1}{"v": 2}', "nothing": b" ", "null": None,
    "no text": b"\xff\xfe",
}  # fmt: skip


@pytest.mark.conformance
def test_avro_by_a_registry_from_a_broker(broker: KafkaBroker, topic: Topic) -> None:
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}]}
    given = [{"id": at, "item": None if at % 3 else f"item {at}"} for at in range(500)]
    name = topic(avro(schema, *given, number=1))
    schemas = Schemas()
    schemas.by_number[1] = schemas.newest[f"{name}-value"] = json.dumps(schema)
    with served(schemas):
        made = ef.sources.kafka(broker.address, name, registry=schemas.url, starting="earliest", ending="latest", include="key")
        found = read_all(made)
    assert found.select(["id", "item"]).to_pylist() == given and set(found["kafka_key"].to_pylist()) == {b"key"}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.conformance
def test_a_message_that_is_no_row_is_named_or_skipped(broker: KafkaBroker, topic: Topic, bad: bytes | None) -> None:
    name = topic([*rows(1), bad, *rows(2, 3)])
    with pytest.raises(SourceError, match=r"offset 1 of partition 0 is not json"):
        read_all(source(broker, name))
    reader = source(broker, name, bad_messages="skip").open(0, 1)
    seen: list[tuple[int, int]] = []
    while not reader.ended:
        batch = reader.read(0, 100)
        if batch is not None:
            seen += zip(batch.column("v").to_pylist(), batch.column("kafka_offset").to_pylist(), strict=True)
    assert seen == [(1, 0), (2, 2), (3, 3)] and isinstance(reader, KafkaReader) and reader.bad_messages == 1


@pytest.mark.conformance
def test_json_on_several_lines_is_one_row(broker: KafkaBroker, topic: Topic) -> None:
    made = source(broker, topic([json.dumps({"k": "a\nb", "v": 1}, indent=1).encode(), *rows(2)]))
    assert read_all(made)["k"].to_pylist() == ["a\nb", "k2"]


@pytest.mark.conformance
def test_where_reading_begins_and_ends(broker: KafkaBroker, topic: Topic) -> None:
    name = topic(rows(*range(10)), rows(*range(4)))
    assert read_all(source(broker, name, starting={0: 8, 1: 4}), 0, 2)["v"].to_pylist() == [8, 9]
    assert read_all(source(broker, name, starting={0: 8, 1: 4}), 1, 2).num_rows == 0
    assert read_all(source(broker, name, ending={0: 2, 1: 0}), 0, 2)["v"].to_pylist() == [0, 1]
    late = source(broker, name, starting="latest", ending=None)
    assert dict(late.starts) == {0: 10, 1: 4} and late.streaming
    with pytest.raises(SourceError, match="0 to 10, not 11"):
        source(broker, name, starting={0: 11, 1: 0})
    with pytest.raises(QueryError, match="partition 1 has none"):
        source(broker, name, starting={0: 1})


@pytest.mark.conformance
def test_messages_that_the_broker_has_deleted_are_an_error(broker: KafkaBroker, topic: Topic) -> None:
    made = source(broker, topic(rows(*range(10))), ending=None)
    place = confluent_kafka.TopicPartition(made.topic, 0, 5)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_records([place])[place].result()
    with pytest.raises(SourceError, match="has deleted the messages"):
        read_all(made)


@pytest.mark.conformance
def test_a_restart_goes_on_though_where_it_once_began_is_deleted(broker: KafkaBroker, topic: Topic) -> None:
    """Goal: a program with offsets is started again, long after its topic has forgotten them. Method: as a driver takes it up."""
    name, offsets = topic(rows(*range(10))), {"starting": {0: 2}, "ending": {0: 9}}
    source(broker, name, **offsets)
    place = confluent_kafka.TopicPartition(name, 0, 5)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_records([place])[place].result()
    again = source(broker, name, **offsets)
    assert again.starts == ((0, 2),)
    reader = again.open(0, 1)
    reader.skip(6)
    seen = list[int]()
    while not reader.ended:
        batch = reader.read(0, 5)
        seen += batch.column(1).to_pylist() if batch is not None else []
    assert seen == [6, 7, 8]
    with pytest.raises(SourceError, match="from offset 2: .*has deleted the messages"):
        read_all(again)


@pytest.mark.conformance
def test_what_cannot_be_read_is_refused_at_once(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="no topic 'nowhere'"):
        ef.sources.kafka(broker.address, "nowhere")
    monkeypatch.setattr(sys.modules["evenflow.sources.kafka_topics"], "LOOKUP_S", 0.5)
    with pytest.raises(SourceError, match="no broker answers"):
        ef.sources.kafka(NOBODY, "t")


def test_descriptions_that_make_no_sense() -> None:
    with pytest.raises(QueryError, match="give schema="):
        ef.sources.kafka(NOBODY, "t", format="json")
    with pytest.raises(QueryError, match="give schema="):
        ef.sources.kafka(NOBODY, "t", SCHEMA, format="raw")
    with pytest.raises(QueryError, match="rename it"):
        ef.sources.KafkaSource(NOBODY, "t", pa.schema([("kafka_offset", pa.int64())]), "json", ((0, 0),))
    with pytest.raises(QueryError, match="bad_messages"):
        ef.sources.KafkaSource(NOBODY, "t", SCHEMA, "json", ((0, 0),), bad_messages="maybe")  # type: ignore[arg-type]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(QueryError, match=r"evenflow\[kafka\]"):
        ef.sources.kafka(NOBODY, "t")


def test_descriptions_are_saved_without_secrets() -> None:
    made = ef.sources.KafkaSource(NOBODY, "t", SCHEMA, "json", ((0, 5), (1, 6)), options=(("client.id", "me"),))
    assert ef.sources.from_json(json.loads(json.dumps(made.to_json()))) == made
    sink = ef.sinks.kafka(NOBODY, "t", key="k")
    assert ef.sinks.from_json(json.loads(json.dumps(sink.to_json()))) == sink
    for described in (
        ef.sources.KafkaSource(NOBODY, "t", SCHEMA, "json", ((0, 5),), options=(("sasl.password", "x"),)),
        ef.sinks.kafka(NOBODY, "t", options={"sasl.password": "x"}),
    ):
        with pytest.raises(QueryError, match=r"sasl\.password"):
            described.to_json()
        assert "sasl" not in repr(described)


@pytest.mark.conformance
def test_kafka_in_sql(broker: KafkaBroker, topic: Topic) -> None:
    name = topic(rows(1, 2))
    text = f"""
        CREATE TEMPORARY VIEW asked (k string, v bigint) USING kafka
        OPTIONS (servers '{broker.address}', topic '{name}', starting 'earliest', ending 'latest',
                 options 'client.id=me, fetch.wait.max.ms=20');
        CREATE TABLE told USING kafka OPTIONS (servers '{broker.address}', topic 'told', key 'k');
        INSERT INTO told SELECT k, v + 1 AS v FROM asked;
        SELECT kafka_offset FROM asked"""
    network = ef.sql(text).to(ef.sinks.discard()).flow.network
    made = network.box("asked").params["source"]
    assert made.options == (("client.id", "me"), ("fetch.wait.max.ms", "20"))
    assert read_all(made)["v"].to_pylist() == [1, 2]
    sink = next(box.params["sink"] for box in network if box.kind == "sink" and box.params["sink"].kind == "kafka")
    assert (sink.topic, sink.key) == ("told", "k")
    with pytest.raises(QueryError, match="no value"):
        ef.sources.kafka(broker.address, name, options="client.id")


class Awaited:
    """A consumer of which everybody waits until it has something: a broker takes real time, of which a simulated world knows nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        found: list[Any] = self._inner.consume(num_messages, timeout) or self._inner.consume(1, 60.0)
        return found


def test_a_site_dies_that_reads_a_topic(broker: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: every message counts once. Method: in the simulator, kill the leader of a partition after some hundred epochs; its successor
    has to go on behind the last offset in its log, over the gaps that transactions leave."""
    told: list[int] = []
    skip = KafkaReader.skip
    monkeypatch.setattr(KafkaReader, "skip", lambda reader, rows: (told.append(rows), skip(reader, rows))[1])
    opened = KafkaReader._open
    monkeypatch.setattr(KafkaReader, "_open", lambda reader: Awaited(opened(reader)))
    flow = ef.Dataflow("kafka")
    named = topic(rows(*range(90)), rows(*range(90, 150)), transactional=True)
    flow.source(source(broker, named)).group_by("k").agg(n="count(*)", s="sum(v)").to(ef.sinks.memory("out"), name="out")
    planned, options = layout(flow.network, sites=3, partitions=8), FlowOptions(linger_ms=0.5, epoch_rows=4)
    world = SimWorld(planned, sites=3, replicas=2, options=options, read_rows=3)
    leader = world.coordinator.membership.leaders[0][0].site
    log = world.sites[leader].part.leading.logs[0, 0]
    world.run_until(lambda: log.settled > 5 and log.taken_settled > 20, 600.0, "its successor knows of a part of the topic")
    world.kill(leader)
    world.run_until(lambda: any(event.kind == "take_over" for _, event in world.happened), 600.0, "the take-over")
    world.run_until_quiet(600.0)
    kept = [value for values in (range(90), range(90, 150)) for at, value in enumerate(values) if at % 3 != 2]
    newest = {row["k"]: (row["n"], row["s"]) for row in world.output("out").to_pylist()}
    assert newest == {f"k{k}": (len(own := [v for v in kept if v % 3 == k]), sum(own)) for k in range(3) if any(v % 3 == k for v in kept)}
    assert told and min(told) > 20, "nobody went on reading in the middle"


# ---------------------------------------------------------------- sink


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": f"k{value}", "v": value} for value in values], schema=SCHEMA)


def committed(broker: KafkaBroker, topic: str) -> list[Any]:
    table = read_all(ef.sources.kafka(broker.address, topic, starting="earliest", ending="latest"))
    return [(key, json.loads(value)) for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)]


def values(broker: KafkaBroker, topic: str) -> list[int]:
    return [value["v"] for _, value in committed(broker, topic)]


def test_an_epoch_counts_once_however_often_it_is_written(broker: KafkaBroker, topic: Topic) -> None:
    sink = ef.sinks.kafka(broker.address, topic(), key="k")
    first = sink.open("run-1")
    first.write(1, batch(1, 2))
    first.write(2, batch())
    first.write(3, batch(3))
    first.write(3, batch(3))
    first.close()
    first.close()
    second = sink.open("run-1")  # As if nobody knew what had become of epoch 3.
    second.write(3, batch(3))
    second.write(4, batch(4))
    second.close()
    assert committed(broker, sink.topic) == [(f"k{v}".encode(), {"k": f"k{v}", "v": v}) for v in (1, 2, 3, 4)]


def test_headers_are_a_column_of_the_rows(broker: KafkaBroker, topic: Topic) -> None:
    asked = pa.schema([("k", pa.string()), ("h", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))])
    given = [{"k": "a", "h": [{"key": "x", "value": b"1"}, {"key": "x", "value": None}]}, {"k": "b", "h": None}]
    sink = ef.sinks.kafka(broker.address, topic(), key="k", headers="h")
    writer = sink.open("run-1")
    writer.write(1, pa.RecordBatch.from_pylist(given, asked))
    writer.close()
    found = read_all(
        ef.sources.kafka(broker.address, sink.topic, "k string", include="key, headers", starting="earliest", ending="latest")
    ).to_pylist()
    assert [(row["k"], row["kafka_key"]) for row in found] == [("a", b"a"), ("b", b"b")]
    assert [row["kafka_headers"] for row in found] == [given[0]["h"], []]
    a_map = pa.RecordBatch.from_pylist([{"h": [("x", "1")]}], pa.schema([("h", pa.map_(pa.string(), pa.string()))]))
    assert sink.headers_of(a_map) == [[("x", b"1")]]
    with pytest.raises(TypeMismatch, match="array of structs"):
        sink.check(pa.schema([("k", pa.string()), ("h", pa.int64())]))


@pytest.mark.conformance
def test_a_transaction_that_was_not_committed_leaves_nothing(broker: KafkaBroker, topic: Topic) -> None:
    """Goal: an epoch is there whole or not at all. Method: a writer is lost after its messages have been sent and before the commit; the
    next one of the run writes the epoch again."""
    sink = ef.sinks.kafka(broker.address, topic())
    lost = sink.open("run-1")
    lost.write(1, batch(1))
    lost._producer.begin_transaction()
    lost._producer.produce(sink.topic, b'{"v": 2}')
    lost._producer.flush()
    again = sink.open("run-1")
    again.write(2, batch(2, 3))
    with pytest.raises(SinkError):  # It is fenced.
        lost.write(3, batch(9))
    again.write(3, batch(4))
    again.close()
    lost.close()
    assert values(broker, sink.topic) == [1, 2, 3, 4]


def test_a_commit_whose_answer_is_lost_is_not_repeated(broker: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ef.sinks.kafka(broker.address, topic())
    writer = sink.open("run-1")

    class Deaf:
        """The producer, but the answer to its commit does not come."""

        def __init__(self, producer: Any) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def commit_transaction(self, timeout: float) -> None:
            self._producer.commit_transaction(timeout)
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT))

    writer._producer = Deaf(writer._producer)
    with pytest.raises(SinkError, match="cannot take epoch 1"):
        writer.write(1, batch(1))
    writer.write(1, batch(1))
    writer.write(2, batch(2))
    writer.close()
    assert values(broker, sink.topic) == [1, 2]


def test_a_generation_that_was_replaced_writes_no_more(broker: KafkaBroker, topic: Topic) -> None:
    """Goal: where each generation is a run of its own, one that was replaced and lives neither writes nor shuts its successor out."""
    sink = ef.sinks.kafka(broker.address, topic(), key="k")
    old = sink.open("run-1.g9")
    old.write(1, batch(1))
    new = sink.open("run-1.g10")
    assert new.newest == 0
    new.write(1, batch(2))
    with pytest.raises(SinkError, match="cannot take epoch 2"):
        old.write(2, batch(3))
    for _ in range(2):
        with pytest.raises(SinkError, match="by a later generation than 9 of run run-1: another driver has taken this one's place"):
            old.write(2, batch(3))
        new.write(2, batch(4))
    new.close()
    old.close()
    with pytest.raises(SinkError, match="by a later generation than 9 of run run-1"):
        sink.open("run-1.g9")
    again = sink.open("run-1.g10")
    assert again.newest == 2
    again.close()
    assert values(broker, sink.topic) == [1, 2, 4]


@pytest.mark.conformance
def test_runs_and_sinks_do_not_know_each_other(broker: KafkaBroker, topic: Topic) -> None:
    one = ef.sinks.kafka(broker.address, topic())
    other = ef.sinks.kafka(broker.address, one.topic)
    writers = [one.open("run-1"), one.open("run-2"), other.open("run-1")]
    for value, writer in enumerate(writers):
        writer.write(1, batch(value))
        writer.close()
    assert values(broker, one.topic) == [0, 1, 2]


@pytest.mark.conformance
def test_what_json_has_no_type_for(broker: KafkaBroker, topic: Topic) -> None:
    sink = ef.sinks.kafka(broker.address, topic())
    row = {
        "t": pa.array([0], pa.timestamp("us", "UTC")), "d": pa.array([1], pa.date32()), "b": pa.array([b"\x01\xff"]),
        "n": pa.array(["1.50"]).cast(pa.decimal128(5, 2)), "x": pa.array([math.nan]), "y": pa.array([-math.inf]),
        "z": pa.array([None], pa.int64()),
    }  # fmt: skip
    writer = sink.open("run-1")
    writer.write(1, pa.RecordBatch.from_pydict(row))
    writer.close()
    ((_, made),) = committed(broker, sink.topic)
    assert made == {"t": "1970-01-01T00:00:00Z", "d": "1970-01-02", "b": "01ff", "n": "1.50", "x": "NaN", "y": "-Infinity", "z": None}


@pytest.mark.conformance
def test_raw_messages(broker: KafkaBroker, topic: Topic) -> None:
    sink = ef.sinks.kafka(broker.address, topic(), format="raw")
    writer = sink.open("run-1")
    writer.write(1, pa.RecordBatch.from_pydict({"key": ["a", None], "value": [b"1", b"2"]}))
    writer.close()
    table = read_all(ef.sources.kafka(broker.address, sink.topic, starting="earliest", ending="latest"))
    assert table.select(["key", "value"]).to_pylist() == [{"key": b"a", "value": b"1"}, {"key": None, "value": b"2"}]
    with pytest.raises(UnknownColumn, match="no column 'value'"):
        list(sink.messages(batch(1)))
    with pytest.raises(QueryError, match="raw"):
        ef.sinks.kafka(NOBODY, "t", format="raw", key="k")


@pytest.mark.conformance
def test_a_sink_that_nobody_can_write_to_says_so(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkError, match="no topic 'nowhere'"):
        ef.sinks.kafka(broker.address, "nowhere").open("run-1")
    monkeypatch.setattr(sys.modules["evenflow.sinks.kafka"], "TIMEOUT_S", 0.5)
    with pytest.raises(SinkError, match="no broker answers"):
        ef.sinks.kafka(NOBODY, "t").open("run-1")


def test_topics_that_come_are_read_at_the_places_that_the_driver_says(
    broker: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: rows of a topic that comes, by whoever reads its places, from the beginning or on; and a restart finds the same places. Method:
    two topics come that fit a pattern, and one that does not."""
    monkeypatch.setattr(sys.modules["evenflow.sources.kafka"], "LOOK_MS", 50)
    first = topic(rows(1))

    def described(**given: Any) -> Any:
        pattern = {"topic_pattern": f"{first}(-.*)?", "starting": "earliest"}
        return ef.sources.kafka(broker.address, schema=SCHEMA, **{**pattern, **given})

    made = described(spare_topics=2, spare=1)
    assert made.partitions(1) == 2 + 2 * 2 and made.look(()) == ()
    admin = AdminClient({"bootstrap.servers": broker.address})
    new_topic = sys.modules["confluent_kafka.admin"].NewTopic
    for name in (f"{first}-b", f"{first}-a", f"other-{first}"):
        admin.create_topics([new_topic(name, 1, 1)])[name].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for value in rows(7, 8):
        producer.produce(f"{first}-b", value, partition=0)
    producer.flush()
    assert made.look(()) == (f"{first}-a", f"{first}-b") and made.look((f"{first}-b",)) == (f"{first}-a",)
    waiting, reader = made.open(4, 6), made.open(2, 6)
    assert reader.read(0, 10) is None and reader._consumer is None, "a place that waits for a topic asks nobody"
    for each in (waiting, reader):
        each.meet((f"{first}-b",))
    seen = until_some(reader)
    while seen.num_rows < 2:
        seen = pa.concat_batches([seen, until_some(reader)])
    assert seen.column("v").to_pylist() == [7, 8] and waiting.read(0, 10) is None and reader.behind() == (f"{first}-b", 0)
    again = made.open(2, 6)
    again.skip(1)
    again.meet((f"{first}-b",))
    assert until_some(again).column("v").to_pylist() == [8]
    grow(admin, f"{first}-b", 3)
    last = made.open(3, 6)  # It reads the topic's last place, and looks out for what is behind it.
    last.meet((f"{first}-b",))
    with pytest.raises(SourceError, match=f"{first}-b has a partition 2 now.*greater spare="):
        until_some(last)
    for each in (again, reader, waiting, last):
        each.close()
    now = described()
    assert made.goes_on("places", made.places, now.places) is False, "three partitions are one too many"
    fewer = tuple(place for place in now.places if place != (f"{first}-b", 2))
    assert made.goes_on("places", made.places, fewer) and not described(spare_topics=1, topic_pattern=first).goes_on(
        "places", made.places, fewer
    )
    with pytest.raises(QueryError, match="spare_topics= is for topic_pattern="):
        ef.sources.kafka(broker.address, first, spare_topics=1)


# ---------------------------------------------------------------- cut by content


def cut_topic(broker: KafkaBroker, messages: list[tuple[int, int | None]], **config: str) -> str:
    """A new topic of one partition. messages: (log time in ms, value), a pulse if that is None."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    made = NewTopic(name, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([made])[name].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for at_ms, value in messages:
        headers = {"evenflow-pulse": b""} if value is None else None
        producer.produce(name, None if value is None else rows(value)[0], b"key", partition=0, timestamp=at_ms, headers=headers)
    producer.flush()
    return name


def produce_at(broker: KafkaBroker, topic: str, at_ms: int, value: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    producer.produce(topic, rows(value)[0], b"key", partition=0, timestamp=at_ms)
    producer.flush()


def epochs_of(made: ef.sources.Source, size: int, skip: int = 0, end: int = 0, most: int = 1_000) -> list[tuple[int, int]]:
    """(value, epoch) of each row, up to so many rows of a source that does not end."""
    reader, found, deadline = place(made.open(0, 1), skip, end=end), list[tuple[int, int]](), time.monotonic() + 20
    while not reader.ended and len(found) < most and time.monotonic() < deadline:
        batch = reader.read(0, size)
        if batch is not None:
            found += list(zip(batch.column("v").to_pylist(), batch.column(batch.num_columns - 1).to_pylist(), strict=True))
    reader.close()
    return found


def test_readers_agree_on_epochs_by_log_times_pulses_and_offsets(broker: KafkaBroker) -> None:
    """Late times enter the current epoch, and a pulse makes those behind it late."""
    base = 1_700_000_000_000
    given = [(0, 0), (45, 1), (5, 2), (100, None), (60, 3), (125, 4), (130, None)]
    name = cut_topic(broker, [(base + at, value) for at, value in given])
    by_time = cut_by_content(source(broker, name), ahead_ms=1e6, begin_us=base * 1000)
    wanted = [(0, 1), (1, 3), (2, 3), (3, 6), (4, 7)]
    assert epochs_of(by_time, 100) == wanted == epochs_of(by_time, 1)
    assert epochs_of(by_time, 2, skip=3) == wanted[3:], "who begins behind the third epoch reads the pulse again"
    by_place = cut_by_content(source(broker, name), by="place", rows=2).begun(0)
    assert epochs_of(by_place, 3) == [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)]


def test_pulses_bridge_a_gap_and_who_begins_behind_it_reads_on(broker: KafkaBroker) -> None:
    """Goal: `ahead_ms` is about neighbours: an hour passes with a bound of a minute. Method: pulses every 30 s, read by ones and all at
    once; then a reader as a copy or a restart opens it, behind the row before the gap and behind the one after it."""
    base, hour = 1_700_000_000_000, 3_600_000
    given = [
        (0, 0),
        *((at, None) for at in range(30_000, hour, 30_000)),
        (hour, 1),
        (hour + 5, 2),
        (hour + 40_000, 3),
        (hour + 80_000, None),
    ]
    name = cut_topic(broker, [(base + at, value) for at, value in given])
    made = cut_by_content(source(broker, name), ahead_ms=60_000, begin_us=base * 1000, width_ms=1000)
    wanted = [(0, 1), (1, 3601), (2, 3601), (3, 3641)]
    assert epochs_of(made, 100) == wanted == epochs_of(made, 1)
    offsets = [offset for offset, (_, value) in enumerate(given) if value is not None]
    for size in (1, 100):
        assert epochs_of(made, size, skip=1, end=1) == wanted[1:] == epochs_of(made, size, skip=1, end=1800)
        assert epochs_of(made, size, skip=offsets[2] + 1, end=3601) == wanted[3:] == epochs_of(made, size, skip=offsets[2] + 1, end=3640)


@pytest.mark.parametrize("jump", [0, None], ids=["row", "pulse"])
def test_what_is_too_far_ahead_is_so_for_who_begins_before_it(broker: KafkaBroker, jump: int | None) -> None:
    """A pulse, too: anyone may write one, and it would close epochs of years."""
    base = 1_384_000_000_000
    name = cut_topic(
        broker, [(base, 7), (base + 30_000, 8), (base + 61_000, None), (base + 10 * 365 * 86_400_000, jump), (base + 62_000, 9)]
    )
    made = cut_by_content(source(broker, name), ahead_ms=60_000, begin_us=base * 1000, width_ms=1000)
    said = rf"a {'row' if jump is not None else 'pulse'}'s log time is 2023-.* 315,359,939.000 s ahead .*allows 60.000 s"
    for skip, end in ((0, 0), (1, 20), (2, 31), (2, 61)):
        with pytest.raises(SourceError, match=said):
            epochs_of(made, 1, skip, end)


def region_of(made: Any, begin_us: int) -> tuple[Any, str]:
    """The source as a region of a group has it, and the group's digest of what is done."""
    flow = ef.Dataflow("group")
    flow.source(made).to(ef.sinks.memory("out"))
    planned, region = as_region(layout(flow.network, sites=1), group("traffic", begin_us / 1e6), 1)
    (source,) = planned.sources.values()
    return source, region.group.network


@pytest.mark.parametrize("cut", [{"ahead_ms": 1e7, "width_ms": 1000}, {"by": "place", "rows": 2}], ids=["time", "place"])
@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_regions_read_from_the_begin_whenever_they_are_started(broker: KafkaBroker, cut: dict[str, Any], starting: str) -> None:
    """Goal: which rows a region reads is the group's, and not of the moment at which it was described. Method: one is described in the
    middle of the topic, one behind it, and the topic has rows from before the begin, and such that come late."""
    base = 1_700_000_000_000
    given = [(0, 0), (900, 1), (2000, 2), (1500, 3), (500, 4), (2600, 5)]
    name = cut_topic(broker, [(base + at, value) for at, value in given])
    begin_us, found = (base + 1000) * 1000, list[Any]()
    for more in ([], [(base + 4100, 6), (base + 4200, 7)]):
        for at_ms, value in more:
            produce_at(broker, name, at_ms, value)
        described = cut_by_content(source(broker, name, starting=starting, ending=None), **cut)
        found.append(region_of(described, begin_us))
    assert found[0][1] == found[1][1], "they are of one group"
    wanted = [(2, 2), (3, 2), (4, 2), (5, 2), (6, 4), (7, 4)] if "ahead_ms" in cut else [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)]
    for made, _ in found:
        assert epochs_of(made, 3, most=6) == wanted
        first, skip, end = (4, 6, 2) if "ahead_ms" in cut else (2, 4, 1)
        assert epochs_of(made, 1, skip=skip, end=end, most=6 - first) == wanted[first:]


def test_a_region_drops_what_is_older_than_a_begin_that_had_not_come(broker: KafkaBroker) -> None:
    """Nobody knows the offset then; which message is the first, all find alike."""
    base = 1_700_000_000_000
    name = cut_topic(broker, [(base, 0)])
    cut: dict[str, Any] = {"ahead_ms": 1e7, "width_ms": 1000}
    early, digest = region_of(cut_by_content(source(broker, name, ending=None), **cut), (base + 5000) * 1000)
    for at_ms, value in ((4000, 1), (5500, 2), (4500, 3)):
        produce_at(broker, name, base + at_ms, value)
    late, again = region_of(cut_by_content(source(broker, name, starting="latest", ending=None), **cut), (base + 5000) * 1000)
    assert digest == again and early.source.starts != late.source.starts
    assert epochs_of(early, 10, most=2) == epochs_of(late, 1, most=2) == [(2, 1), (3, 1)]


def test_offsets_that_were_said_are_alike_in_all_regions(broker: KafkaBroker) -> None:
    base = 1_700_000_000_000
    name = cut_topic(broker, [(base + at, at) for at in range(5)])
    one, other, same = (
        region_of(cut_by_content(source(broker, name, starting={0: at}, ending=None), ahead_ms=1e7), base * 1000) for at in (1, 2, 1)
    )
    assert one[0].source.starts == ((0, 1),) and one[1] == same[1] != other[1]


def test_a_region_that_would_begin_behind_what_is_gone_is_refused(broker: KafkaBroker) -> None:
    base, made, admin = int(time.time() * 1000) - 7_200_000, list[Any](), AdminClient({"bootstrap.servers": broker.address})
    for kept in ({"retention_bytes": str(2**40)}, {"retention_ms": "36000000"}):
        name = cut_topic(broker, [(base + at * 1000, at) for at in range(6)], **kept)
        for done in admin.delete_records([confluent_kafka.TopicPartition(name, 0, 3)]).values():
            done.result(30)
        assert oldest(broker.address, (), [(name, 0)]) == [3]
        made.append(cut_by_content(source(broker, name, ending=None), ahead_ms=1e7))
    now_us = int(time.time() * 1e6)
    for begin_ms, refused in ((base, True), (base + 2500, True), (base + 3500, False), (base + 9_000_000, False)):
        said = region_of(made[0], begin_ms * 1000)[0].lacks(now_us)
        assert ("from offset 3 on" in said) if refused else said is None
        assert region_of(made[1], begin_ms * 1000)[0].lacks(now_us) is None, "what is so young has not been deleted"


@pytest.mark.conformance
def test_topics_whose_content_is_not_the_same_for_all_are_refused_by_name(broker: KafkaBroker) -> None:
    compacted = source(broker, cut_topic(broker, [(1000, 1)], cleanup_policy="compact"))
    with pytest.raises(QueryError, match="is compacted, so that who reads it later reads other rows"):
        cut_by_content(compacted, by="place")
    theirs = source(broker, cut_topic(broker, [(1000, 1)]))
    with pytest.raises(QueryError, match="producers set the times of topic .* give cut_ahead_ms"):
        cut_by_content(theirs)
    cut_by_content(theirs, mirrored=True)
    cut_by_content(source(broker, cut_topic(broker, [(1000, 1)], message_timestamp_type="LogAppendTime")))
    with pytest.raises(QueryError, match="leave spare= and spare_topics= out"):
        cut_by_content(source(broker, cut_topic(broker, [(1000, 1)]), ending=None, spare=1), mirrored=True)


@pytest.mark.conformance
def test_a_log_time_in_the_future_is_an_error_that_names_it(broker: KafkaBroker) -> None:
    base = 1_384_000_000_000  # What is ahead of its own clock a broker refuses by itself.
    name = cut_topic(broker, [(base, 0), (base + 10 * 365 * 86_400_000, 1)])
    made = cut_by_content(source(broker, name), ahead_ms=60_000, begin_us=base * 1000)
    with pytest.raises(SourceError, match=r"a row's log time is 2023-.*cut_ahead_ms allows 60.000 s: the same at every reader"):
        epochs_of(made, 10)
