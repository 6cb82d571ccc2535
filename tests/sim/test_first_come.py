"""Sinks that take first come, first served (O1): each partition's rows once and in order, through whatever happens, and nothing missing."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from evenflow.coordinator.events import MovesRequested
from evenflow.plan.layout import Layout
from evenflow.policy.move import Move
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.swarm.cases import Case
from evenflow.swarm.checkers import Checkers
from evenflow.swarm.draw import EVERY_CASE
from evenflow.swarm.journal_checkers import JournalCheckers
from evenflow.swarm.mutations import Mutation, planted
from evenflow.swarm.portion_mutations import PORTIONS
from evenflow.swarm.portions import PortionCheckers
from evenflow.world.sim.cluster import SimCluster
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld

BUGS = {mutation.name: mutation for mutation in PORTIONS}


def first_come(planned: Layout) -> Layout:
    return replace(planned, segments=tuple(replace(s, unordered=s.sink is not None) for s in planned.segments))


class Stage:
    """A dataflow whose sinks take first come, first served, over several generations, with every checker."""

    def __init__(self, case: str = "running", *, sites: int = 4, replicas: int = 2, rows: int = 400, seed: int = 1, **given: Any) -> None:
        self.case: Case = EVERY_CASE[case](Random(seed), rows)
        self.checkers: list[Checkers] = []
        self.portions: list[PortionCheckers] = []
        self.planned = first_come(layout(self.case.flow.network, sites=sites, partitions=16))
        options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0)
        given = {"read_rows": 10, "read_every_us": (500, 2_000), "patience_ms": 50.0, **given}
        self.cluster = SimCluster(self.planned, seed=seed, prepare=self._prepare, sites=sites, replicas=replicas, options=options, **given)
        self.world.sources_may_end = False
        for segment in self.planned.segments:
            if segment.kind == "ingress":
                for partition, count in enumerate(self.case.counts[segment.source or ""]):
                    self.world.quotas[segment.id, partition] = count * 2 // 3

    def _prepare(self, world: SimWorld) -> None:
        self.checkers.append(Checkers(world, self.checkers[-1] if self.checkers else None))
        self.portions.append(PortionCheckers(world))
        JournalCheckers(world)

    @property
    def world(self) -> SimWorld:
        return self.cluster.world

    @property
    def egress(self) -> int:
        return len(self.planned.segments) - 1

    def hosts(self, segment: int, partition: int = 0) -> tuple[int, ...]:
        machine = self.world.coordinator
        found: tuple[int, ...] = machine.membership.live(machine.plan, segment, partition)
        return found

    def move(self, segment: int) -> None:
        """Partition 0 of a segment goes to a site that does not have it."""
        before = self.hosts(segment)
        target = next(site for site in self.world.coordinator.sites if site not in before)
        self.world.driver.coordinate(MovesRequested((Move(segment, (0,), before[0], target, "to see"),)))
        self.world.run_until(lambda: target in self.hosts(segment) and before[0] not in self.hosts(segment), 5.0, "the move")

    def finish(self) -> None:
        """The run ends with the right answer."""
        self.world.quotas.clear()
        self.world.sources_may_end = True
        self.world.run_until_quiet(20.0)
        assert self.case.judge({sink: self.world.output(sink) for sink in self.world.released}) is None


def slowed(**given: Any) -> Stage:
    """One site works at a tenth of the others' speed, so that its partitions' rows are late."""
    return Stage(cost=CostModel(slow=(10.0, 1.0, 1.0, 1.0), free=frozenset({"ingress", "egress"})), **given)


def killed(stage: Stage, *victims: int) -> None:
    for site in victims:
        stage.world.kill(site)


@pytest.mark.parametrize("replicas", [1, 2])
def test_who_is_late_holds_up_nobody_elses_rows(replicas: int) -> None:
    stage = slowed(replicas=replicas)
    stage.world.run_for(0.05)
    stage.finish()
    late_us = sorted(stage.portions[0].ahead_us)
    assert late_us[len(late_us) // 2] > 300, f"rows of half of the epochs are out {late_us} us before they are whole: nobody was late"


def test_a_site_dies_and_its_replicas_are_copied() -> None:
    stage = slowed()
    stage.world.run_for(0.02)
    killed(stage, stage.hosts(1)[0])
    stage.world.add_site()
    stage.world.run_until(lambda: stage.world.redundancy() >= 2, 5.0, "all replicas")
    stage.finish()
    assert "take_over" in [event.kind for _, event in stage.world.happened]


@pytest.mark.parametrize("replicas", [1, 2])
def test_partitions_of_every_segment_move(replicas: int) -> None:
    stage = slowed(replicas=replicas)
    stage.world.run_for(0.02)
    for segment in range(len(stage.planned.segments)):
        stage.move(segment)
        stage.world.run_for(0.01)
    stage.finish()


@pytest.mark.parametrize("case", ["running", "joins"])
def test_the_cluster_is_lost(case: str) -> None:
    """Goal: what sinks have of an epoch that was not whole is not given again, and what they lack is. Method: all is gone at once."""
    stage = slowed(case=case)
    stage.world.run_for(0.05)
    stage.cluster.lose_all()
    lasting = stage.cluster.lasting
    given = {sink: len(portions) for sink, portions in lasting.portions.items()}
    assert any(given.values())
    stage.cluster.restart()
    stage.finish()
    for sink, portions in lasting.portions.items():
        assert len(portions) > given.get(sink, 0), "nothing came after it"


# ---------------------------------------------------------------- planted bugs


def everything(stage: Stage) -> None:
    """A slow site, a move of the sink's own replica, a death, and the loss of all."""
    stage.world.run_for(0.01)
    stage.move(stage.egress)
    killed(stage, stage.hosts(stage.egress)[0])
    stage.world.run_for(0.02)
    stage.cluster.lose_all()
    stage.cluster.restart()
    stage.finish()


@pytest.mark.conformance
@pytest.mark.parametrize("bug", BUGS.values(), ids=list(BUGS))
def test_planted_bugs_are_found(bug: Mutation) -> None:
    with planted(bug), pytest.raises(AssertionError):
        everything(slowed(seed=0, placement="chained"))
