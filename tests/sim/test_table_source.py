"""A table of a database as a source: who takes over reads on behind the last row that anybody has."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.world import SimWorld

ROWS = 400


@pytest.mark.parametrize("killed_after_s", [0.002, 0.02])
def test_a_table_is_read_once_though_its_reader_dies(tmp_path: Path, killed_after_s: float) -> None:
    path = str(tmp_path / "log.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, v INTEGER)")
        connection.executemany("INSERT INTO log VALUES (?, ?)", [(3 * i + 1, i % 7) for i in range(ROWS)])
    flow = ef.Dataflow("log")
    source = ef.sources.table(path, "log", "id bigint, v bigint", "id", follow=False)
    flow.source(source, name="log").where("v < 6").to(ef.sinks.memory("out"), name="out")
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0)
    world = SimWorld(
        layout(flow.network, sites=3, partitions=4), sites=3, replicas=2, options=options, seed=3, read_rows=10, patience_ms=50.0,
        read_every_us=(500, 2_000),
    )  # fmt: skip
    Checkers(world)
    world.run_for(killed_after_s)
    assert world.output("out").num_rows < ROWS // 2
    world.kill(world.coordinator.membership.leaders[0][0].site)
    world.add_site()
    world.run_until_quiet(20.0)
    assert world.fired("T2", "lose_link")
    assert sorted(world.output("out").column("id").to_pylist()) == [3 * i + 1 for i in range(ROWS) if i % 7 < 6]
