"""The box of known cost answers each row."""

from __future__ import annotations

import pytest

import evenflow as ef
from evenflow.bench.events import ScheduledEvents
from evenflow.bench.scaling import Costly
from evenflow.bench.slowed import RowCost
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld


def test_each_row_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    monkeypatch.setattr(RowCost, "spend", lambda self, rows: spent.append(rows))
    flow = ef.Dataflow("costly")
    rows = flow.source(ScheduledEvents(1000, 200, 10, count=2), name="in").key_by("key").process(Costly(RowCost())).name("costly")
    rows.to(ef.sinks.memory("out"), name="out")
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.memory("counts"), name="counts")
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, seed=1)
    world.run_until_quiet()
    assert world.output("out").num_rows == 200 and sum(spent) >= 200
    newest: dict[int, int] = {}
    for row in world.output("counts").to_pylist():
        newest[row["key"]] = max(row["n"], newest.get(row["key"], 0))
    assert sum(newest.values()) == 200
