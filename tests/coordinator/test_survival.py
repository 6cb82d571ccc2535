"""Which losses a driver survives itself, and when it gives up."""

from __future__ import annotations

from evenflow.coordinator.survival import FRUITLESS_MAX, SETTLE_S, Survival
from evenflow.errors import CheckpointCorrupt, DriverAway, Fenced, LostBeforeStart, PartitionsLost, SinkError

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
