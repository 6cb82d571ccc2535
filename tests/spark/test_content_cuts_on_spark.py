"""Sources that are cut by content, on executors: replicas read for themselves, one of them dies, and nothing is lost or repeated."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
ROWS = 12_000
"""At 4,000 a second."""


def made() -> ef.sources.Source:
    return ef.sources.generator(4_000, 20, rows=ROWS, partitions=3, seed=7)


def wanted() -> Counter[int]:
    source, found = made().begun(0), Counter[int]()
    for partition in range(3):
        reader = source.open(partition, 3)
        while not reader.ended:
            batch = reader.read(10**9, 1000)
            found.update([] if batch is None else batch.column("key").to_pylist())
    return found


@pytest.mark.conformance
def test_a_reader_dies_and_nobody_waits_for_it(spark: Any) -> None:
    counts: dict[int, int] = {}
    epochs: list[int] = []
    begun = threading.Event()

    def take(epoch: int, batch: pa.RecordBatch) -> None:
        epochs.append(epoch)
        for row in batch.to_pylist():
            counts[row["key"]] = max(row["n"], counts.get(row["key"], 0))
        if sum(counts.values()) > ROWS // 4:
            begun.set()

    flow = ef.Dataflow("cuts")
    rows = flow.source(made(), cut="content", width_ms=20)
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.callback(take))
    with ef.Engine(spark, sites=3, replicas=2) as engine:
        run = engine.start(flow)
        assert begun.wait(60)
        os.kill(run.progress()["sites"][0]["pid"], signal.SIGKILL)
        assert run.await_termination(60)
        assert ROWS // 2 < run.progress()["rows_in"] <= ROWS, "rows are counted once, though all replicas read them"
    assert counts == dict(wanted())
    assert epochs == sorted(set(epochs))
