"""Messages of a Kafka sink and settings of its producer, without a broker."""

from __future__ import annotations

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import TypeMismatch
from evenflow.sinks.kafka import KafkaSink, producing


def test_a_broker_that_is_not_done_with_the_last_transaction_is_asked_again_soon() -> None:
    """The client's own 100 ms would be seven epochs a second."""
    made = producing({"bootstrap.servers": "b:9092"}, "evenflow-run-out")
    assert int(made["retry.backoff.ms"]) <= 10 and made["transactional.id"] == "evenflow-run-out"
    assert producing({"retry.backoff.ms": "100"}, "x")["retry.backoff.ms"] == "100", "who says it has it"
    assert producing({"transactional.id": "mine"}, "x")["transactional.id"] == "x", "by which regions fence each other"


@pytest.mark.parametrize("type_", ["interval day to second", "array<struct<a: interval hour>>", "map<string, interval day>"])
def test_intervals_are_refused_before_a_row_is_read(type_: str) -> None:
    flow = ef.Dataflow("f")
    rows = flow.source(ef.sources.memory([], schema=f"k string, took {type_}"))
    with pytest.raises(TypeMismatch, match="'took' is .*interval.* no form in JSON; select its seconds"):
        rows.to(ef.sinks.kafka("b:9092", "t"))
    rows.select("k", "cast(cast(interval '90' second as interval second) as bigint) as seconds").to(ef.sinks.kafka("b:9092", "t"))


def test_times_beyond_the_years_of_python_are_messages() -> None:
    """A producer that mistakes milliseconds for microseconds makes such times."""
    batch = pa.record_batch(
        {"at": pa.array([10**18, 0], pa.timestamp("us", "UTC")), "l": pa.array([[4_000_000], [0]], pa.list_(pa.date32()))}
    )
    sink = KafkaSink("b:9092", "t", "out", key="at")
    assert list(sink.messages(batch)) == [
        (b"+33658-09-27T01:46:40Z", b'{"at":"+33658-09-27T01:46:40Z","l":["+12921-08-18"]}'),
        (b"1970-01-01 00:00:00+00:00", b'{"at":"1970-01-01T00:00:00Z","l":["1970-01-01"]}'),
    ]
