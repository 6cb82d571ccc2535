"""When a subscriber asks a second leg: late enough to be rare, and never oftener than the budget says."""

from __future__ import annotations

from random import Random

from evenflow.availability.hedging import FEW, Hedge
from evenflow.policy.hedge import KEPT_ON, MOST_US


def test_what_is_not_known_yet_is_waited_for_longest() -> None:
    hedge = Hedge()
    for _ in range(FEW - 1):
        hedge.came(10, late=False)
    assert hedge.wait_us == MOST_US
    hedge.came(10, late=False)
    assert hedge.wait_us == 10
    hedge.changed()
    assert hedge.wait_us == MOST_US


def test_one_of_twenty_epochs_is_asked_for_twice_at_most() -> None:
    draw, hedge, asked = Random(1), Hedge(), 0
    for _ in range(10_000):
        late = draw.random() < 0.5
        asked += late and hedge.spend()
        hedge.passed()
        hedge.came(5000, late=late)
    assert asked <= 0.05 * 10_000 + KEPT_ON


def test_who_is_late_so_often_in_a_row_is_given_up_and_who_was_in_time_once_is_not() -> None:
    hedge = Hedge()
    for _ in range(KEPT_ON - 1):
        hedge.spend()
    assert not hedge.given_up
    hedge.came(1, late=False)
    hedge.spend()
    assert not hedge.given_up
    for _ in range(KEPT_ON):
        hedge.spend()
        hedge.came(10**6, late=True)
    assert hedge.given_up
    hedge.changed()
    assert hedge.in_a_row == 0
