"""What comes to a source while a run goes on is read at a place that waits, and at the same one after a restart (decision 101)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.coordinator.events import NewcomersSeen
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.source import Reader, Source
from evenflow.swarm.checkers import Checkers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld

ROWS, PLACES = 90, 3
SCHEMA = pa.schema([pa.field("name", pa.string(), False), pa.field("at", pa.int64(), False)])


class ComingReader(Reader):
    def __init__(self, name: str | None, newcomer: int) -> None:
        self._name, self._newcomer, self._at = name, newcomer, 0

    def meet(self, names: Sequence[str]) -> None:
        if self._name is None and self._newcomer < len(names):
            self._name = names[self._newcomer]

    def skip(self, rows: int) -> None:
        self._at = rows

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        last = min(self._at + max_rows, ROWS)
        if self._name is None or self._at == last:
            return None
        first, self._at = self._at, last
        return pa.RecordBatch.from_arrays([pa.array([self._name] * (last - first)), pa.array(range(first, last))], schema=SCHEMA)


@dataclass(frozen=True)
class Coming(Source):
    """One topic that is there, and places for three more."""

    kind: ClassVar[str] = "coming"

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def waits(self) -> bool:
        return True

    @property
    def newcomers_most(self) -> int:
        return PLACES

    def partitions(self, sites: int) -> int:
        return 1 + PLACES

    def open(self, partition: int, of: int) -> ComingReader:
        return ComingReader("first" if partition == 0 else None, partition - 1)


class Stage:
    def __init__(self, replicas: int, seed: int = 1) -> None:
        flow = ef.Dataflow("coming")
        flow.source(Coming(), name="in").select("name", "at").to(ef.sinks.memory("out"), name="out")
        self.checkers: list[Checkers] = []
        options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0)
        planned = layout(flow.network, sites=4, partitions=8)
        given: dict[str, Any] = {"read_rows": 10, "read_every_us": (500, 2_000), "patience_ms": 50.0}
        self.cluster = SimCluster(planned, seed=seed, prepare=self._prepare, sites=4, replicas=replicas, options=options, **given)

    def _prepare(self, world: SimWorld) -> None:
        self.checkers.append(Checkers(world, self.checkers[-1] if self.checkers else None))

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    def come(self, *names: str) -> None:
        self.world.driver.coordinate(NewcomersSeen(0, names))

    def rows(self, name: str) -> int:
        return sum(batch.column("name").to_pylist().count(name) for _, batch in self.world.released.get("out", []))

    def until(self, **counts: int) -> None:
        self.world.run_until(lambda: all(self.rows(name) >= count for name, count in counts.items()), 20.0, f"{counts}")

    def finish(self, *names: str) -> None:
        """Each row of these is there once, and none of others."""
        self.until(**dict.fromkeys(names, ROWS))
        self.world.stop(drain=True)
        self.world.run_until_quiet(20.0)
        found = self.world.output("out").to_pylist()
        assert sorted((row["name"], row["at"]) for row in found) == sorted((name, at) for name in names for at in range(ROWS))


@pytest.mark.parametrize("replicas", [1, 2])
def test_newcomers_are_read_from_their_beginning(replicas: int) -> None:
    stage = Stage(replicas)
    stage.until(first=50)
    stage.come("b", "a")
    stage.come("a", "c")
    stage.finish("first", "a", "b", "c")
    assert stage.world.coordinator.plan.newcomers == ((0, ("b", "a", "c")),)
    told = [event.details["name"] for _, event in stage.world.happened if event.kind == "newcomer"]
    assert told == ["b", "a", "c"]


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.conformance) for seed in range(1, 12)]])
def test_who_takes_over_reads_on_at_the_same_place(seed: int) -> None:
    """Goal: no row twice or lost. Method: the leader of a newcomer's place is lost in the middle of it, and more come meanwhile."""
    stage = Stage(2, seed)
    stage.until(first=20)
    stage.come("b")
    stage.until(b=ROWS // 3)
    world = stage.world
    world.kill(world.coordinator.view.leader(0, 1).site)
    stage.come("a", "c")
    stage.finish("first", "a", "b", "c")


@pytest.mark.parametrize("again", ["in its order", "in another order"])
def test_a_restart_reads_the_same_at_the_same_places(again: str) -> None:
    """Goal: the journal says who has which place. Method: everything is lost in the middle of the newcomers; the next driver sees them
    anew, perhaps in another order, and one more."""
    stage = Stage(1)
    stage.come("b", "a")
    stage.until(b=ROWS // 3, a=ROWS // 3)
    stage.cluster.lose_all()
    world = stage.cluster.restart()
    assert world.coordinator.plan.newcomers == ((0, ("b", "a")),)
    stage.until(first=1)
    stage.come(*(("b", "a", "c") if again == "in its order" else ("a", "b", "c")))
    stage.finish("first", "a", "b", "c")


@pytest.mark.conformance
def test_what_came_just_before_the_loss_counts_though_its_plan_did_not_act_yet() -> None:
    """Goal: rows of a newcomer that are durable are read again, whenever its plan acts. Method: lost as soon as one is durable; by the
    number of the moment, some of these are before the plan's first epoch."""
    for after in (1, 4, 9):
        stage = Stage(1, seed=after)
        stage.until(first=20)
        stage.come("b")
        stage.until(b=after)
        stage.cluster.lose_all()
        stage.cluster.restart()
        stage.until(first=1)
        stage.come("a", "b")
        stage.finish("first", "a", "b")
