"""The experiment `shedding`: its figures hold, and the best that it compares with is what the solver finds."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.experiments.papers import shedding
from evenflow.policy.shedding.linear import of


def test_table_1_is_as_printed() -> None:
    assert shedding.deviation_from_table_1() < 1e-9 and shedding.fastest_plan() == pytest.approx((1 / 5, 2 / 5))


def test_the_best_of_two_inputs_is_what_the_solver_finds() -> None:
    linear = of(shedding.network_of(3.0))
    points = np.random.default_rng(1).uniform(0, 2, (40, 2)) * linear.most()
    found = [linear.best(point) @ linear.worth for point in points]
    assert shedding.optimum(linear, points) == pytest.approx(found)


def test_a_network_is_looked_at_in_full() -> None:
    found = shedding.look(2.0, 0.05, 500)
    assert found.merged_off == 0 and found.within == 1 and found.weighed_asked < found.solver_asked and found.fit_ms < found.solver_ms
