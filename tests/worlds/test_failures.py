"""Sites die, hang and lose their connections in the middle of a run with replicas: nothing is lost and nothing comes twice.

The same scenarios in the simulator and on Spark, where a death is a kill -9 of real processes. Every row of the output is compared with
what plain Python says that it must be, and every scenario shows by the run's events that it has hit its path.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import evenflow as ef
from evenflow.errors import PartitionsLost
from tests.worlds.dataflows import Totals, counted, slowly_counted
from tests.worlds.worlds import World

Named = Callable[[str], str]


@pytest.fixture(scope="module")
def totals() -> Totals:
    return Totals()


class Scenario:
    """A counting dataflow with replicas, in the middle of its run."""

    def __init__(self, world: World, totals: Totals, gate: Path, name: str) -> None:
        self.world, self._totals, self._gate, self._sink = world, totals, gate, ef.sinks.memory(name)

    def start(self, replicas: int = 2, *, unordered: bool = False) -> None:
        world = self.world
        world.start(counted(self._gate, self._sink, unordered=unordered), self._sink, replicas)
        world.until(lambda: world.output().num_rows > 300, "results come")

    def goes_on(self) -> None:
        """More results come."""
        before = self.world.output().num_rows
        self.world.until(lambda: self.world.output().num_rows > before + 100, "results come again")

    def is_whole_again(self, lost: int = 1) -> None:
        """So many sites are lost, and every partition has all its replicas again."""
        world = self.world
        world.until(
            lambda: len(world.happened("site_lost")) >= lost and world.cast.machine.redundancy() > 1 and bool(world.happened("redundancy")),
            "every partition has all its replicas",
        )
        assert len(world.happened("site_lost")) == lost, f"somebody died needlessly: {world.told('site_lost')}"

    def ends_well(self) -> None:
        self._gate.touch()
        self._totals.check(self.world.finish())

    def stays_right(self) -> None:
        """What has come out so far is right, though it is not all."""
        self._totals.check(self.world.output(), whole=False)


@pytest.fixture
def scenario(world: World, totals: Totals, gate: Path, named: Named) -> Scenario:
    return Scenario(world, totals, gate, named("counted"))


# ---------------------------------------------------------------- one death


@pytest.mark.parametrize("role", ["leader", *(pytest.param(role, marks=pytest.mark.conformance) for role in ("follower", "egress"))])
def test_one_dies(world: World, scenario: Scenario, role: str) -> None:
    """Goal: a death goes unnoticed, whatever the site did. Method: kill it under load; go on until the spare has what it had."""
    scenario.start()
    victim = getattr(world.cast, role)
    world.kill(victim)
    scenario.goes_on()
    scenario.is_whole_again()
    scenario.ends_well()
    assert world.happened("site_lost") == [victim] == world.happened("take_over")
    assert world.happened("copy_live"), "nothing was copied"


@pytest.mark.conformance
@pytest.mark.parametrize("role", ["leader", "egress"])
def test_one_dies_where_rows_leave_first_come_first_served(world: World, scenario: Scenario, role: str) -> None:
    """Goal: each partition's rows leave in order and once (O1). Method: as above; what has left by then is one portion at a time."""
    scenario.start(unordered=True)
    victim = getattr(world.cast, role)
    world.kill(victim)
    scenario.goes_on()
    scenario.is_whole_again()
    scenario.ends_well()
    assert world.happened("site_lost") == [victim] == world.happened("take_over")


@pytest.mark.conformance
def test_the_process_of_a_site_dies_and_its_executor_lives(world: World, scenario: Scenario) -> None:
    scenario.start()
    victim = world.cast.leader
    world.kill(victim, manner="worker")
    scenario.goes_on()
    scenario.is_whole_again()
    scenario.ends_well()
    assert world.happened("site_lost") == [victim]


@pytest.mark.conformance
def test_the_spare_dies(world: World, scenario: Scenario) -> None:
    """Goal: who does nothing is missed by nobody, and nothing is copied."""
    scenario.start()
    victim = world.cast.spare
    world.kill(victim)
    world.until(lambda: world.happened("site_lost") == [victim], "the death is noticed")
    scenario.goes_on()
    scenario.ends_well()
    assert not world.happened("copy_begun")


# ---------------------------------------------------------------- several deaths


@pytest.mark.conformance
def test_two_of_different_pairs_die_at_once(world: World, scenario: Scenario) -> None:
    scenario.start()
    victims = {world.cast.follower, world.cast.elsewhere}
    world.kill(*victims)
    scenario.goes_on()
    world.until(lambda: set(world.happened("site_lost")) == victims, "both deaths are noticed")
    scenario.ends_well()
    assert set(world.happened("take_over")) == victims


