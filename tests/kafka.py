"""A real Kafka broker for tests, one for each module that asks for it; where it cannot be had they skip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenflow.bench.kafka_broker import BROKER, KAFKA_VERSION, KafkaBroker, resolve
from evenflow.errors import ClusterError


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    try:
        resolve(f"kafka-{KAFKA_VERSION}", BROKER)
    except ClusterError as error:
        pytest.skip(str(error))
    with KafkaBroker(heap_mb=256, quick=True) as made:
        yield made
