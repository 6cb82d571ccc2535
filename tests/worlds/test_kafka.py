"""From Kafka to Kafka on executors, of which one is killed: every message has its effect once, and every epoch is in the topic once."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.kafka_broker import KafkaBroker
from tests.kafka import broker
from tests.worlds.worlds import OnSpark

__all__ = ["broker"]
confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(300)]

MESSAGES, KEYS = 60_000, 40
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def produce(broker: KafkaBroker, topic: str, first: int, last: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
    for value in range(first, last):
        producer.produce(topic, json.dumps({"k": f"k{value % KEYS}", "v": value}), partition=value % 3)
        if value % 1000 == 0:
            producer.poll(0)
    producer.flush()


class Consumer:
    """Of the result's topic, committed messages only."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._reader = ef.sources.kafka(broker.address, topic, format="raw", starting="earliest").open(0, 1)
        self.rows: list[dict[str, Any]] = []

    def counted(self) -> int:
        """Messages of the source that the newest results count."""
        while (batch := self._reader.read(0, 10_000)) is not None:
            self.rows.extend(json.loads(value) for value in batch.column("value").to_pylist())
        return sum({row["k"]: row["n"] for row in self.rows}.values())

    def close(self) -> None:
        self._reader.close()


@pytest.mark.parametrize("role", ["leader", "egress"])
def test_an_executor_is_killed_between_two_topics(broker: KafkaBroker, on_spark: OnSpark, role: str) -> None:
    """Goal: exactly once from topic to topic. Method: kill the executor that reads the first partition, or one that puts out results, when
    half of the messages are in and the other half is on its way."""
    asked, told = f"asked-{role}", f"told-{role}"
    broker.create_topic(asked, 3)
    broker.create_topic(told, 1)
    produce(broker, asked, 0, MESSAGES // 2)
    flow = ef.Dataflow("kafka")
    rows = flow.source(ef.sources.kafka(broker.address, asked, SCHEMA, starting="earliest"))
    sink = ef.sinks.kafka(broker.address, told, key="k")
    on_spark.start(rows.group_by("k").agg(n="count(*)", s="sum(v)").to(sink).flow, sink)
    run: Any = on_spark.run
    on_spark.until(lambda: run.progress()["rows_in"] >= MESSAGES // 2, "half of the messages are in")
    on_spark.kill(getattr(on_spark.cast, role))
    produce(broker, asked, MESSAGES // 2, MESSAGES)
    on_spark.until(lambda: bool(on_spark.happened("site_lost")), "the site is lost")
    consumer = Consumer(broker, told)
    on_spark.until(lambda: consumer.counted() >= MESSAGES, "all messages are counted")
    level = [(asked, 0)]
    on_spark.until(lambda: [(one["topic"], one["messages"]) for one in run.progress()["behind"]] == level, "nothing is left to be read")
    run.stop()
    assert consumer.counted() == MESSAGES
    consumer.close()
    newest = {row["k"]: (row["n"], row["s"]) for row in consumer.rows}
    assert newest == {f"k{k}": (MESSAGES // KEYS, sum(range(k, MESSAGES, KEYS))) for k in range(KEYS)}
    for k in newest:
        counts = [row["n"] for row in consumer.rows if row["k"] == k]
        assert counts == sorted(set(counts)), "an epoch is in the topic twice, or in another order"
