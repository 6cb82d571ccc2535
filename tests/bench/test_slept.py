"""What is told of an overload that did not take place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenflow.bench.delivered import Delivered
from evenflow.bench.events import BEGIN_US, VaryingEvents
from evenflow.bench.overload import best, loss, together, usefulness
from evenflow.bench.slept import late_s, lateness, of_report


def out(at_s: list[float], age_ms: list[float]) -> Delivered:
    return Delivered(np.array(at_s), np.array(age_ms), np.ones(len(at_s)))


def test_how_long_answers_were_late() -> None:
    at = [float(x) for x in np.arange(0, 10, 0.1)]
    ages = [500.0 if 3 <= x < 4.6 else 10.0 for x in at]
    assert late_s(out(at, ages), 2.0, 9.0, 250.0) == pytest.approx(2.75)
    assert late_s(out(at, [10.0] * len(at)), 2.0, 9.0, 250.0) == 0.0
    assert late_s(out(at[:50], [10.0] * 50), 2.0, 9.0, 250.0) == pytest.approx(7.0), "nothing comes any more: that is late"


def test_an_output_of_which_nothing_comes_by_right_is_not_late() -> None:
    at = [float(x) for x in np.arange(0, 10, 0.1)]
    dear, cheap = out(at, [10.0] * len(at)), out(at[:30], [400.0] * 30)
    assert late_s(together([dear, cheap]), 2.0, 9.0, 250.0) == pytest.approx(1.0)


def test_the_best_choice_fills_the_steepest_pieces_first() -> None:
    """Of two outputs of weights 1 and 0.2 the dear one comes first, but for the cheap one's steep start."""
    assert best(0.5) == best(1.0) == pytest.approx(1.2)
    assert best(2.0) == pytest.approx(1.0), "all of the dear one is as much as fits"
    shares = np.linspace(0, 1, 401)
    for load in (1.5, 3.0, 5.0, 8.0):
        every = [loss(mine) + 0.2 * loss(2 / load - mine) for mine in shares if 0 <= 2 / load - mine <= 1]
        assert best(load) == pytest.approx(max(every), abs=2e-3)


def test_what_is_late_is_worth_less() -> None:
    assert usefulness(out([1.0, 1.0], [100.0, 625.0])) == pytest.approx(0.75)
    assert usefulness(out([], [])) == 0.0


def test_what_could_not_be_measured_is_nothing() -> None:
    assert of_report(a=math.nan, b=1.23456, c=3, d=None) == {"a": None, "b": 1.2346, "c": 3, "d": None}


def test_rows_whose_rate_changes_are_due_when_they_say() -> None:
    """Goal: how many are due and when each is due agree, over a rise, a fall and a rate that divides no second."""
    source = VaryingEvents(1, 1 << 40, 10, count=1, steps=((0, 7), (2_000_000, 1000), (2_500_000, 3)))
    numbers = np.arange(source.due(BEGIN_US + 6_000_000))
    due_us = source.since_us(numbers)
    assert (np.diff(due_us) > 0).all() and len(numbers) == 14 + 500 + 10 + 1
    for number, us in zip(numbers, due_us, strict=True):
        assert source.due(BEGIN_US + int(us)) == number + 1
        assert source.due(BEGIN_US + int(us) - 1) == number


def test_what_is_late_long_after_a_calm_is_a_figure_of_its_own() -> None:
    """Goal: one late answer minutes later does not make all of the time before it late."""
    at = [float(x) for x in np.arange(0, 60, 0.1)]
    ages = [500.0 if 3 <= x < 4.6 or 40 <= x < 40.05 else 10.0 for x in at]
    assert lateness(out(at, ages), 2.0, 59.0, 250.0, 5.0) == pytest.approx((2.75, 0.5))
    assert lateness(out(at, ages), 5.0, 59.0, 250.0, 5.0) == pytest.approx((0.0, 0.5))
    assert lateness(out(at, ages), 2.0, 59.0, 250.0, math.inf) == pytest.approx((38.25, 0.0))


def test_two_late_answers_with_less_than_a_calm_between_them_are_one_time() -> None:
    at = [float(x) for x in np.arange(0, 30, 0.1)]
    ages = [500.0 if x in (at[30], at[70]) else 10.0 for x in at]
    assert lateness(out(at, ages), 2.0, 29.0, 250.0, 5.0) == pytest.approx((5.25, 0.0))
    assert lateness(out(at, ages), 2.0, 29.0, 250.0, 3.0) == pytest.approx((1.25, 0.5))


def test_a_silence_is_late_if_what_ends_it_is() -> None:
    """Goal: that nothing comes for a while is no lateness by itself; from when on it was one, what comes next says."""
    at = [*(float(x) for x in np.arange(0, 3, 0.1)), *(float(x) for x in np.arange(5, 12, 0.1))]
    assert late_s(out(at, [10.0] * len(at)), 2.0, 11.0, 250.0) == 0.0
    ages = [2000.0 if x == 5.0 else 10.0 for x in at]
    assert late_s(out(at, ages), 2.0, 11.0, 250.0) == pytest.approx(3.25)
    assert lateness(out(at, ages), 2.0, 11.0, 250.0, 0.25) == pytest.approx((0.0, 2.0)), "3.25 to 5.25"
    assert late_s(out([], []), 2.0, 11.0, 250.0) == pytest.approx(9.0)
