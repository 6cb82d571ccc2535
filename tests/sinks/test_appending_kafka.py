"""Several regions write to one topic: each epoch once, a region that was fenced stands by, one that hangs in a transaction holds nobody."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.committing import STANDS_BY
from evenflow.availability.group import Group, Shape
from evenflow.bench.kafka_broker import KafkaBroker
from evenflow.errors import GroupDiffers, RegionsDisagree, SinkError
from evenflow.sinks.kafka import KafkaSink, producing
from evenflow.sources.kafka_client import cluster_settings
from evenflow.world.spark.regions.appending import AppendingWriter, Shared
from tests.kafka import broker

__all__ = ["broker"]
confluent_kafka = pytest.importorskip("confluent_kafka")
AdminClient, NewTopic = (getattr(pytest.importorskip("confluent_kafka.admin"), name) for name in ("AdminClient", "NewTopic"))
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(150)]


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": list(values)})


def new_topic(broker: KafkaBroker) -> Any:
    name = f"t{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(name, 1, 1)]).values():
        made.result(30)
    return ef.sinks.kafka(broker.address, name)


def region(sink: Any, place: int, group: str = "traffic", last: int = 0, whose: str = "") -> AppendingWriter:
    return Shared(sink, "out", place, last, whose).open(group)  # type: ignore[return-value]


def commits(broker: KafkaBroker) -> int:
    """Messages in the broker's own topic of committed offsets."""
    asking = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": uuid.uuid4().hex})
    partitions = asking.list_topics("__consumer_offsets", timeout=15).topics["__consumer_offsets"].partitions
    marks = [
        asking.get_watermark_offsets(confluent_kafka.TopicPartition("__consumer_offsets", number), timeout=15) for number in partitions
    ]
    asking.close()
    return sum(high for _, high in marks)


def values(broker: KafkaBroker, topic: str) -> list[int]:
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed",
         "auto.offset.reset": "earliest", "enable.partition.eof": True}
    )  # fmt: skip
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = list[int]()
    while True:
        message = reader.poll(20.0)
        if message is None or message.error() is not None:
            reader.close()
            return found
        found.append(json.loads(message.value())["v"])


def test_a_topic_has_each_epoch_once_whoever_writes_it(broker: KafkaBroker) -> None:
    sink = new_topic(broker)
    first, second = region(sink, 0), region(sink, 1)
    for epoch in (1, 4):
        first.write(epoch, rows(epoch, 10 * epoch))
        second.write(epoch, rows(epoch, 10 * epoch))
    assert (first.appended, second.appended, second.seen) == (2, 0, 2)
    # The first one hangs in the middle of a transaction: the second one ends that, and goes on.
    producer = first._appender._producer  # type: ignore[attr-defined]
    producer.begin_transaction()
    producer.produce(sink.topic, b'{"v": 99}')
    producer.flush()
    second.write(7, rows(7))
    second.write(9, rows(9))
    assert second.appended == 2
    # It comes back in the middle of what it had begun: that fails, and the next try finds the epoch there.
    with pytest.raises(SinkError, match="cannot take epoch 7"):
        first.write(7, rows(7))
    first.write(7, rows(7))
    first.write(9, rows(9))
    assert first.appended == 2 and first.seen == 2
    first.close()
    second.write(10, rows(10))
    second.close()
    assert values(broker, sink.topic) == [1, 10, 4, 40, 7, 9, 10]


@pytest.mark.parametrize("committed", [False, True], ids=["first", "later"])
def test_who_comes_back_while_a_transaction_hangs_learns_what_the_topic_has(broker: KafkaBroker, committed: bool) -> None:
    """Goal: no answer is not an empty topic. Method: a region dies between the offset and the commit, for which the broker waits 60 s."""
    sink = new_topic(broker)
    first = region(sink, 0)
    first.write(1, rows(1))
    if committed:
        first.write(4, rows(4))
    last = 4 if committed else 1
    hanging = first._appender
    producer = hanging._producer  # type: ignore[attr-defined]
    producer.begin_transaction()
    producer.produce(sink.topic, b'{"v": 99}')
    done = confluent_kafka.TopicPartition(sink.topic, 0, 7, metadata="7")
    producer.send_offsets_to_transaction([done], hanging._group.consumer_group_metadata(), 15)  # type: ignore[attr-defined]
    back = region(sink, 0, last=last)
    back.write(7, rows(7))
    assert (back.appended, back.seen) == (1, 0)
    assert values(broker, sink.topic) == ([1, 4, 7] if committed else [1, 7])
    first.close()
    back.close()


