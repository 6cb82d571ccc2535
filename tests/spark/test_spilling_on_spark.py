"""State beyond the budget goes to the executors' disks, on real executors (M1)."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import OperationRefused

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
ROWS, KEYS = 150_000, 40_000


def counting(sink: ef.sinks.Sink) -> tuple[ef.Dataflow, Counter[int]]:
    """A count per key, and what it must come to."""
    keys = np.random.default_rng(7).integers(0, KEYS, ROWS)
    flow = ef.Dataflow("counts")
    parts = [pa.record_batch({"k": pa.array(part)}) for part in np.array_split(keys, 2)]
    flow.source(ef.sources.memory(parts, partitions=2)).group_by("k").agg(n="count(*)").to(sink, name="out")
    return flow, Counter(keys.tolist())


def newest(sink: Any) -> dict[int, int]:
    table = sink.rows()
    return dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))


@pytest.mark.conformance
def test_counts_are_the_same_with_little_memory_and_a_lost_site(spark: Any) -> None:
    """Goal: exact results from disk, on the executors, through a death. Method: a twentieth of the state fits; kill a site's process."""
    out = ef.sinks.memory("out")
    flow, wanted = counting(out)
    with ef.Engine(spark, sites=3, replicas=2, state_memory_mb=0.06, epoch_rows=4_000, partitions=32) as engine:
        run = engine.start(flow)
        spilled, killed = 0, False
        while run.is_active:
            sites = run.progress()["sites"]
            spilled = max(spilled, *(site["spilled_bytes"] for site in sites))
            if spilled and not killed:
                os.kill(next(site["pid"] for site in sites if site["spilled_bytes"]), signal.SIGKILL)
                killed = True
            time.sleep(0.05)
        assert run.await_termination(60)
    assert spilled > 60_000 and killed
    assert newest(out) == wanted


def test_less_memory_while_it_runs(spark: Any, engine: ef.Engine) -> None:
    """Goal: a site relinquishes memory when it is asked to. Method: state_bytes falls, and rises again."""
    flow = ef.Dataflow("endless")
    flow.source(ef.sources.generator(rate=2_000, keys=20_000)).group_by("key").agg(n="count(*)").to(ef.sinks.memory("endless"), name="out")
    run = engine.start(flow)
    try:
        wait(lambda: sum(site["state_bytes"] for site in run.progress()["sites"]) > 400_000)
        with pytest.raises(OperationRefused, match="no site 99"):
            run.set_state_memory(1, sites=[99])
        with pytest.raises(ValueError, match="positive"):
            run.set_state_memory(0)
        run.set_state_memory(0.02)
        wait(lambda: sum(site["spilled_bytes"] for site in run.progress()["sites"]) > 200_000)
        on_disk = [p for window in run.statistics(1.0).sites for segment in window.segments for p in segment.on_disk]
        assert on_disk
        run.set_state_memory(None)
        wait(lambda: all(site["spilled_bytes"] == 0 for site in run.progress()["sites"]))
    finally:
        run.stop()


def wait(reached: Any, limit_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline_s, "it does not come to that"
        time.sleep(0.05)
