"""How seeds of the swarm end: what a draw does to a run leaves it the time, and the sites, with which it has to end."""

from __future__ import annotations

from random import Random

import pytest

from evenflow.site.options import FlowOptions
from evenflow.swarm.endings import Ending, bearable
from evenflow.swarm.faults import Faults, Mix
from evenflow.swarm.memory import DIES_US, Memory
from evenflow.world.sim.model import CostModel
from tests.sim.test_scenarios import Stage

DEAR = CostModel(row_us=600.0, slow=(10.0, 1.0), free=frozenset({"egress", "inner"}))
"""Of a source that brings more than sites can do: at the slower ones a row takes 6 ms."""
LIMIT_S = 20.0


class Drawn(Random):
    """A box fails late, some epochs after the faults, and sites become as slow as they can be drawn."""

    def random(self) -> float:
        return 0.6

    def choice(self, able):  # type: ignore[no-untyped-def]
        return max(able)

    def randint(self, low: int, high: int) -> int:
        return high


def test_a_run_whose_rows_are_dear_ends_in_time_though_its_sites_become_slow() -> None:
    """Goal: what is waited for is the run's end, and not work. Method: nothing may be left out, a row takes 6 ms at one of two replicas,
    and the draw is one that makes sites 40 times slower until a box fails."""
    stage = Stage(sites=2, rows=150, cost=DEAR)
    world = stage.world
    ending = Ending(world, "box", Drawn(), stage.case.counts, 0, Faults(world, Mix(), Random(1)))
    stage.wait(lambda: stage.machine.running and world.redundancy() >= 2, "the run to begin")
    ending.begin()
    assert world.failing is not None and max(site.slow for site in world.sites) > 1, "the draw does nothing"
    ending.go_on(LIMIT_S)
    assert world.ended and world.error is not None and ending.expects(world.error)


@pytest.mark.parametrize(
    ("factor", "alone_s", "slower"),
    [(40.0, 0.01, 40.0), (40.0, 0.1, 40.0), (40.0, 1.0, 4.0), (3.0, 1.0, 3.0), (40.0, 9.0, 1.0), (1.0, 0.01, 1.0)],
)
def test_a_site_becomes_as_slow_as_it_may(factor: float, alone_s: float, slower: float) -> None:
    assert bearable(factor, alone_s) == slower


class Breaks(Random):
    """The disk of site 0 breaks, at once and not again."""

    def random(self) -> float:
        return 0.0

    def choice(self, able):  # type: ignore[no-untyped-def]
        return able[0] if isinstance(able[0], int) else able[-1]


@pytest.mark.parametrize("over", [True, False], ids=["over", "not_yet"])
def test_whose_disk_broke_dies_while_faults_may_and_not_between_them_and_the_end(over: bool) -> None:
    """Goal: sites are counted when all faults are over, and none dies uncounted. Method: a disk breaks; until the others are well again
    nobody can do without its site; meanwhile all faults end, or they do not."""
    stage = Stage(sites=2, rows=150, options=FlowOptions(state_memory_bytes=10_000))
    world = stage.world
    stage.wait(lambda: stage.machine.running and world.redundancy() >= 2, "the run to begin")
    faults = Faults(world, Mix(), Random(1))
    memory = Memory(world, Breaks(), 1, faults)
    world.run_for(1e-5)
    assert world.sites[0].disk.broken, "the draw does nothing"
    faults.risk([1], 2 * DIES_US)
    world.run_for(1.5 * DIES_US / 1e6)
    assert world.sites[0].alive, "it is the last one that is well"
    if over:
        memory.end()
    world.run_for(2.0)
    assert not faults.at_risk(1)
    assert world.sites[0].alive is over