@pytest.mark.conformance
def test_another_one_dies_during_the_take_over(world: World, scenario: Scenario) -> None:
    """Method: the second is killed in the moment when the coordinator declares the first one dead, before its successors know."""
    scenario.start()
    victims = [world.cast.leader, world.cast.elsewhere]
    world.at("site_lost", lambda: world.kill(victims[1]))
    world.kill(victims[0])
    scenario.goes_on()
    world.until(lambda: world.happened("site_lost") == victims, "both deaths are noticed")
    scenario.ends_well()
    assert world.happened("take_over") == victims


@pytest.mark.conformance
@pytest.mark.parametrize("end", ["source", "target"])
def test_an_end_of_a_copy_dies(world: World, scenario: Scenario, end: str) -> None:
    """Goal: a copy begins again, from another replica or to another site, until all is whole (C4).

    Method: kill in the moment when the copy begins. With two replicas its source is the last one there is, so that three are needed.
    """
    scenario.start(replicas=3)
    victims = [world.cast.leader]

    def strike() -> None:
        source, target = world.cast.copy()
        victims.append(source if end == "source" else target)
        world.kill(victims[1])

    world.at("copy_begun", strike)
    world.kill(victims[0])
    scenario.goes_on()
    world.until(lambda: len(world.happened("site_lost")) == 2, "both deaths are noticed")
    world.until(lambda: bool(world.happened("redundancy")), "every partition has all its replicas")
    scenario.ends_well()
    assert world.happened("site_lost") == victims
    assert world.cast.machine.redundancy() == 3


@pytest.mark.conformance
def test_the_last_replica_dies(world: World, scenario: Scenario) -> None:
    """Goal: the run says which partitions and epochs are gone, and nothing wrong was ever given to the sink.

    Method: kill all processes of both at once. A Python process outlives its executor's JVM by some time, which may be enough for a copy.
    """
    scenario.start()
    epoch = world.cast.machine.seen
    world.kill(*world.cast.ingress(), manner="machine")
    with pytest.raises(PartitionsLost) as raised:
        world.finish()
    assert raised.value.replicas == 2 and raised.value.epoch >= epoch
    assert 0 in raised.value.partitions["rows"] and 1 not in raised.value.partitions["rows"]
    assert len(world.happened("site_lost")) == 2, world.told("site_lost")
    scenario.stays_right()


# ---------------------------------------------------------------- silence


@pytest.mark.conformance
def test_one_hangs_and_comes_back_from_the_dead(world: World, scenario: Scenario) -> None:
    """Goal: a site that is silent is replaced; when it goes on it knows nothing of that, finds itself fenced, and leaves (V3)."""
    scenario.start()
    zombie = world.cast.leader
    world.hang(zombie)
    world.until(lambda: world.happened("site_lost") == [zombie], "the silence is noticed")
    scenario.goes_on()
    assert not world.has_left(zombie)
    world.resume(zombie)
    world.until(lambda: world.has_left(zombie), "the zombie has left")
    scenario.is_whole_again()
    scenario.ends_well()
    assert zombie not in world.cast.sites


@pytest.mark.conformance
def test_a_short_stop_kills_nobody(world: World, scenario: Scenario) -> None:
    scenario.start()
    for site in world.cast.ingress():
        world.hang_for(site, 0.1)
        scenario.goes_on()
    scenario.ends_well()
    assert not world.happened("site_lost"), world.told("site_lost")


@pytest.mark.conformance
def test_one_link_breaks_again_and_again(world: World, scenario: Scenario) -> None:
    """Goal: a broken link is not a dead site (V4)."""
    scenario.start()
    world.cut_link(world.cast.leader, world.cast.follower, times=8)
    scenario.goes_on()
    scenario.ends_well()
    assert not world.happened("site_lost"), world.told("site_lost")


def test_a_broken_control_connection_kills_nobody(world: World, scenario: Scenario) -> None:
    scenario.start()
    for site in (world.cast.leader, world.cast.egress):
        world.break_control(site)
    scenario.goes_on()
    scenario.ends_well()
    assert not world.happened("site_lost"), world.told("site_lost")


@pytest.mark.conformance
def test_a_slow_box_kills_nobody(world: World, gate: Path, named: Named) -> None:
    """Goal: busy is not silent. Method: a user's function that takes longer than the silence after which a site counts as dead."""
    sink = ef.sinks.memory(named("slow"))
    world.start(slowly_counted(gate, sink, world.slow_s, rows=400, rate=100), sink)
    world.until(lambda: world.output().num_rows > 20, "results come")
    gate.touch()
    Totals(400).check(world.finish())
    assert not world.happened("site_lost"), world.told("site_lost")
