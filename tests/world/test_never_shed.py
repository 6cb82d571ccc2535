"""A source that is never late is never shed, and who asks for shedding is told: in the plan, and when the run starts."""

from __future__ import annotations

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench.bare import BareEngine
from evenflow.cli.plan import described
from evenflow.query.lateness import never_late, never_late_text
from evenflow.query.planner import layout
from evenflow.sources.kafka import KafkaSource
from evenflow.sources.source import Source

QOS = ef.qos(latency=[("250 ms", 1), ("1 s", 0)])


@pytest.mark.parametrize(
    "source",
    [
        ef.sources.generator(1_000_000, rows=100_000),
        ef.sources.generator(None, rows=100),
        ef.sources.packets(1_000_000),
        ef.sources.packets(None),
        ef.sources.nexmark("bid", rate=1_000_000),
        ef.sources.nexmark("bid"),
    ],
)
def test_whoever_says_that_he_can_tell_tells(source: Source) -> None:
    """Goal: `tells_due` is what readers do. Method: a reader that has been asked once, a while ago."""
    reader = source.open(0, 1)
    reader.read(1_000_000, 10)
    waiting = reader.waiting(1_500_000)
    assert source.tells_due == (waiting is not None and waiting.since_us is not None)


def test_a_plan_names_what_is_never_shed() -> None:
    flow = ef.Dataflow("f")
    flow.source(ef.sources.tcp_lines("localhost", 9, "v bigint"), name="lines").to(ef.sinks.discard(), qos=QOS)
    flow.source(ef.sources.generator(100), name="made").to(ef.sinks.discard(), qos=QOS)
    flow.source(ef.sources.generator(None), name="whole").to(ef.sinks.discard())
    assert never_late(flow.network) == ("lines",)
    assert never_late_text(flow.network) == "nothing is ever left out of source 'lines': nobody can say since when a row of it was due\n"
    cut = layout(flow.network, sites=2)
    assert described(flow, cut)["never_shed"] == ["lines"] and [*cut.sheds] == ["made"]
    broker = KafkaSource("nobody:1", "t", pa.schema([("v", pa.int64())]), "json", ((0, 0),))
    flow.source(broker, name="messages").to(ef.sinks.discard(), qos=QOS)
    assert "sources 'lines', 'messages'" in never_late_text(flow.network)


@pytest.mark.timeout(120)
def test_a_run_says_so_when_it_starts() -> None:
    flow, sink = ef.Dataflow("f"), ef.sinks.memory("never_shed")
    flow.source(ef.sources.generator(None, rows=1_000), name="fast").to(sink, qos=QOS)
    with BareEngine(sites=1, shedding="reflex") as engine:
        run = engine.start(flow)
        assert run.await_termination(60)
        [told] = [event for event in run.events() if event["kind"] == "never_shed"]
    assert told["sources"] == ["fast"] and "nothing is ever left out of source 'fast'" in told["text"]
    assert sink.rows().num_rows == 1_000
