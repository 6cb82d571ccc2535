"""Piecewise linear functions."""

from __future__ import annotations

import pytest

from evenflow.stream.curve import Curve


def test_between_points_it_is_straight_and_beyond_them_level() -> None:
    curve = Curve.of([(1, 4), (0, 2)])
    assert [curve(x) for x in (-1, 0, 0.5, 1, 7)] == [2, 2, 3, 4, 4] and curve.at([0, 1]).tolist() == [2, 4]
    assert curve.rises() and not curve.falls()


def test_the_hull_is_the_least_concave_curve_above() -> None:
    dented = Curve(((0, 0), (0.25, 0.1), (0.5, 0.2), (1, 1)))
    assert not dented.is_concave() and dented.hull() == Curve(((0, 0), (1, 1)))
    bowed = Curve(((0, 0), (0.25, 0.5), (1, 1)))
    assert bowed.is_concave() and bowed.hull() == bowed
    assert all(dented.hull()(x / 20) >= dented(x / 20) for x in range(21))


@pytest.mark.parametrize("points", [[], [(0, 0)], [(0, 0), (0, 1)], [(0, 0), (float("nan"), 1)], [(0, 0), (1, float("inf"))]])
def test_what_is_no_curve(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="curve"):
        Curve(tuple(points))
