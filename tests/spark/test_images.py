"""Passive standby without a store on real executors: kill -9 of a site, and what it had goes on from its image elsewhere (P1 to P4)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
Named = Callable[[str], str]
ROWS = 40_000
KEYS = 200


def totals(name: str, sink: Any, rate: int) -> ef.Dataflow:
    flow = ef.Dataflow(name)
    made = ef.sources.generator(rate=rate, keys=KEYS, rows=ROWS, partitions=2, seed=11)
    flow.source(made, name="in").group_by("key").agg(n="count(*)", total="sum(value)").to(sink, name="out")
    return flow


@pytest.mark.conformance
def test_totals_that_only_a_dead_site_had_go_on_from_their_image(spark: Any, named: Named) -> None:
    """Goal: every total is what it is where nothing dies, no epoch is given twice, and the run goes on, without a checkpoint location.
    Method: kill -9 of a site with totals of its own, when all that is passive has an image and more has come since."""
    newest: dict[int, tuple[int, int]] = {}
    epochs: list[int] = []
    more = threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        newest.update({row["key"]: (row["n"], row["total"]) for row in batch.to_pylist()})
        epochs.append(epoch)
        if sum(n for n, _ in newest.values()) > ROWS // 3:
            more.set()

    with ef.Engine(spark, sites=3, replicas=2, capture_max_ms=200) as engine:
        whole = ef.sinks.memory(named("whole"))
        assert engine.start(totals("whole", whole, 1_000_000)).await_termination(60)
        truth = {row["key"]: (row["n"], row["total"]) for row in whole.rows().to_pylist()}
        run = engine.start(totals("passive", ef.sinks.callback(take), 8_000), availability="passive")
        assert more.wait(60)
        driven = run._driven.machine
        assert driven.backing.protected(), "by now there is an image of all that is passive"
        segment = next(s for s in driven.layout.segments if s.kind != "ingress" and s.sink is None)
        sink = next(s for s in driven.layout.segments if s.sink is not None)
        victim = next(site for (site,) in driven.plan.placement[segment.id] if site != driven.plan.placement[sink.id][0][0])
        pid = next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim)
        os.kill(pid, signal.SIGKILL)
        assert run.await_termination(120)
        happened = [(event["kind"], event.get("site"), event["text"]) for event in run.events()]
    begun = [text for kind, _, text in happened if kind == "copy_begun" and "begin again" in text]
    assert begun and not any(text.endswith("epoch 0") for text in begun), happened
    assert newest == truth
    assert epochs == sorted(set(epochs))
