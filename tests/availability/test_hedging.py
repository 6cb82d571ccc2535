"""When a subscriber asks a second leg: late enough to be rare, and never oftener than the budget says."""

from __future__ import annotations

from random import Random

import pytest

from evenflow.availability.chain import Link
from evenflow.availability.hedging import FEW, Hedge
from evenflow.availability.subscribing import AHEAD_MOST, Deliver, Follow, Subscription, Want
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


def longest_wait_us(epochs: int, apart_us: int, round_trip_us: int) -> int:
    """How long an epoch is waited for at most behind its head, where the leg with rows is up and mute, and the other one has all."""
    subscription, now_us, waited_us = Subscription.of("out", ["mute", "live"], 0, 0), 0, 0
    subscription.joined(0, 0)
    subscription.joined(1, 0)
    shown = {epoch: (epoch - 1) * apart_us for epoch in range(1, epochs + 1)}
    due = [(at_us, epoch, "head") for epoch, at_us in shown.items()]
    while subscription.chain.delivered < epochs:
        tick_us = subscription.due_us
        if tick_us is not None and (not due or tick_us <= due[0][0]):
            now_us, actions = max(now_us, tick_us), subscription.tick(max(now_us, tick_us))
        else:
            now_us, epoch, what = due.pop(0)
            actions = subscription.told(1, Link(epoch - 1, epoch, epoch), None if what == "head" else "rows", now_us)
        for action in actions:
            if isinstance(action, Deliver):
                waited_us = max(waited_us, now_us - shown[action.link.epoch])
            elif isinstance(action, Want):
                due.append((now_us + round_trip_us, action.epoch, "rows"))
            elif isinstance(action, Follow) and action.brings == "rows":
                due += [(max(now_us, shown[e]) + round_trip_us, e, "rows") for e in shown if e > action.after]
        due.sort()
    assert subscription.chain.delivered == epochs and subscription.swapped == 1
    return waited_us


@pytest.mark.parametrize("round_trip_us", [1_000, 20_000, 180_000])
def test_a_reader_falls_behind_by_one_hedge_and_sixteen_round_trips_and_no_further(round_trip_us: int) -> None:
    """Fifteen epochs are asked for one after the other, and what the sixteenth is late with is asked for as a whole. Only the first waits
    for its hedge: the others' heads came meanwhile. Where heads come more slowly than they are asked for, less is waited."""
    most_us = MOST_US + KEPT_ON * round_trip_us
    assert longest_wait_us(40, 0, round_trip_us) == most_us
    assert all(longest_wait_us(40, apart_us, round_trip_us) <= most_us for apart_us in (100, 10_000, 60_000, 400_000))


def test_a_leg_that_was_too_far_ahead_is_asked_again_before_the_reader_needs_what_it_has() -> None:
    """Goal: a reader is never where nobody has shown what comes next. Method: one leg shows more than is kept in mind, the one with rows
    brings some of them and then stands still, connected."""
    subscription, epochs, brought = Subscription.of("out", ["slow", "fast"], 0, 0), 3 * AHEAD_MOST, AHEAD_MOST + 10
    subscription.joined(0, 0)
    subscription.joined(1, 0)

    def show(after: int) -> None:
        for epoch in range(after + 1, epochs + 1):
            assert not subscription.told(1, Link(epoch - 1, epoch, epoch), None, 0)

    show(0)
    asked = 0
    for epoch in range(1, brought + 1):
        for action in subscription.told(0, Link(epoch - 1, epoch, epoch), "rows", 0):
            if isinstance(action, Follow):
                assert (action.leg, action.brings, action.after) == (1, "heads", epoch)
                asked += 1
                show(action.after)
    assert 1 <= asked <= 3, "not for each epoch"
    due_us = subscription.due_us
    assert due_us is not None and subscription.tick(due_us) == [Want(1, brought + 1)]
