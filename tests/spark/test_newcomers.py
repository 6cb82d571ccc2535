"""Topics that begin to match a pattern while a run goes on, on a real broker: read once each, before and after a restart (decision 101)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.bench.kafka_broker import KafkaBroker
from evenflow.errors import SourceError
from evenflow.world.spark.driver import newcomers
from tests.kafka import broker

__all__ = ["broker"]
confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(300)]

MESSAGES = 2_000


def produce(broker: KafkaBroker, topic: str, first: int, last: int, partition: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
    for value in range(first, last):
        producer.produce(topic, json.dumps({"v": value}), partition=partition)
    producer.flush()


def wait(reached: Callable[[], bool]) -> None:
    late_s = time.monotonic() + 60.0
    while not reached():
        assert time.monotonic() < late_s
        time.sleep(0.05)


def test_topics_come_while_a_run_goes_on_and_while_it_is_away(
    broker: KafkaBroker, spark: Any, engine: ef.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: each message once. Method: one topic comes while the run goes on; then the run is stopped in the middle of it, a second one
    comes that stands before it in the alphabet, and the run is gone on with by a source that knows all three from the start."""
    monkeypatch.setattr(newcomers, "LOOK_S", 0.2)
    sink = ef.sinks.parquet(str(tmp_path / "out"), commit_interval_ms=50)

    def flow() -> ef.Dataflow:
        made = ef.Dataflow("newcomers")
        like = {"topic_pattern": "new(-.*)?", "spare_topics": 2, "starting": "earliest", "include": "topic"}
        made.source(ef.sources.kafka(broker.address, schema="v bigint", **like), name="in").select("v", "kafka_topic").to(sink, name="out")
        return made

    def rows() -> set[tuple[str, int]]:
        found = [(row["kafka_topic"], row["v"]) for row in sink.read().to_pylist()]
        assert len(found) == len(set(found)), "a message is there twice"
        return set(found)

    broker.create_topic("new", 1)
    produce(broker, "new", 0, MESSAGES)
    location = str(tmp_path / "location")
    run = engine.start(flow(), checkpoint_location=location)
    wait(lambda: len(rows()) == MESSAGES)
    broker.create_topic("new-b", 1)
    produce(broker, "new-b", 0, MESSAGES)
    wait(lambda: ("new-b", MESSAGES - 1) in rows())
    assert [event["name"] for event in run.events() if event["kind"] == "newcomer"] == ["new-b"]
    produce(broker, "new-b", MESSAGES, 2 * MESSAGES)
    run.stop()
    broker.create_topic("new-a", 1)
    produce(broker, "new-a", 0, MESSAGES)
    run = engine.start(flow(), checkpoint_location=location)
    expected = {(name, at) for name, count in (("new", 1), ("new-b", 2), ("new-a", 1)) for at in range(count * MESSAGES)}
    wait(lambda: len(rows()) >= len(expected))
    assert rows() == expected
    assert [event["name"] for event in run.events() if event["kind"] == "newcomer"] == ["new-a"]
    broker.create_topic("new-c", 1)
    with pytest.raises(SourceError, match="new-c came while it is read.*more .spare_topics="):
        run.await_termination(60.0)
    assert rows() == expected


def test_a_partition_that_came_is_read_on_at_its_place_after_a_restart(
    broker: KafkaBroker, spark: Any, engine: ef.Engine, tmp_path: Path
) -> None:
    """Goal: a topic that has grown into its spare places is no other dataflow. Method: it grows while the run goes on; stop; start."""
    sink = ef.sinks.parquet(str(tmp_path / "out"), commit_interval_ms=50)

    def flow() -> ef.Dataflow:
        made = ef.Dataflow("grown")
        options = {"topic.metadata.refresh.interval.ms": "300"}
        source = ef.sources.kafka(broker.address, "grown", "v bigint", spare=1, starting="earliest", options=options)
        made.source(source, name="in").select("v").to(sink, name="out")
        return made

    def rows() -> list[int]:
        return sorted(row["v"] for row in sink.read().to_pylist())

    broker.create_topic("grown", 1)
    produce(broker, "grown", 0, 100)
    location = str(tmp_path / "location")
    run = engine.start(flow(), checkpoint_location=location)
    admin = pytest.importorskip("confluent_kafka.admin")
    wait(lambda: len(rows()) == 100)
    client = admin.AdminClient({"bootstrap.servers": broker.address})  # what it promised ends with it
    client.create_partitions([admin.NewPartitions("grown", 2)])["grown"].result()
    produce(broker, "grown", 100, 200, partition=1)
    wait(lambda: len(rows()) == 200)
    run.stop()
    produce(broker, "grown", 200, 300, partition=1)
    run = engine.start(flow(), checkpoint_location=location)
    wait(lambda: len(rows()) >= 300)
    run.stop()
    assert rows() == list(range(300))
