"""Which losses a driver survives itself, and when it gives up."""

from __future__ import annotations

from evenflow.coordinator.survival import FRUITLESS_MAX, GATHER_S, SETTLE_S, Gathering, Survival
from evenflow.errors import CheckpointCorrupt, DriverAway, Fenced, LostBeforeStart, PartitionsLost, SinkError
from evenflow.stream.ids import SiteId

SITES = (SiteId(4), SiteId(5))
LOST = PartitionsLost(1, "killed", {}, 5)


def test_losses_are_survived_and_what_a_restart_would_not_mend_is_not() -> None:
    for error in (LOST, DriverAway(20.0, 10.0, 5), CheckpointCorrupt("x"), LostBeforeStart("x")):
        assert Survival().survives(error, 1)
    for error in (None, Fenced("x"), SinkError("x")):
        assert not Survival().survives(error, 1)


def test_it_gives_up_when_nothing_new_becomes_durable_again_and_again() -> None:
    survival = Survival()
    tried = 0
    while survival.survives(LOST, 7):
        tried += 1
    assert tried == FRUITLESS_MAX


def test_anything_new_counts_and_what_was_reached_once_is_not_new() -> None:
    survival = Survival()
    for durable in range(50):
        assert survival.survives(LOST, durable)
        assert survival.fruitless == 0
    for durable in (3, 49, 10):
        assert survival.survives(LOST, durable)
    assert survival.fruitless == 3


def test_the_pause_before_the_next_generation_doubles_to_a_bound() -> None:
    survival, pauses = Survival(), []
    while survival.survives(LOST, 7):
        pauses.append(survival.settle_s)
    assert pauses[:3] == [SETTLE_S[0], 2 * SETTLE_S[0], 4 * SETTLE_S[0]]
    assert pauses[-1] == SETTLE_S[1]


def test_with_all_sites_it_goes_on_at_once_and_with_those_that_survive_after_its_patience() -> None:
    assert Gathering(2, 1, 0.0, 60.0).chosen(SITES, 0.0) == SITES
    gathering = Gathering(3, 1, 0.5, 60.0)
    assert gathering.chosen(SITES, 0.0) is None
    assert gathering.chosen(SITES, 0.6) == SITES


def test_who_is_started_at_the_same_time_as_the_first_one_is_waited_for() -> None:
    """Else the first one would have all state."""
    gathering = Gathering(2, 1, 0.0, 60.0)
    assert gathering.chosen((), 0.0) is None
    assert gathering.chosen(SITES[:1], 5.0) is None
    assert gathering.chosen(SITES, 5.2) == SITES
    gathering = Gathering(2, 1, 0.0, 60.0)
    assert gathering.chosen((), 0.0) is None
    assert gathering.chosen(SITES[:1], 5.0) is None
    assert gathering.chosen(SITES[:1], 5.0 + GATHER_S) == SITES[:1], "nobody else came"


def test_too_few_sites_will_do_when_it_is_late_and_none_will_not() -> None:
    gathering = Gathering(3, 2, 0.0, 60.0)
    assert gathering.chosen(SITES[:1], 59.0) is None
    assert gathering.chosen(SITES[:1], 60.0) == SITES[:1]
    assert Gathering(3, 2, 0.0, 60.0).chosen((), 60.0) == ()
