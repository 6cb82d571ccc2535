"""A plan leaves rows out between segments on real executors, a site dies by kill -9 meanwhile, and what comes is what batch Spark makes of
the rows that were left."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.standing import Standing
from evenflow.exchange.shedding import ALL, staying
from evenflow.exchange.thinning import Thinner
from evenflow.plan.layout import Layout
from evenflow.store.journal import read_journal
from evenflow.store.opening import open_store
from evenflow.swarm.shed_cases import read_whole
from tests.oracle.running import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(180, func_only=True)]
SITES, REPLICAS, PARTITIONS, ROW_S = 3, 2, 3, 0.0005
OUTPUTS = {"dear": 1.0, "cheap": 0.2}
"""Their weights."""
CAN = SITES / (len(OUTPUTS) * REPLICAS * ROW_S)
"""Rows of the source per second that the sites can do for both outputs."""
LOAD, SECONDS = 2, 8
ROWS = int(LOAD * CAN * SECONDS)
COLUMNS = ["key", "p0", "value"]
Dropped = Counter[tuple[str, int]]
"""Rows by output and epoch."""


def made(rate: float | None) -> ef.sources.Source:
    return ef.sources.generator(rate, 1000, rows=ROWS, partitions=PARTITIONS, seed=3)


def slowly(batch: pa.RecordBatch) -> pa.Array:
    time.sleep(batch.num_rows * ROW_S)
    return batch.column("value")


def test_what_comes_is_what_plans_kept_through_a_death(spark: Any, named: Callable[[str], str], tmp_path: Any) -> None:
    """Goal: answers equal batch Spark with the recorded drops, to the row, and these are told once (D1, D3, D5).
    Method: twice what can be done; once a plan leaves rows out, kill -9 of a site. The journal says which rows came in each epoch, and
    what its plan kept; `run.shed()` and `progress()` must say the same."""
    flow, sinks = ef.Dataflow(named("planned")), {name: ef.sinks.memory(named(name)) for name in OUTPUTS}
    rows = flow.source(made(ROWS / SECONDS), name="in").select(*COLUMNS)
    for name, weight in OUTPUTS.items():
        done = rows.repartition().select("key", "p0", value=slowly).where("value >= 100").select("key", "p0", doubled="value * 2")
        done.to(sinks[name], name=name, qos=ef.qos(latency=[("500 ms", 1), ("2 s", 0)], weight=weight))
    location, victim = str(tmp_path / "at"), 1
    with ef.Engine(spark, sites=SITES, replicas=REPLICAS, shedding="lp", checkpoint_s=3600) as engine:
        run = engine.start(flow, checkpoint_location=location)
        while not any("the plan keeps" in event["text"] for event in run.events()):
            assert not run.await_termination(0.1), "no plan has left anything out"
        time.sleep(0.5)
        os.kill(next(site["pid"] for site in run.progress()["sites"] if site["site"] == victim), signal.SIGKILL)
        assert run.await_termination(60)
        layout, told, outputs = run._driven.layout, run.shed(), {each["output"]: each for each in run.progress()["outputs"]}
        assert [event["site"] for event in run.events() if event["kind"] == "site_lost"] == [victim]
    entered, dropped = recorded(read_journal(open_store(location)), layout)
    assert dropped == Counter({(*row["outputs"], row["epoch"]): sum(row["dropped"]) for row in told.to_pylist() if row["arc"]})
    for name, sink in sinks.items():
        spark.createDataFrame(entered.filter(entered[name]).to_pandas()).createOrReplaceTempView("stayed")
        came = sink.rows().select(["key", "p0", "doubled"])
        assert_same_rows(came, spark.sql("SELECT key, p0, value * 2 AS doubled FROM stayed WHERE value >= 100"))
        left = sum(entered[name].to_pylist())
        assert outputs[name]["dropped"] == ROWS - left and abs(outputs[name]["delivered_share"] - left / ROWS) < 0.1
    kept = {name: sum(entered[name].to_pylist()) / ROWS for name in OUTPUTS}
    assert kept["cheap"] < 0.5 * kept["dear"] and sum(kept.values()) * ROWS > 0.5 * CAN * SECONDS, kept


def recorded(journal: Standing, layout: Layout) -> tuple[pa.Table, Dropped]:
    """(of the source the rows that entered, and by output whether the plan of their epoch kept them; how many these have lost)."""
    arcs = {layout.thins[arc.id].outputs[0]: arc for arc in layout.arcs if layout.segments[arc.producer].kind == "ingress"}
    tables, dropped = [], Dropped()
    for (_, partition), cuts in journal.cuts.items():
        rows, first = read_whole(made(None).open(partition, PARTITIONS)), 0
        for cut in cuts:
            batch, places = rows.slice(first, cut.taken - first).select(COLUMNS), np.arange(first, cut.taken)
            if cut.keep:
                batch = batch.filter(pa.array(staying("in", partition, places, np.zeros(places.size, np.int64), cut.keep)))
            assert batch.num_rows == places.size - sum(cut.dropped)
            keeps = [content for content in journal.contents if content.effective <= cut.epoch][-1].keeps
            assert all(not keep for arc, keep in enumerate(keeps) if arc not in {each.id for each in arcs.values()})
            table, first = pa.Table.from_batches([batch]), cut.taken
            for name, arc in arcs.items():
                keep = keeps[arc.id][0] if keeps and keeps[arc.id] else 1.0
                of = np.full(batch.num_rows, partition, np.int32)
                stays = Thinner.of(arc.id, layout.thins[arc.id], arc.schema).hashes(batch, of, cut.epoch) < np.uint64(round(keep * ALL))
                dropped[name, cut.epoch] += int((~stays).sum())
                table = table.append_column(name, pa.array(stays))
            tables.append(table)
        assert first == rows.num_rows
    return pa.concat_tables(tables), Dropped({at: count for at, count in dropped.items() if count})
