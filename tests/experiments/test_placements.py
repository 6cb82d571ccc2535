"""What the experiments about placement are made of, against what can be calculated."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.experiments.harness.placements import bursts, trees, waits_s, waves
from evenflow.experiments.papers import correlation, resilient
from evenflow.policy.baselines import connected


@pytest.mark.parametrize("boxes", [5, 23, 160])
def test_trees_are_what_the_paper_draws(boxes: int) -> None:
    model = trees(np.random.default_rng(boxes), boxes)
    assert ((model.coefficients > 0).sum(axis=1) == 1).all(), "every box has one source"
    of = model.coefficients.argmax(axis=1)
    assert np.ptp(np.bincount(of, minlength=5)) <= 1 and len(model.links) == boxes - 5
    assert all(of[one] == of[other] and one < other for one, other in model.links)
    assert len({child for _, child in model.links}) == boxes - 5 and max(np.bincount([one for one, _ in model.links] or [0])) <= 3
    assert model.coefficients.max() <= 1e-3


def test_an_epoch_is_over_when_the_slowest_site_is() -> None:
    """Two runs beside each other: one site has 1.5 of what it can do for two steps, and works that off; another pair never has too much."""
    loads = np.array([[[1.5, 0.2], [0.5, 0.6]], [[1.5, 0.2], [0.9, 0.1]], [[0.0, 0.2], [0.0, 0.0]], [[0.0, 0.2], [1.0, 1.0]]])
    found = waits_s(loads, step_s=1.0)
    assert np.allclose(found.T, [[1.5, 2.0, 1.0, 0.2], [0.6, 0.9, 0.0, 1.0]])


def test_bursts_and_waves_are_of_each_source_for_itself() -> None:
    rates = bursts(np.random.default_rng(1), 20_000)
    assert set(np.unique(rates)) == {1.0, 4.0} and rates.mean() == pytest.approx(1.3, abs=0.01)
    up = waves(np.random.default_rng(1), 50_000)
    assert set(np.unique(up)) == {0.5, 1.5} and up.mean() == pytest.approx(1, abs=0.05)
    for each in (rates, up):
        assert abs(np.corrcoef(each.T) - np.eye(5)).max() < 0.1


def test_connected_chains_are_full_at_three_quarters_of_the_capacity() -> None:
    """BO fig. 3: 4cr = 1 where 6cr is the load of two sites."""
    assert correlation.knee(connected(correlation.CHAINS, np.ones(2)), turns=4)[0] == pytest.approx(0.76)
    assert correlation.knee(np.array([0, 1, 0, 1]), turns=4)[0] > 1


def test_latency_rises_with_the_rates_and_least_where_load_is_spread() -> None:
    model = trees(np.random.default_rng(3), 60)
    placed = {name: place() for name, place in resilient.placements(model, 1).items()}
    late = dict(zip(placed, resilient.latencies_ms(model, list(placed.values()), 1), strict=True))
    assert all(curve == sorted(curve) for curve in late.values())
    assert late["phi"][-1] < late["llf"][-1] < late["connected"][-1]
