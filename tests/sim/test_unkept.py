"""A source with durability="none": what it gives is written nowhere, and a restart goes on without what came after its checkpoint, and says
how much that is (availability.md, J5)."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import Happened, Kind
from evenflow.exchange.section import ROWS
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.sim.once import Once

GIVEN = 900


class Stage:
    """Rows that come once and are not kept, with their totals; and others, which are read again, with theirs."""

    def __init__(self, *, replicas: int = 1, checkpoint_s: float | None = None) -> None:
        self.left = deque(range(GIVEN))
        flow = ef.Dataflow("unkept")
        rows = flow.source(Once(self.left, durability="none"), name="in").where("id >= 0")
        rows.select("id", "k").to(ef.sinks.memory("rows"), name="rows")
        rows.group_by("k").agg(n="count(*)").to(ef.sinks.memory("totals"), name="totals")
        again = flow.source(ef.sources.memory(pa.table({"v": list(range(GIVEN))})), name="again")
        again.select("v % 7 as k").group_by("k").agg(n="count(*)").to(ef.sinks.memory("others"), name="others")
        options = FlowOptions(linger_ms=0.5, epoch_rows=8, heartbeat_ms=10.0, checkpoint_s=checkpoint_s)
        given: dict[str, Any] = {"read_rows": 5, "read_every_us": (500, 2_000), "patience_ms": 50.0}
        planned = layout(flow.network, sites=3, partitions=8)
        self.cluster = SimCluster(planned, seed=1, prepare=JournalCheckers, sites=3, replicas=replicas, options=options, **given)
        self.worlds: list[SimWorld] = [self.world]

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    def lose(self) -> int:
        """Everything is gone, and another driver goes on. Returns how many rows of the source it has none of."""
        self.cluster.lose_all()
        beginning = self.cluster.restart().coordinator.beginning
        self.worlds.append(self.world)
        [key] = [(s.id, 0) for s in self.world.layout.segments if s.source == "in"]
        return max(0, beginning.through(key) - int(beginning.logs.get(key, (0,))[0]))

    def said(self) -> list[Happened]:
        return [happened for world in self.worlds for _, happened in world.happened if happened.kind is Kind.ROWS_LOST]

    def finish(self) -> tuple[int, int]:
        """(rows that have come out, rows that totals have). All of the other source is counted, and nothing was written of the first."""
        self.world.run_until_quiet(20.0)
        assert self.world.error is None
        rows = [row["id"] for row in self.world.output("rows").to_pylist()]
        assert len(set(rows)) == len(rows), "a row is there twice"
        newest = {row["k"]: row["n"] for row in self.world.output("others").to_pylist()}
        assert sum(newest.values()) == GIVEN
        assert not [name for name in self.cluster.store.objects if name.startswith(ROWS)]
        return len(rows), sum({row["k"]: row["n"] for row in self.world.output("totals").to_pylist()}.values())


@pytest.mark.parametrize(("replicas", "checkpoint_s"), [(2, 0.01), (1, None)])
@pytest.mark.conformance
def test_a_restart_goes_on_without_them_and_says_so(replicas: int, checkpoint_s: float | None) -> None:
    """Goal: totals lack exactly what was declared; what others give is as ever. Method: all is lost twice."""
    stage = Stage(replicas=replicas, checkpoint_s=checkpoint_s)
    stage.world.run_for(0.08)
    lost = [stage.lose()]
    stage.world.run_for(0.08)
    lost.append(stage.lose())
    out, counted = stage.finish()
    assert [happened.details["rows"] for happened in stage.said()] == [rows for rows in lost if rows] and lost[0]
    assert {happened.details["source"] for happened in stage.said()} == {"in"}
    assert counted < out <= counted + sum(lost)
    assert stage.world.coordinator.losses.unkept == ({"in": lost[-1]} if lost[-1] else {})


def test_nothing_is_lost_or_said_if_nobody_dies() -> None:
    stage = Stage(checkpoint_s=0.01)
    assert stage.finish() == (GIVEN, GIVEN) and not stage.said()


def test_a_site_that_dies_loses_nothing_that_another_one_has() -> None:
    stage = Stage(replicas=2)
    stage.world.run_for(0.05)
    stage.world.kill(stage.world.coordinator.membership.leaders[0][0].site)
    out, counted = stage.finish()
    assert out == counted and not stage.said()
