"""Rows on which boxes raise, while partitions move and sites die: all replicas put the same rows aside, once."""

from __future__ import annotations

from functools import partial

import pytest

from evenflow.policy.move import Move
from tests.drawn import one_in
from tests.sim.test_moving import hosts, moved, moves, other
from tests.sim.test_scenarios import Stage

DEAD = ("divide_dead", "ask_dead", "accept_dead")


@pytest.mark.parametrize("replicas", one_in(3, [2, 1, 3]))
def test_partitions_move_between_poison_rows(replicas: int) -> None:
    """Goal: where a partition lives does not show in what it puts aside. Method: partitions of every segment move, every row is
    compared."""
    stage = Stage("poison", sites=5, replicas=replicas)
    stage.world.run_for(0.02)
    for number, segment in enumerate(stage.world.layout.segments):
        partitions = tuple(p for p in range(min(3, segment.partitions)) if hosts(stage, number, p) == hosts(stage, number, 0))
        moves(stage, Move(number, partitions, hosts(stage, number, 0)[0], other(stage, number, partitions), "to see"))
        moved(stage, number + 1)
    stage.finish()
    assert all(stage.world.output(sink).num_rows for sink in DEAD)


def is_dead(stage: Stage, site: int) -> bool:
    return site not in stage.machine.membership.sites


def test_sites_die_between_poison_rows() -> None:
    """Goal: a death loses and repeats no dead letter. Method: a leader and then another site die; each is replaced."""
    stage = Stage("poison", sites=4, replicas=2)
    stage.world.run_for(0.02)
    for role in (stage.leader, stage.follower):
        victim = role()
        stage.world.kill(victim)
        stage.world.add_site()
        stage.wait(partial(is_dead, stage, victim), "the death to be known")
        stage.whole()
    stage.finish()
    assert stage.world.fired("T2", "lose_link") and all(stage.world.output(sink).num_rows for sink in DEAD)


@pytest.mark.parametrize("replicas", one_in(2, [2, 1]))
def test_they_are_counted_once_and_by_box(replicas: int) -> None:
    """Goal: run.progress and statistics say how many rows were left out. Method: nothing fails, so that the numbers are exact."""
    stage = Stage("poison", sites=3, replicas=replicas)
    stage.finish()
    world = stage.world
    found = {sink: world.output(sink).num_rows for sink in DEAD}
    assert sum(site.part.counters.rows_failed for site in world.sites) == sum(found.values()) > 20
    by_box = {box.name: box.rows_failed for box in world.collect().boxes().values() if box.rows_failed}
    assert by_box == {sink.removesuffix("_dead"): replicas * count for sink, count in found.items()}
