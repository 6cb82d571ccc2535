"""Passive standby on real executors: one replica runs, and kill -9 of its site costs nothing but a moment (B1, B2)."""

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


def test_totals_that_only_a_dead_site_had_go_on_from_the_checkpoint(spark: Any, named: Named, tmp_path: Any) -> None:
    """Goal: every total is what it is where nothing dies, no epoch is given twice, and it is one generation.
    Method: kill -9 of a site with totals of its own, when a checkpoint is whole and more has come since."""
    newest: dict[int, tuple[int, int]] = {}
    epochs: list[int] = []
    more = threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        newest.update({row["key"]: (row["n"], row["total"]) for row in batch.to_pylist()})
        epochs.append(epoch)
        if sum(n for n, _ in newest.values()) > ROWS // 3:
            more.set()

    with ef.Engine(spark, sites=3, replicas=2, checkpoint_s=0.5) as engine:
        whole = ef.sinks.memory(named("whole"))
        assert engine.start(totals("whole", whole, 1_000_000)).await_termination(60)
        truth = {row["key"]: (row["n"], row["total"]) for row in whole.rows().to_pylist()}
        flow, location = totals("passive", ef.sinks.callback(take), 8_000), str(tmp_path / "at")
        run = engine.start(flow, checkpoint_location=location, availability="passive")
        assert more.wait(60)
        plan = run._driven.machine.plan
        segment = next(s for s in run._driven.machine.layout.segments if s.kind != "ingress" and s.sink is None)
        assert all(len(replicas) == 1 for replicas in plan.placement[segment.id])
        sink = next(s for s in run._driven.machine.layout.segments if s.sink is not None)
        victim = next(site for (site,) in plan.placement[segment.id] if site != plan.placement[sink.id][0][0])
        pid = next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim)
        os.kill(pid, signal.SIGKILL)
        assert run.await_termination(120)
        happened = [(event["kind"], event.get("site")) for event in run.events()]
    assert happened.count(("site_lost", victim)) == 1 and [site for kind, site in happened if kind == "take_over"] == [victim], happened
    assert newest == truth
    assert epochs == sorted(set(epochs))
