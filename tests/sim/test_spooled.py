"""A streaming DataFrame whose batches lie below a checkpoint location: after any loss every row counts once, and no row is late because
others of its batch came first."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from evenflow.query.kept import kept
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.sources.spooled import Spool, SpooledSource
from evenflow.store.directory import DirectoryStore
from evenflow.swarm.cases import SCHEMA, Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.pushed_cases import pushed
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in

ROWS = 200


class Stage:
    """A drawn case whose batches are written while it runs: as many as are wanted."""

    def __init__(self, location: Path, seed: int, replicas: int) -> None:
        self.case: Case = pushed(Random(seed), ROWS)
        (box,) = (box for box in self.case.flow.network if box.kind == "source")
        self._batches = box.params["source"].dataframe
        network = kept(self.case.flow.network, {box.name: SpooledSource(SCHEMA, "in", str(location))})
        self.spool = Spool(DirectoryStore(str(location)), "in")
        self._written = 0
        self._checkers: list[Checkers] = []
        options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, checkpoint_s=0.02)
        self.cluster = SimCluster(
            layout(network, sites=3, partitions=8), seed=seed, prepare=self._prepare, sites=3, replicas=replicas, options=options,
            read_rows=10, read_every_us=(500, 2_000), patience_ms=50.0,
        )  # fmt: skip

    def _prepare(self, world: SimWorld) -> None:
        self._checkers.append(Checkers(world, self._checkers[-1] if self._checkers else None))
        JournalCheckers(world)

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    @property
    def batches(self) -> int:
        return len(self._batches)

    def write(self, count: int) -> None:
        """So many batches more, if there are as many."""
        for tasks in self._batches[self._written : self._written + count]:
            pieces = [piece for at, rows in enumerate(tasks) for piece in self.spool.put(self._written, f"{at:06d}-00", rows)]
            self.spool.name(self._written, pieces)
            self._written += 1

    def finish(self) -> None:
        self.write(self.batches)
        self.spool.name(self._written, (), ended=True)
        self.world.run_until_quiet(20.0)
        assert self.world.error is None
        assert self.case.judge({sink: self.world.output(sink) for sink in self.world.released}) is None


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
@pytest.mark.parametrize("seed", one_in(6, range(24)))
def test_every_row_once_through_any_loss(tmp_path: Path, seed: int, replicas: int) -> None:
    """Method: windows whose watermark has no delay; batches come; at drawn moments a site dies or all is lost, and then all again."""
    stage, random = Stage(tmp_path, seed, replicas), Random(seed)
    for again in range(2):
        stage.write(random.randint(0, 3))
        stage.world.run_for(random.uniform(0.001, 0.08))
        if stage.cluster.over:
            break
        if replicas > 1 and not again and random.random() < 0.5:
            stage.world.kill(random.choice(sorted(site.index for site in stage.world.sites if site.alive)))
            stage.world.add_site()
        else:
            stage.cluster.lose_all()
            stage.cluster.restart()
    stage.finish()


@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_a_leader_dies_behind_the_last_row_of_a_batch(tmp_path: Path, seed: int) -> None:
    """Goal: its successor counts the batch as whole, and its windows come."""
    stage = Stage(tmp_path, seed, 2)
    stage.write(1)
    world, first = stage.world, stage.spool.batch(0)
    assert first is not None
    (segment,) = (segment for segment in world.layout.segments if segment.kind == "ingress")
    leader = world.coordinator.membership.leaders[segment.id][0].site
    logs = world.sites[leader].part.ingress._logs
    while logs[segment.id, 0].taken < first.rows:
        world.run_for(0.0001)
    world.kill(leader)
    world.add_site()
    stage.finish()
