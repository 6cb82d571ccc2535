"""A run begins where its option says, at its start and after the loss of everything, and its answers are the same."""

from __future__ import annotations

from collections import Counter

import pytest

from evenflow.plan.placement import first_plan, home
from evenflow.policy.placing import PLACEMENTS, place
from evenflow.policy.start import place_of
from evenflow.statistics.statistics import Statistics
from evenflow.world.sim.model import CostModel
from tests.drawn import one_in
from tests.sim.test_restart import Stage, as_undisturbed


def stones(stage: Stage) -> Counter[int]:
    """Boxes with one partition, by the site of the first replica under the plan that acts."""
    world = stage.world
    alone = [segment for segment in stage.planned.segments if segment.kind != "ingress" and segment.partitions == 1]
    return Counter(world.coordinator.view.plan.placement[segment.id][0][0] for segment in alone)


@pytest.mark.parametrize(("case", "replicas"), one_in(2, [("joins", 1), ("poison", 2)], spread=True))
def test_what_has_one_partition_does_not_meet_and_not_after_a_restart_either(case: str, replicas: int) -> None:
    """Goal: nothing is lost, repeated or different, and both generations are placed alike. Method: everything is gone at once."""
    stage = Stage(case, replicas=replicas, first_placement="start")
    columns = 4 // replicas
    first = first_plan(stage.planned, 4, replicas, place=place_of("start", stage.planned))
    assert first != first_plan(stage.planned, 4, replicas), "else the option would change nothing here"
    assert stage.world.coordinator.view.plan.placement == first.placement
    many = sum(stones(stage).values())
    assert many > 1 and max(stones(stage).values()) <= -(-many // columns)
    stage.world.run_for(0.05)
    durable = stage.durable
    assert durable > 0
    stage.cluster.lose_all()
    stage.cluster.restart()
    assert stage.world.coordinator.beginning.plans[0].placement == first.placement
    stage.finish()
    as_undisturbed(stage, durable, case, 0.05, replicas=replicas, first_placement="start")


def test_without_the_option_all_is_at_home() -> None:
    stage = Stage("joins")
    assert place_of("home", stage.planned) is home
    assert stage.world.coordinator.view.plan.placement == first_plan(stage.planned, 4).placement


def test_what_a_run_has_told_is_enough_for_every_placement() -> None:
    """Goal: statistics of a run say all that is asked, spare partitions and two replicas included. Method: a join of two sources, one site
    at a third of the speed; ROD takes more mixes of rates than all others, and all that balance bring sites closer than they are."""
    stage = Stage("joins", replicas=2, max_partitions=20, cost=CostModel(work_us=20.0, row_us=5.0, slow=(1.0, 3.0, 1.0, 1.0)))
    stage.world.run_for(0.3)
    stage.world.collect()
    told = Statistics.from_json(stage.world.statistics.over(10**9).to_json())
    found = {name: place(name, [told], stage.planned) for name in PLACEMENTS}
    every = {(segment.id, partition) for segment in stage.planned.segments for partition in range(segment.partitions)}
    assert all(set(each.replicas) == every for each in found.values())
    assert max(found, key=lambda name: found[name].feasible) == "resilient" and found["resilient"].feasible > 0.9
    apart = {name: max(each.utilization.values()) / min(each.utilization.values()) for name, each in found.items()}
    assert max(apart["largest"], apart["correlation"], apart["resilient"]) < 1.5 < apart["start"], "blocks are even in number, not in load"
