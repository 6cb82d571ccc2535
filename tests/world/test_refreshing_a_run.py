"""A run of the simulator whose table is read again: by hand, and by a version of the run that brings its own."""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.world.test_balancing_by_hand import Caller, Driven

import evenflow as ef
from evenflow.errors import OperationRefused
from evenflow.query.planner import layout
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.tables import with_tables
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import source
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.driver.refreshing import read
from evenflow.world.spark.driver.run import Run

ROWS, KEYS = 1_000, 5
SOURCE = source([[(at, at % KEYS, at) for at in range(ROWS)]], Random(4))


def dataflow(versions: list[int], factor: int = 1) -> ef.Dataflow:
    """versions: the last of them is what the table has when it is read; none: it is a table that stays."""
    flow = ef.Dataflow("versions")

    def now() -> pa.Table:
        return pa.table({"k": list(range(KEYS)), "version": [versions[-1] if versions else 0] * KEYS})

    table = flow.table(now, "versions", key="k", refresh=None) if versions else now()
    rows = flow.source(SOURCE, name="in").select("k", f"v * {factor} as v").name("rows")
    rows.join(table, "k", name="joined").to(ef.sinks.memory("out"), name="out")
    return flow


def test_a_run_goes_on_with_what_its_table_has() -> None:
    versions = [0]
    flow = dataflow(versions)
    tables = refreshed_tables(flow.network)
    contents = {table.name: read(table) for table in tables}
    planned = with_tables(layout(flow.network, sites=4, partitions=8), contents)
    world = SimWorld(planned, sites=4, replicas=2, options=FlowOptions(linger_ms=0.5, epoch_rows=10), read_rows=10)
    world.run_for(0.005)
    driven: Any = Driven(SimpleNamespace(world=world, machine=world.coordinator))  # type: ignore[arg-type]
    ends: list[Any] = []
    driven.on_started, driven.record = [], lambda *_, **__: None
    run = Run(SimpleNamespace(newest=driven, over=driven.over, when_over=ends.append), Caller(), partial(layout, sites=4, partitions=8))  # type: ignore[arg-type]
    with pytest.raises(OperationRefused, match="has no refreshed table"):
        run.refresh()
    run.refresh_tables(tables, contents, None)  # type: ignore[arg-type]
    driven.on_started[0]()
    try:
        assert not run.refresh()["changed"]
        versions.append(1)
        found = run.refresh("versions")
        assert (found["changed"], found["version"], found["epoch"]) == (True, 1, world.coordinator.plan.effective)
        world.run_for(0.01)
        versions[:] = [-1]  # What the first dataflow reads is read no more from here on.
        found = run.replace(dataflow([2], factor=-1))
        assert (found["version"], set(found["boxes"])) == (2, {"rows", "joined"})
        assert run.refresh() == {"table": "versions", "changed": False, "rows": KEYS, "version": 2, "epoch": found["epoch"]}
        with pytest.raises(OperationRefused, match="it has other refreshed tables than versions"):
            run.replace(dataflow([], factor=3))
    finally:
        ends[0]()
    assert [event["kind"] for event in run.events() if "version" in event] == ["table_refreshed", "replaced"]
    world.run_until_quiet()
    out = world.output("out").to_pylist()
    assert sorted(abs(row["v"]) for row in out) == list(range(ROWS))
    assert {(row["version"], row["v"] < 0) for row in out if row["v"]} == {(0, False), (1, False), (2, True)}