def test_who_is_not_answered_knows_nothing_and_asks_again(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = new_topic(broker)
    first = region(sink, 0)
    first.write(1, rows(1))
    first.close()
    back = region(sink, 0, last=1)
    away = replace(sink, servers="127.0.0.1:1")
    monkeypatch.setattr(import_module("evenflow.sinks.kafka"), "TIMEOUT_S", 1.0)
    appender = back._appender
    asked, settings = appender._group, appender._settings  # type: ignore[attr-defined]
    appender._settings = cluster_settings(away.servers, ())  # type: ignore[attr-defined]
    appender._group = confluent_kafka.Consumer({**appender._settings, "group.id": appender._name})  # type: ignore[attr-defined]
    with pytest.raises(SinkError, match="does not say what it has"):
        back.write(4, rows(4))
    appender._group, appender._settings = asked, settings  # type: ignore[attr-defined]
    back.write(4, rows(4))
    assert back.appended == 1 and values(broker, sink.topic) == [1, 4]
    back.close()


def test_who_is_fenced_in_the_middle_stands_by_and_takes_over_when_nobody_writes(broker: KafkaBroker) -> None:
    sink = new_topic(broker)
    first, other = region(sink, 0), region(sink, 1)
    first.write(1, rows(1))
    fencing = other._appender
    fencing.last()
    assert fencing.append(0, 1, 0, rows(1)) is False, "its producer was opened, and the sink is further"
    first.write(2, rows(2))
    assert first.appended == 2 and not first._appending.turns.stands_by, "it was fenced, waited, and went on since nobody else did"
    assert STANDS_BY == 16
    assert values(broker, sink.topic) == [1, 2]
    first.close()
    other.close()


@dataclass(frozen=True)
class Fenced(KafkaSink):
    """Is fenced, hands over a row, and goes on handing over: by then the broker has told it so, beside a request of its own."""

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None]]:
        given = list(super().messages(batch))
        if batch.num_rows == 1:
            yield from given
            return
        other = confluent_kafka.Producer(producing({"bootstrap.servers": self.servers}, f"evenflow-traffic-{self.topic}-out"))
        other.init_transactions(15)
        yield given[0]
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:
            other.poll(0.1)
        yield from given[1:]


def test_a_fence_that_shows_while_rows_are_handed_over_is_one(broker: KafkaBroker) -> None:
    """Goal: who is fenced stands by, and does not fence back at once. Method: it is so in the middle of an epoch."""
    plain = new_topic(broker)
    sink = Fenced(**{each.name: getattr(plain, each.name) for each in fields(plain)})
    appender = sink.open_for_group("traffic", "out")
    assert appender.last() == (0, 0) and appender.append(0, 1, 1, rows(1))
    assert appender.append(1, 2, 2, rows(2, 3, 4)) is False and appender.fenced
    assert appender.last() == (1, 1) and appender.append(1, 2, 2, rows(5)), "it was given up, and can be opened again"
    appender.close()
    assert values(broker, sink.topic) == [1, 5]


def test_what_the_topic_has_is_committed_again_where_no_epoch_has_rows(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker forgets what nobody commits. Commits are counted by the transactions that it knows of."""
    sink = new_topic(broker)
    first, second = region(sink, 0, whose="{}"), region(sink, 1)
    first.write(3, rows(3))
    kept = first._appender.last()
    for one, says in ((first, True), (second, True), (second, True), (first, False)):
        before = commits(broker)
        one.write(4, rows().slice(0, 0))
        assert commits(broker) == before, "not before it is time"
        with monkeypatch.context() as later:
            later.setattr("evenflow.world.spark.regions.appending.AGAIN_US", 0)
            one.write(5, rows().slice(0, 0))
        assert one._appender.last() == kept and one._appender.noted == "{}"
        assert (commits(broker) > before) == says, "who was fenced leaves it to the one that did that"
    first.write(9, rows(9))
    second.write(3, rows(3))
    second.write(9, rows(9))
    assert (first.appended, second.seen) == (2, 2) and values(broker, sink.topic) == [3, 9]
    first.close()
    second.close()


def test_a_region_with_other_rows_is_stopped(broker: KafkaBroker) -> None:
    sink = new_topic(broker)
    first, second = region(sink, 0), region(sink, 1)
    first.write(1, rows(1))
    with pytest.raises(RegionsDisagree, match="epoch 1"):
        second.write(1, rows(2))
    first.close()
    second.close()
    assert values(broker, sink.topic) == [1]


def test_another_run_under_the_name_is_refused_before_it_drops_a_row(broker: KafkaBroker) -> None:
    sink = new_topic(broker)
    earlier, later = (Group("traffic", begin, 20_000, Shape(2), "program", "1").chained() for begin in (0, 3_600_000_000))
    first = region(sink, 0, whose=earlier)
    first.write(9, rows(9))
    first.close()
    again = region(sink, 0, whose=later)
    with pytest.raises(GroupDiffers, match="origin_us"):
        again.write(3, rows(3))
    again.close()
    goes_on = region(sink, 0, last=9, whose=earlier)
    goes_on.write(10, rows(10))
    goes_on.close()
    assert values(broker, sink.topic) == [9, 10]


def test_groups_do_not_know_each_other(broker: KafkaBroker) -> None:
    sink = new_topic(broker)
    one, other = region(sink, 0), region(sink, 0, "other")
    one.write(1, rows(1))
    other.write(1, rows(2))
    one.close()
    other.close()
    assert sorted(values(broker, sink.topic)) == [1, 2]
