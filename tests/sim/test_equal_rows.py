"""Rows that are equal and look different: -0.0 equals 0.0. What comes out does not go by which of them came first (E3)."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.query.builder import Stream
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("p", pa.struct([("v", pa.float64())])), ("ts", pa.timestamp("us"))])
KEYS = range(20)


class FirstText(ef.Processor):
    output = "k bigint, text string"

    def open(self, store: Any) -> None:
        store.value("n", "bigint", default=0)

    def process(self, key: Any, rows: pa.RecordBatch, state: Any) -> Iterator[tuple[int, str]]:
        if not state.n:
            yield key[0], str(rows.column("v")[0].as_py())
        state.n = 1


def processed(rows: Stream) -> Stream:
    return rows.with_watermark("ts", "1 second").key_by("k").process(FirstText())


def deduplicated(rows: Stream) -> Stream:
    return rows.select("k", "v").drop_duplicates(["k", "v"]).select("k", text="cast(v AS string)")


def deduplicated_structures(rows: Stream) -> Stream:
    return rows.select("k", "p").drop_duplicates(["k", "p"]).select("k", text="cast(p.v AS string)")


def greatest(rows: Stream) -> Stream:
    return rows.select("k", "p").group_by("k").agg(m="max(p)").select("k", text="cast(m.v AS string)")


def least(rows: Stream) -> Stream:
    return rows.select("k", "p").group_by("k").agg(m="min(p)").select("k", text="cast(m.v AS string)")


def top(rows: Stream) -> Stream:
    kept = rows.with_watermark("ts", "1 second").select("k", "p", "ts").group_by("k").window("1 minute").top(1, order_by=["ts"])
    return kept.select("k", text="cast(p.v AS string)")


def part(zero: float) -> pa.RecordBatch:
    time = datetime.datetime(2024, 1, 1)
    columns: list[list[Any]] = [[*KEYS], [zero] * len(KEYS), [{"v": zero}] * len(KEYS), [time] * len(KEYS)]
    return pa.record_batch(columns, schema=SCHEMA)


@pytest.mark.parametrize("make", [processed, deduplicated, deduplicated_structures, greatest, least, top])
def test_the_sign_of_zero_does_not_go_by_what_came_first(make: Callable[[Stream], Stream]) -> None:
    found = []
    for zeros in ((0.0, -0.0), (-0.0, 0.0)):
        flow = ef.Dataflow("zeros")
        make(flow.source(ef.sources.memory([[part(zero) for zero in zeros]]), name="in")).to(ef.sinks.memory("out"), name="out")
        options = FlowOptions(linger_ms=5.0, epoch_rows=1_000)
        world = SimWorld(layout(flow.network, sites=1, partitions=1), sites=1, replicas=1, options=options, read_rows=1_000)
        world.run_until_quiet(20.0)
        found.append(sorted((row["k"], row["text"]) for row in world.output("out").to_pylist()))
    assert found[0] == found[1] and {k for k, _ in found[0]} == {*KEYS}
