"""An engine that speaks TLS within a range of ports does what one without does: counts are exact."""

from __future__ import annotations

from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import ClusterError
from tests.spark.test_ports import free_range

ROWS, KEYS = 200_000, 1_000


@pytest.mark.spark
@pytest.mark.conformance
def test_counts_are_exact_over_tls_within_a_range_of_ports(spark: Any) -> None:
    first, last = free_range(8)
    with ef.Engine(spark, sites=3, replicas=2, tls=True, ports=f"{first}-{last}") as engine:
        flow, sink = ef.Dataflow("encrypted"), ef.sinks.memory("encrypted")
        flow.source(ef.sources.generator(rows=ROWS, keys=KEYS)).group_by("key").agg(n="count(*)", combine=False).to(sink)
        run = engine.start(flow)
        coordinator: Any = engine._coordinator
        listening = {coordinator.port, *(site.address[1] for site in coordinator.known())}
        assert run.await_termination(120.0)
        newest = {row["key"]: row["n"] for row in sink.rows().to_pylist()}
    assert sum(newest.values()) == ROWS and len(newest) == KEYS
    assert len(listening) == 4 and all(first <= port <= last for port in listening)


@pytest.mark.spark
@pytest.mark.conformance
def test_a_range_that_is_too_narrow_ends_the_start_with_words(spark: Any) -> None:
    first, last = free_range(2)
    with pytest.raises(ClusterError, match=rf"all ports from {first} to {last} are taken on .*option ports"):
        ef.Engine(spark, sites=3, ports=(first, last), place_timeout_s=20.0).__enter__()
