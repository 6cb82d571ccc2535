"""Rows that are dealt out travel over TCP, and every one of them arrives once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

import evenflow as ef

pytestmark = pytest.mark.spark


def test_rows_that_are_dealt_out_are_all_there(engine: ef.Engine, named: Callable[[str], str]) -> None:
    table = pa.table({"k": [at % 50 for at in range(20_000)], "v": list(range(20_000))})
    rows, counts = named("rows"), named("counts")
    flow = ef.Dataflow(named("dealt"))
    there = flow.source(ef.sources.memory(table), name="in").repartition(6).select("k", "v * 2 as w")
    there.to(ef.sinks.memory(rows), name="rows")
    there.group_by("k").agg(n="count(*)", total="sum(w)").to(ef.sinks.memory(counts), name="counts")
    engine.start(flow).await_termination(120)
    assert sorted(ef.sinks.memory(rows).rows()["w"].to_pylist()) == [2 * v for v in range(20_000)]
    newest = {row["k"]: row["total"] for row in ef.sinks.memory(counts).rows().to_pylist()}
    totals: Counter[int] = Counter()
    for v in range(20_000):
        totals[v % 50] += 2 * v
    assert newest == totals
