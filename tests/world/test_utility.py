"""What an output is worth, by what came of it and how old that was."""

from __future__ import annotations

import pytest

import evenflow as ef
from evenflow.coordinator.ledger import Ledger
from evenflow.plan.layout import Segment
from evenflow.query.planner import layout
from evenflow.statistics.growing import Growing
from evenflow.statistics.histogram import bucket_of
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow
from evenflow.statistics.wire import names_of
from evenflow.world.spark.driver.run_numbers import outputs_of, passed_of


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
    found = {each.output: each for each in outputs_of(planned, Ledger(planned), [[(0, 10)]], 1, ages, {})}
    assert found["a"].delivered_share == 1 and found["a"].utility == pytest.approx(2 * (1 + 0.5) / 2, rel=0.05)
    assert found["a"].age_ms == pytest.approx(20, rel=0.1)
    assert (found["b"].utility, found["b"].age_ms) == (None, None)
    assert found["c"].utility == 0.5, "age does not matter"


def window(segment: Segment, site: int, begin_us: int, came: int, passed: int) -> SiteWindow:
    """What a site tells of a segment with a gate: so many results have come to it, and so many have gone on."""
    boxes = tuple(BoxWindow(step.box, *((came, passed) if step.kind == "gate" else (100, 100)), 1) for step in segment.steps)
    told = SegmentWindow(segment.id, segment.name, (site,), (100,), (0,), 1, boxes)
    return SiteWindow(site, begin_us, begin_us + 5, 1, None, 7, 0, (told,), Latency())


def test_what_gates_hold_back_was_not_delivered() -> None:
    """Goal: one epoch that keeps a quarter costs an output of long sessions three quarters of them, and says so. Method: all but one in a
    hundred rows have entered; two sites have told of the gate, one of them twice."""
    flow, source = ef.Dataflow("held"), ef.sources.generator(1000, 10, rows=10)
    stream = flow.source(source, name="in").with_watermark("ts", "1 second")
    sessions = stream.group_by("key").session("10 minutes").agg(n="count(*)").name("visits")
    sessions.to(ef.sinks.memory("out"), name="out", qos=ef.qos(latency=[("250 ms", 1), ("750 ms", 0)]))
    planned = layout(flow.network, sites=2, partitions=4)
    gated = next(each for each in planned.segments if any(step.kind == "gate" for step in each.steps))
    growing = Growing(names_of(planned))
    assert passed_of(planned, growing) == {}, "no result has come"
    for site, begin_us, rows_out in ((0, 0, 10), (1, 0, 10), (1, 5, 5)):
        growing.add(window(gated, site, begin_us, 40 if begin_us == 0 else 20, rows_out))
    assert passed_of(planned, growing) == {gated.id: 0.25}
    ledger = Ledger(planned)
    (found,) = outputs_of(planned, ledger, [[(0, 100)]], 1, {}, passed_of(planned, growing))
    assert found.delivered_share == 0.25 and not found.protected
