"""Hedging by its own past, within its budget, and not where everybody is late (A7)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evenflow.policy.hedge import ALLOWED, KEPT_ON, MOST_US, SAVED, Budget, Delays, hedge_us, late, next_look_us, slower

DELAYS = st.lists(st.integers(0, 200_000), max_size=300)


@given(DELAYS)
def test_few_epochs_are_later_than_what_is_waited(delays: list[int]) -> None:
    limit = hedge_us(delays)
    assert limit <= MOST_US
    assert limit == MOST_US or sum(delay > limit for delay in delays) <= (1 - 0.95) * len(delays) + 1


def test_an_unknown_leg_is_waited_for_longest() -> None:
    assert Delays().hedge_us == MOST_US


@given(DELAYS)
def test_only_the_newest_delays_count(delays: list[int]) -> None:
    judged = Delays()
    for delay in [10**6] * 300 + delays + [7] * 256:
        judged.note(delay)
    assert judged.hedge_us == 7


@given(st.lists(st.booleans(), max_size=3_000))
def test_no_more_than_the_share_is_asked_for_twice(wishes: list[bool]) -> None:
    budget, taken = Budget(), 0
    for at, wish in enumerate(wishes, 1):
        budget.pass_on()
        taken += wish and budget.take()
        assert taken <= ALLOWED * at + KEPT_ON
        assert 0 <= budget.left <= SAVED


def test_a_leg_is_late_by_its_own_past_and_only_with_what_exists() -> None:
    limits = {"a": 10, "b": 50, "c": 10}
    assert late({"a": 100, "b": 100, "c": None}, limits, 120) == ("a",)
    assert late({"a": 100, "b": 100, "c": None}, limits, 109) == ()
    assert next_look_us({"a": 100, "b": 100, "c": None}, limits, 120) == 150
    assert next_look_us({"a": None}, {"a": 10}, 120) is None


def test_where_all_are_late_nobody_is_asked() -> None:
    limits = {"a": 10, "b": 50}
    assert late({"a": 100, "b": 100}, limits, 200) == ()
    assert late({"a": 100}, {"a": 10}, 200) == ("a",), "of one way there is nothing to compare with"


def test_the_slower_leg_goes_off_and_ones_own_stays_where_they_are_equal() -> None:
    assert slower({"own": 3, "twin": 13}, "own") == "own"
    assert slower({"own": 9, "twin": 7}, "own") == "twin"
    assert slower({"own": 8, "twin": 8}, "own") == "twin"
