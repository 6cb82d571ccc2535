"""Rows on which user code ends its process: the second site that dies of one ends the run, with what people need to find it."""

from __future__ import annotations

import pytest

from evenflow.errors import BoxFailed, UserCodeCrashed
from evenflow.site.options import FlowOptions
from evenflow.site.overdue import SLOW_S
from evenflow.swarm.asked_cases import asked
from evenflow.swarm.taken import taken_in
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


def test_nobody_dies_of_an_epoch_without_rows() -> None:
    """Goal: the simulated user code does no harm where it is not called. Method: a leader asks a box for an epoch without rows, at which
    the box would end its process, or never return."""
    stage = Stage(asked, sites=3)
    world = stage.world
    segment = next(segment.id for segment in world.layout.segments if segment.effects is not None)
    quotas = dict(world.quotas)
    stage.wait(lambda: all(taken_in(world, *key) >= quota for key, quota in quotas.items()), "the rows that come for now")
    closed = max(site.part.closed for site in world.sites)
    stage.wait(lambda: min(site.part.finished for site in world.sites) > closed, "what is under way")
    epoch = max(site.part.closed for site in world.sites) + 2
    world.endless.add((segment, 0, epoch))
    world.deadly.add((segment, 0, epoch + 1))
    stage.wait(lambda: min(site.part.finished for site in world.sites) > epoch + 1, "epochs without rows to be over")
    assert all(site.alive for site in world.sites) and taken_in(world, 0, 0) == quotas[0, 0]
    stage.finish()
