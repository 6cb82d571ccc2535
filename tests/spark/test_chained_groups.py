"""A dataflow reads what the regions of a group have made, on real executors: who dies upstream or downstream, each row comes once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evenflow as ef
from evenflow.bench.background import free_ports
from evenflow.bench.bare import BareEngine
from evenflow.sinks.stream import SECRET_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]
RATE, ROWS, KEYS = 2_000, 10_000, 20
SECRET = "of sixteen letters or more"


def upstream(port: int) -> ef.Dataflow:
    flow = ef.Dataflow("upstream")
    rows = flow.source(ef.sources.generator(rate=RATE, rows=ROWS, keys=KEYS, seed=5, partitions=2), cut="content", width_ms=50)
    rows.select("key", "value").to(ef.sinks.stream(port), name="out")
    return flow


def by_epoch(epochs: list[tuple[int, Any]]) -> Counter[Any]:
    return Counter((epoch, *row.values()) for epoch, rows in epochs for row in rows.to_pylist())


@pytest.mark.conformance
def test_epochs_downstream_are_those_upstream_whoever_is_lost(
    spark: Any, named: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: two regions are read as one stream, by replicas. Method: the first region is stopped in the middle, and an executor that reads
    is killed. What comes out has the epochs of the region that is left."""
    (secret := tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    east, west, below = free_ports(3)
    begin_s, kept = time.time() + 8.0, ef.sinks.memory(named("totals"))
    of = ef.group(named("upstream"), begin_s, sites=1)
    source = ef.sources.group(
        [f"127.0.0.1:{east}", f"127.0.0.1:{west}"], of.name, "out", "key bigint, value bigint", secret_file=str(secret)
    )
    flow = ef.Dataflow("downstream")
    read = flow.source(source, cut="content", width_ms=50)
    read.select("key", "value").to(ef.sinks.stream(below), name="rows")
    read.group_by("key").agg(n="count(*)").to(kept, name="totals")
    first, second = BareEngine(sites=1, partitions=4), BareEngine(sites=1, partitions=4)
    got: list[tuple[int, Any]] = []
    try:
        one, other = first.start(upstream(east), group=of), second.start(upstream(west), group=of)
        with ef.Engine(spark, sites=3, replicas=2) as engine:
            run = engine.start(flow, group=ef.group(named("downstream"), begin_s, 3))
            plan, layout = run._driven.machine.plan, run._driven.machine.layout
            ingress = next(segment.id for segment in layout.segments if segment.kind == "ingress")
            with ef.subscribe(f"127.0.0.1:{below}", after=0) as subscriber:
                for epoch, rows in subscriber:
                    got.append((epoch, rows))
                    if len(got) == 20:
                        one.stop()
                    if len(got) == 40:
                        victim = plan.placement[ingress][0][0]
                        os.kill(next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim), signal.SIGKILL)
            assert run.await_termination(60)
            happened = [event["kind"] for event in run.events()]
        with ef.subscribe(f"127.0.0.1:{west}", of.name, after=0) as subscriber:
            direct = list(subscriber)
        assert other.await_termination(60)
    finally:
        first.stop()
        second.stop()
    assert "site_lost" in happened, happened
    assert sum(rows.num_rows for _, rows in got) == ROWS and by_epoch(got) == by_epoch(direct)
    last = {row["key"]: row["n"] for _, rows in kept.epochs() for row in rows.to_pylist()}
    assert sum(last.values()) == ROWS
