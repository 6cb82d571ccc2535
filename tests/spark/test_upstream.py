"""Upstream backup on real executors: one replica runs, and what a killed site had is made again of what its producers keep (B1, B2)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from tests.restarting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
Named = Callable[[str], str]
ROWS = 80_000


def windows(name: str, sink: Any, begin_us: int) -> ef.Dataflow:
    """begin_us: when the source begins: one that has begun long ago gives all of its rows at once."""
    flow = ef.Dataflow(name)
    made = ef.sources.generator(rate=8_000, keys=50, rows=ROWS, partitions=2, seed=11).begun(begin_us)
    timed = flow.source(made, name="in").with_watermark("ts", "10 milliseconds")
    timed.group_by("key").window("200 milliseconds").agg(n="count(*)", total="sum(value)").name("counted").to(sink, name="out")
    return flow


@pytest.mark.conformance
def test_windows_that_only_a_dead_site_had_are_made_again(spark: Any, named: Named) -> None:
    """Goal: every window is what it is where nothing dies, none comes twice, and there is no checkpoint location.
    Method: change to upstream backup while it runs, and kill -9 a site with windows of its own when they have a base."""
    rows: Counter[Any] = Counter()
    epochs: list[int] = []
    more = threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        rows.update(tuple(row.values()) for row in batch.to_pylist())
        epochs.append(epoch)
        if sum(row[3] * count for row, count in rows.items()) > ROWS // 8:
            more.set()

    with ef.Engine(spark, sites=3, replicas=2) as engine:
        begin_us = time.time_ns() // 1000
        run = engine.start(windows("upstream", ef.sinks.callback(take), begin_us))
        wait_until(lambda: run._driven.machine.running, 60.0, "the run to begin")
        assert set(run.set_availability("*", "upstream")["modes"].values()) == {"upstream"}
        assert more.wait(60)
        machine = run._driven.machine
        plan, layout = machine.plan, machine.layout
        segment = next(s for s in layout.segments if s.kind != "ingress" and s.sink is None)
        sink = next(s for s in layout.segments if s.sink is not None)
        begun = lambda: machine.reviving.has_base(segment.id) and machine.reviving.base_of(segment.id) > 0  # noqa: E731
        wait_until(begun, 20.0, "windows to have a base")
        victim = next(site for (site,) in plan.placement[segment.id] if site != plan.placement[sink.id][0][0])
        os.kill(next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim), signal.SIGKILL)
        assert run.await_termination(120)
        happened = [(event["kind"], event.get("site")) for event in run.events()]
        whole = ef.sinks.memory(named("whole"))
        assert engine.start(windows("whole", whole, begin_us)).await_termination(60)
        truth = Counter(tuple(row.values()) for row in whole.rows().to_pylist())
    assert happened.count(("site_lost", victim)) == 1, happened
    assert any("begin again" in event["text"] for event in run.events() if event["kind"] == "copy_begun")
    assert rows == truth
    assert epochs == sorted(set(epochs))
