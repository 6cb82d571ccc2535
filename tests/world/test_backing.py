"""Passive standby without a store: real site processes, sockets and kill -9, without Spark (P1 to P4). On executors: tests/spark."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.bench import killing
from evenflow.bench.bare import BareEngine

pytestmark = pytest.mark.timeout(180)
ROWS = 24_000
KEYS = 100


def totals(name: str, sink: Any, rate: int) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    made = ef.sources.generator(rate=rate, keys=KEYS, rows=ROWS, partitions=2, seed=11)
    flow.source(made, name="in").group_by("key").agg(n="count(*)", total="sum(value)").to(sink, name="out")
    return flow


def test_totals_that_only_a_dead_site_had_go_on_from_their_image() -> None:
    """Goal: every total is what it is where nothing dies, and no epoch is given twice.
    Method: kill -9 of a site with totals of its own, when all that is passive has an image and more has come since."""
    newest: dict[int, tuple[int, int]] = {}
    epochs: list[int] = []
    more = threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        newest.update({row["key"]: (row["n"], row["total"]) for row in batch.to_pylist()})
        epochs.append(epoch)
        if sum(n for n, _ in newest.values()) > ROWS // 3:
            more.set()

    with BareEngine(sites=3, replicas=2, partitions=16, capture_max_ms=100) as engine:
        whole = ef.sinks.memory("images-whole")
        assert engine.start(totals("whole", whole, 1_000_000)).await_termination(60)
        truth = {row["key"]: (row["n"], row["total"]) for row in whole.rows().to_pylist()}
        run = engine.start(totals("passive", ef.sinks.callback(take), 4_000), availability="passive")
        assert more.wait(60)
        driven = run._driven.machine
        assert run.progress()["protected"] == 1, "by now there is an image of all that is passive"
        segment = next(s for s in driven.layout.segments if s.kind != "ingress" and s.sink is None)
        sink = next(s for s in driven.layout.segments if s.sink is not None)
        victim = next(site for (site,) in driven.plan.placement[segment.id] if site != driven.plan.placement[sink.id][0][0])
        pid = next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim)
        engine.forsake()
        killing.kill([pid])
        assert run.await_termination(90)
        happened = [(event["kind"], event["text"]) for event in run.events()]
    begun = [text for kind, text in happened if kind == "copy_begun" and "begin again" in text]
    assert begun and not any(text.endswith("epoch 0") for text in begun), happened
    assert newest == truth
    assert epochs == sorted(set(epochs))
