"""Rows on which user code ends its process: the second site that dies of one ends the run, with what people need to find it."""

from __future__ import annotations

import pytest

from evenflow.errors import BoxFailed, UserCodeCrashed
from evenflow.site.options import FlowOptions
from evenflow.site.overdue import SLOW_S
from tests.sim.test_scenarios import Stage


def user_segment(stage: Stage) -> int:
    return next(segment.id for segment in stage.world.layout.segments if segment.user_code and segment.kind == "inner")


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_deadly_row_ends_the_run_at_the_second_death(replicas: int) -> None:
    """Goal: sites are not killed one after the other. Method: of five sites, those that meet one epoch of one partition die of it."""
    stage = Stage("boxes", sites=5, replicas=replicas)
    world, segment = stage.world, user_segment(stage)
    world.run_for(0.03)
    epoch = max(site.part.closed for site in world.sites) + 3
    world.deadly.add((segment, 4, epoch))
    with pytest.raises(UserCodeCrashed) as caught:
        world.run_until_quiet(10.0)
    error = caught.value
    assert error.epoch == epoch and 4 in error.partitions and error.box in {step.box for step in world.layout.segments[segment].steps}
    alive = [site.index for site in world.sites if site.alive]
    assert set(error.sites).isdisjoint(alive) and len(alive) >= 5 - replicas, "no site dies that had no replica"
    assert any("It was running user code" in event.text for _, event in world.happened if event.kind == "site_lost")


def test_a_row_that_killed_one_replica_by_chance_kills_nobody_else() -> None:
    """Goal: one death in user code is masked as any other. Method: the row is deadly until the first site has died of it."""
    stage = Stage("boxes", sites=5)
    world, segment = stage.world, user_segment(stage)
    world.run_for(0.03)
    hosts = stage.machine.plan.placement[segment][4]
    epoch = max(site.part.closed for site in world.sites) + 3
    world.slow_down(hosts[1], 20.0)
    world.deadly.add((segment, 4, epoch))
    stage.wait(lambda: not all(world.sites[host].alive for host in hosts), "a death")
    world.deadly.clear()
    world.slow_down(hosts[1], 1.0)
    stage.whole()
    stage.finish()


def test_user_code_that_does_not_return_is_told_of_and_nobody_dies_of_it() -> None:
    """Goal: a person sees what the dataflow waits for. Method: one epoch of one partition never returns, at any replica."""
    stage = Stage("boxes", sites=3)
    world, segment = stage.world, user_segment(stage)
    world.run_for(0.03)
    epoch = max(site.part.closed for site in world.sites) + 3
    world.endless.add((segment, 4, epoch))
    world.run_for(SLOW_S + 1.0)
    told = [event for _, event in world.happened if event.kind == "user_code_slow"]
    hosts = set(stage.machine.plan.placement[segment][4])
    assert {event.site for event in told} == hosts and len(told) == len(hosts), "each once"
    box = next(step.box for step in world.layout.segments[segment].steps if step.user_code)
    assert all(event.details["box"] == box and event.details["epoch"] == epoch and f"box {box} at site" in event.text for event in told)
    assert world.error is None and len(stage.machine.sites) == 3


def test_a_time_limit_ends_the_run_with_box_and_epoch() -> None:
    """Goal: who would rather fail than wait can. Method: the same with `user_timeout_s`."""
    options = FlowOptions(linger_ms=0.5, epoch_rows=20, heartbeat_ms=10.0, user_timeout_s=2.0)
    stage = Stage("boxes", sites=3, options=options)
    world, segment = stage.world, user_segment(stage)
    world.run_for(0.03)
    epoch = max(site.part.closed for site in world.sites) + 3
    world.endless.add((segment, 4, epoch))
    with pytest.raises(BoxFailed, match=r"has not returned for 2\.0 s \(user_timeout_s is 2\)") as caught:
        world.run_until_quiet(10.0)
    assert caught.value.epoch == epoch
