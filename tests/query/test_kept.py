"""Batch DataFrames in front of a run that may be gone on with are files: alone, and with what comes after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.kept import batches, kept
from evenflow.query.planner import layout
from evenflow.sources.pushed import SparkSource
from evenflow.sources.replay import ReplaySource
from evenflow.sources.then import ChainSource
from evenflow.world.sim.world import SimWorld

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDER = pa.schema([("offset", pa.int64()), *SCHEMA])


def rows(*keys: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([{"offset": k, "k": k, "v": f"v{k}"} for k in keys], schema)


@pytest.fixture
def files(tmp_path: Path) -> ReplaySource:
    for number in range(3):
        pq.write_table(rows(*range(10 * number, 10 * number + 10)), tmp_path / f"{number}.parquet")
    return ReplaySource(tuple(str(tmp_path / f"{number}.parquet") for number in range(3)), "parquet", SCHEMA, "ts", None)


def batch(flow: ef.Dataflow, name: str, endless: bool = False) -> Any:
    return flow.source(SparkSource(SCHEMA, endless), name=name)


def result(network: Any) -> list[int]:
    world = SimWorld(layout(network, sites=2, partitions=4), sites=2, seed=1)
    world.run_until_quiet(60.0)
    assert world.error is None
    return sorted(row["k"] for row in world.output("out").to_pylist())


@pytest.mark.parametrize("schema", [SCHEMA, WIDER], ids=["the same columns", "more columns"])
def test_a_batch_and_what_comes_after_it_are_one_source(files: ReplaySource, schema: pa.Schema) -> None:
    flow = ef.Dataflow("backfill")
    made = batch(flow, "history").then(ef.sources.memory(rows(*range(30, 50), schema=schema)), name="both")
    made.where("k % 2 = 0").to(ef.sinks.memory("out"), name="out")
    assert [box.name for box in batches(flow.network)] == ["history"]
    network = kept(flow.network, {"history": files})
    (source,) = network.of_kind("source")
    assert isinstance(source.params["source"], ChainSource) and source.name == "history"
    assert network.box("both").schemas[0].names == ["k", "v"]
    assert result(network) == list(range(0, 50, 2))


def test_a_batch_alone_is_files(files: ReplaySource) -> None:
    flow = ef.Dataflow("batch")
    batch(flow, "history").where("k >= 15").to(ef.sinks.memory("out"), name="out")
    assert result(kept(flow.network, {"history": files})) == list(range(15, 30))


def test_one_batch_after_another_and_then_what_is_live(files: ReplaySource) -> None:
    flow = ef.Dataflow("three")
    made = batch(flow, "old").then(batch(flow, "new"))
    made.to(ef.sinks.memory("out"), name="out")
    assert [box.name for box in batches(flow.network)] == ["old", "new"]
    assert result(kept(flow.network, {"old": files, "new": files})) == sorted([*range(30)] * 2)


def test_what_cannot_be_one_source_says_so(files: ReplaySource) -> None:
    flow = ef.Dataflow("streamed")
    batch(flow, "history").then(batch(flow, "live", endless=True)).to(ef.sinks.discard())
    with pytest.raises(QueryError, match="'live': behind a batch DataFrame .* a source that the sites read"):
        kept(flow.network, {"history": files})
    flow = ef.Dataflow("between")
    live = flow.source(ef.sources.memory(rows(1)), name="live").where("k > 0")
    batch(flow, "history").then(live).to(ef.sinks.discard())
    with pytest.raises(QueryError, match="'history': .* give then\\(\\) a source itself"):
        kept(flow.network, {"history": files})
