"""More comes than sites on real executors can do: what comes out is what the run says, and in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.exchange.shedding import ALL, staying

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
SITES, ROW_S = 2, 0.0005
CAN = SITES / ROW_S
"""Rows per second that the sites can do."""
LOAD, SECONDS = 3, 3
RATE = int(LOAD * CAN)
ROWS = RATE * SECONDS


def slowly(batch: pa.RecordBatch) -> pa.Array:
    time.sleep(batch.num_rows * ROW_S)
    return batch.column("value")


@pytest.mark.conformance
def test_what_comes_out_is_what_the_run_says_it_kept(spark: Any, named: Callable[[str], str]) -> None:
    """Goal: answers under shedding are those of batch over the rows that were kept, and the run ends when its source does.
    Method: three times what can be done; the oracle reads the source again and leaves out what the run tells."""
    sink = ef.sinks.memory(named("shed"))
    flow = ef.Dataflow(named("shed"))
    rows = flow.source(ef.sources.generator(RATE, 1000, rows=ROWS, seed=3), name="in")
    rows.select("key", "p0", value=slowly).to(sink, name="out", qos=ef.qos(latency=[("250 ms", 1), ("1 s", 0)]))
    with ef.Engine(spark, sites=SITES, shedding="reflex") as engine:
        run = engine.start(flow)
        assert run.await_termination(60)
        [output] = run.progress()["outputs"]
        table, seconds = run.shed(), run.progress()["seconds"]
        assert [event["source"] for event in run.events() if event["kind"] == "shedding"][:1] == ["in"]
    got = sink.rows()
    assert output["output"] == "out" and not output["protected"]
    assert output["dropped"] == sum(map(sum, table["dropped"].to_pylist())) == ROWS - got.num_rows
    assert abs(output["delivered_share"] - got.num_rows / ROWS) < 0.001 and got.num_rows > 0.4 * CAN * SECONDS
    assert output["age_ms"] > 0 and 0 < output["utility"] <= 1, "of weight 1"
    assert seconds < 0.7 * ROWS / CAN, "it would take that long to do all of it"
    assert answers(got) == answers(kept(table))


@pytest.mark.conformance
def test_estimates_on_executors_are_about_what_came(spark: Any, named: Callable[[str], str]) -> None:
    """Goal: what a row stands for travels with it between real executors. Method: three times what can be done; all windows together say
    how many rows there were, within four times their common error."""
    sink, flow = ef.sinks.memory(named("estimated")), ef.Dataflow(named("estimated"))
    rows = flow.source(ef.sources.generator(RATE, 10, rows=ROWS, seed=3), name="in", weights=True)
    done = rows.select("key", "ts", "_w", value=slowly).with_watermark("ts", "1 second")
    counted = done.group_by("key").window("500 milliseconds").agg(n=ef.estimate("count(*)"), mean=ef.estimate("avg(value)"))
    counted.to(sink, name="out", qos=ef.qos(latency=[("250 ms", 1), ("1 s", 0)]))
    with ef.Engine(spark, sites=SITES, shedding="reflex") as engine:
        run = engine.start(flow)
        assert run.await_termination(60)
        [output] = run.progress()["outputs"]
    found = sink.rows()
    n, error = (found[name].to_numpy() for name in ("n", "n_error"))
    assert output["dropped"] > 0.3 * ROWS and (error > 0).any()
    assert abs(n.sum() - ROWS) < 4 * np.sqrt((error**2).sum()) / 1.96
    assert (found["mean_error"].to_numpy()[error > 0] > 0).all()


def answers(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in ("key", "p0", "value")), strict=True))


def kept(shed: pa.Table) -> pa.Table:
    """Of the source, what the run says that it kept."""
    source, found = ef.sources.generator(None, 1000, rows=ROWS, seed=3), []
    for partition in range(SITES):
        reader, batches = source.open(partition, SITES), []
        while not reader.ended:
            batches.append(reader.read(0, 100_000))
        part = pa.Table.from_batches(batches)
        stays = np.ones(part.num_rows, bool)
        for row in shed.to_pylist():
            if row["source"] == "in" and row["partition"] == partition:
                places = np.arange(row["first"], row["end"])
                keep = tuple(int(share * ALL) for share in row["keep"])
                stays[row["first"] : row["end"]] = staying("in", partition, places, np.zeros(places.size, np.int64), keep)
        found.append(part.filter(pa.array(stays)).select(["key", "p0", "value"]))
    return pa.concat_tables(found)
