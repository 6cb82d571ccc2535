"""Settings of a producer of transactions."""

from __future__ import annotations

from evenflow.sinks.kafka import producing


def test_a_broker_that_is_not_done_with_the_last_transaction_is_asked_again_soon() -> None:
    """The client's own 100 ms would be seven epochs a second."""
    made = producing({"bootstrap.servers": "b:9092"}, "evenflow-run-out")
    assert int(made["retry.backoff.ms"]) <= 10 and made["transactional.id"] == "evenflow-run-out"
    assert producing({"retry.backoff.ms": "100"}, "x")["retry.backoff.ms"] == "100", "who says it has it"
    assert producing({"transactional.id": "mine"}, "x")["transactional.id"] == "x", "by which regions fence each other"
