"""When a driver that stands by takes over: a machine with a clock that the tests turn."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from evenflow.coordinator.standby import LOOK_S, Looked, Missed, Standby, Verdict
from evenflow.swarm.mutations import STANDBY, Mutation, planted

LEASE_S = 10.0


class Watching:
    """A standby whose looks take so long, and which looks as often as it says. sign: what the driver has said by now."""

    def __init__(self, took_s: float = 0.0, lease_s: float = LEASE_S) -> None:
        self.machine, self.took_s, self.now_s = Standby(lease_s), took_s, 1_000.0
        self.sign: Hashable = 0
        self.generation, self.theirs_s = 1, 0.0
        self.said_s = self.now_s

    def look(self, *, over: bool = False, stopped: bool = False) -> Verdict:
        began_s = self.now_s
        self.now_s += self.took_s
        verdict = self.machine.handle(Looked(began_s, self.now_s, self.generation, self.sign, self.theirs_s, over, stopped))
        self.now_s += self.machine.look_s
        return verdict

    def until_begins(self, most_s: float = 1_000.0) -> float:
        """For how long the driver has been silent then, by the test's clock."""
        while self.look() is not Verdict.BEGIN:
            assert self.now_s < self.said_s + most_s, "it never takes over"
        return self.now_s - self.machine.look_s - self.said_s

    def misses(self) -> None:
        self.machine.handle(Missed())
        self.said_s = self.now_s

    def lives(self, every_s: float, for_s: float) -> None:
        """The driver says something every so often, and is never taken over meanwhile."""
        until_s, next_s = self.now_s + for_s, self.now_s
        while self.now_s < until_s:
            if self.now_s >= next_s:
                self.sign, self.said_s, next_s = self.now_s, self.now_s, next_s + every_s
            assert self.look() is Verdict.WAIT
            assert self.machine.silent_s <= every_s + 2 * (self.took_s + self.machine.look_s)


def a_dead_driver_is_taken_over_after_its_lease() -> None:
    watching = Watching()
    watching.lives(1.0, 30.0)
    assert LEASE_S < watching.until_begins() <= LEASE_S + 2 * watching.machine.look_s


def an_idle_driver_that_says_that_it_lives_is_left_alone() -> None:
    """It appends nothing for an hour, and says something every quarter of its lease."""
    watching = Watching()
    watching.lives(LEASE_S / 4, 3_600.0)


def a_slow_store_makes_it_wait_longer_by_twice_its_slowest_look() -> None:
    watching = Watching(took_s=4.0)
    watching.lives(9.0, 100.0)
    assert watching.until_begins() > LEASE_S + 2 * 4.0


def a_driver_with_a_longer_lease_is_given_that() -> None:
    watching = Watching()
    watching.theirs_s = 60.0
    watching.lives(15.0, 300.0)
    assert watching.until_begins() > 60.0


def a_run_that_a_person_has_stopped_is_left_alone() -> None:
    """For however long; who starts it again is waited for as anybody is."""
    watching = Watching()
    watching.lives(1.0, 5.0)
    for _ in range(1_000):
        assert watching.look(stopped=True) is Verdict.WAIT
        assert watching.machine.silent_s == 0
    watching.generation, watching.said_s = 2, watching.now_s
    assert watching.until_begins() > LEASE_S


SCENARIOS = (
    a_run_that_a_person_has_stopped_is_left_alone,
    a_dead_driver_is_taken_over_after_its_lease,
    an_idle_driver_that_says_that_it_lives_is_left_alone,
    a_slow_store_makes_it_wait_longer_by_twice_its_slowest_look,
    a_driver_with_a_longer_lease_is_given_that,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test(scenario: object) -> None:
    assert callable(scenario)
    scenario()


def test_the_first_look_says_nothing_of_the_time_before_it() -> None:
    """The journal may be a year old: the clock of who wrote it is not this one's."""
    watching = Watching()
    assert watching.look() is Verdict.WAIT
    assert watching.machine.silent_s == 0


def test_a_store_that_was_away_is_no_silence() -> None:
    """Nobody could look for a minute, and the driver could not append either. What counts of that is at most a quarter of the lease."""
    watching = Watching()
    watching.lives(1.0, 5.0)
    watching.look()
    watching.now_s += 60.0
    assert watching.look() is Verdict.WAIT
    assert watching.machine.silent_s <= LEASE_S / 4 + 1.5
    watching.lives(1.0, 30.0)


def test_who_was_stopped_itself_knows_nothing_of_the_others() -> None:
    """Both were stopped together, the whole machine perhaps: the live one gets the time to say so."""
    watching = Watching()
    watching.lives(1.0, 5.0)
    for _ in range(3):
        watching.now_s += 300.0
        assert watching.look() is Verdict.WAIT
    watching.lives(1.0, 30.0)


def test_one_lost_look_does_not_begin_the_wait_anew() -> None:
    """Else it would never take over at a store that fails now and then."""
    watching, began_s = Watching(), 1_000.0
    while watching.look() is not Verdict.BEGIN:
        watching.now_s += watching.machine.look_s  # Every other one fails.
    assert watching.now_s - began_s <= LEASE_S + 4 * watching.machine.look_s


def test_another_driver_that_begins_is_waited_for() -> None:
    watching = Watching()
    watching.until_begins()
    watching.misses()
    watching.generation = 2
    watching.lives(1.0, 20.0)
    assert watching.machine.generation == 2
    assert watching.until_begins() > LEASE_S


def test_who_missed_it_waits_the_whole_time_again_even_if_nothing_is_new() -> None:
    """Its own entry may be in, though the store has not said so: then it waits for itself, and goes on after that."""
    watching = Watching()
    watching.until_begins()
    watching.misses()
    assert watching.until_begins() > LEASE_S


def test_a_run_that_is_over_is_not_waited_for() -> None:
    watching = Watching()
    watching.lives(1.0, 5.0)
    assert watching.look(over=True) is Verdict.OVER


def test_a_store_that_was_slow_once_is_not_waited_for_for_ever() -> None:
    watching = Watching()
    watching.took_s = 30.0
    watching.look()
    watching.took_s = 0.01
    watching.lives(1.0, 60.0)
    assert watching.machine.patience_s < LEASE_S + 0.1


@pytest.mark.parametrize(("lease_s", "look_s"), [(0.1, LOOK_S[0]), (10.0, 0.5), (3_600.0, LOOK_S[1])])
def test_it_looks_often_enough_and_not_too_often(lease_s: float, look_s: float) -> None:
    assert Standby(lease_s).look_s == look_s


@pytest.mark.parametrize("mutation", STANDBY, ids=lambda mutation: mutation.name)
def test_planted_bugs_are_found(mutation: Mutation) -> None:
    def all_of_them() -> None:
        for scenario in SCENARIOS:
            scenario()
        test_a_store_that_was_away_is_no_silence()
        test_who_missed_it_waits_the_whole_time_again_even_if_nothing_is_new()

    with planted(mutation), pytest.raises(AssertionError):
        all_of_them()
