"""Classes of rows by what they are worth."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.stream.curve import Curve
from evenflow.stream.worth import CLASSES_MAX, classes_of

AMOUNT = Curve(((0, 0.1), (1000, 1)))


@pytest.mark.parametrize("seen", [None, np.random.default_rng(3).exponential(200, 5000), [5.0], [5.0] * 100])
def test_a_class_has_one_worth_and_there_are_few(seen: object) -> None:
    found = classes_of(AMOUNT, seen)
    assert 1 <= len(found) <= CLASSES_MAX and len(found.cuts) == len(found) - 1
    assert list(found.worth) == sorted(found.worth) and all(0.1 <= each <= 1 for each in found.worth)
    values = np.linspace(-100, 2000, 200)
    of = found.of(values)
    assert of.min() >= 0 and of.max() <= len(found) - 1 and (np.diff(of) >= 0).all()


def test_values_that_have_come_are_divided_evenly() -> None:
    seen = np.random.default_rng(3).exponential(200, 8000)
    sizes = np.bincount(classes_of(AMOUNT, seen).of(seen))
    assert len(sizes) == CLASSES_MAX and sizes.max() <= 1.05 * sizes.min()


def test_what_is_worth_the_same_is_one_class() -> None:
    assert len(classes_of(Curve(((0, 1), (10, 1))))) == 1
    steps = classes_of(Curve(((0, 1), (10, 1), (11, 5), (20, 5))))
    assert steps.of([0, 9, 30]).tolist() == [0, 0, len(steps) - 1]


def test_nobody_has_said_what_null_is_worth() -> None:
    found = classes_of(Curve(((0, 5), (10, 1))))
    assert found.of([float("nan")]).tolist() == [int(np.argmin(found.worth))] == [len(found) - 1]


def test_rare_rows_that_are_worth_much_have_a_class_of_their_own() -> None:
    """Goal: what is dear in less than one part of a class's size is not left out like the rest."""
    found = classes_of(AMOUNT, [1] * 90 + [1000] * 2)
    cheap, dear = found.of([1, 1000])
    assert found.worth[dear] == pytest.approx(1) and found.worth[cheap] == pytest.approx(AMOUNT(1))


def test_values_beyond_the_curve_are_as_its_ends() -> None:
    found = classes_of(AMOUNT, [1.0] * 9 + [float("inf"), float("-inf")])
    assert np.isfinite(found.cuts).all() and found.worth[found.of([float("inf")])[0]] == pytest.approx(1)
