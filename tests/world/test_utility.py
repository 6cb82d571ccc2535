"""What an output is worth, by what came of it and how old that was."""

from __future__ import annotations

import pytest

import evenflow as ef
from evenflow.coordinator.ledger import Ledger
from evenflow.query.planner import layout
from evenflow.statistics.histogram import bucket_of
from evenflow.world.spark.driver.run_numbers import outputs_of


def test_utility_is_weight_by_loss_by_latency() -> None:
    """Goal: `progress()["outputs"]` has what the design asks for. Method: half of the answers in time and half too late for all but half of
    their worth; an output without qos, and one of which nothing is known, have no utility."""
    flow, source = ef.Dataflow("worth"), ef.sources.generator(1000, 10, rows=10)
    rows = flow.source(source, name="in")
    rows.to(ef.sinks.memory("a"), name="a", qos=ef.qos(latency=[("250 ms", 1), ("750 ms", 0)], loss=[(0, 0), (1, 1)], weight=2))
    rows.to(ef.sinks.memory("b"), name="b", qos=ef.qos(latency=[("250 ms", 1), ("750 ms", 0)]))
    rows.to(ef.sinks.memory("c"), name="c", qos=ef.qos(weight=0.5))
    planned = layout(flow.network, sites=1, partitions=4)
    ages = {"a": {bucket_of(20_000): 5, bucket_of(500_000): 5}}
    found = {each.output: each for each in outputs_of(planned, Ledger(planned), [[(0, 10)]], 1, ages)}
    assert found["a"].delivered_share == 1 and found["a"].utility == pytest.approx(2 * (1 + 0.5) / 2, rel=0.05)
    assert found["a"].age_ms == pytest.approx(20, rel=0.1)
    assert (found["b"].utility, found["b"].age_ms) == (None, None)
    assert found["c"].utility == 0.5, "age does not matter"
