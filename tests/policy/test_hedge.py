"""When a second one is asked: late enough to be rare, and never oftener than the budget says."""

from __future__ import annotations

from random import Random

from evenflow.policy.hedge import AT_ONCE, FEW, MOST_US, Hedge


def test_what_is_not_known_yet_is_waited_for_longest() -> None:
    hedge = Hedge()
    for _ in range(FEW - 1):
        hedge.came(10, late=False)
    assert hedge.wait_us == MOST_US
    hedge.came(10, late=False)
    assert hedge.wait_us == 10


def test_it_waits_for_as_long_as_nineteen_of_twenty_take_and_at_most_50_ms() -> None:
    hedge = Hedge()
    for delay_us in range(1, 101):
        hedge.came(100 * delay_us, late=False)
    assert hedge.wait_us == 9500
    for _ in range(300):
        hedge.came(10**6, late=False)
    assert hedge.wait_us == MOST_US


def test_one_of_twenty_epochs_is_asked_for_twice_at_most() -> None:
    draw, hedge, asked = Random(1), Hedge(), 0
    for _ in range(10_000):
        late = draw.random() < 0.5
        asked += late and hedge.spend()
        hedge.passed()
        hedge.came(5000, late=late)
    assert asked <= 0.05 * 10_000 + AT_ONCE


def test_who_is_late_so_often_in_a_row_is_given_up_and_who_was_in_time_once_is_not() -> None:
    hedge = Hedge()
    for _ in range(AT_ONCE - 1):
        hedge.spend()
    assert not hedge.given_up
    hedge.came(1, late=False)
    hedge.spend()
    assert not hedge.given_up
    for _ in range(AT_ONCE):
        hedge.spend()
        hedge.came(10**6, late=True)
    assert hedge.given_up
    hedge.changed()
    assert not hedge.given_up and not hedge.delays_us
