"""Where pieces lie at the start: the papers' worked example, what can be calculated, and laws that hold for any model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenflow.policy.baselines import connected, largest, randomly, scattered
from evenflow.policy.correlation import correlation, everywhere, one_way, two_way
from evenflow.policy.linear import Model, Sites, crossing, cube, feasible_size, simplex
from evenflow.policy.potential import Scenarios, Search, potential
from evenflow.policy.resilient import resilient
from evenflow.stream.arrays import Floats

EVEN = np.ones(2)
CHAINS = Model(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), EVEN, ((0, 1), (2, 3)))
"""BO fig. 3: two chains of two operators with cost 1 and selectivity 1, on two sites."""
BURSTS = np.array([[1.0, 2.0], [2.0, 1.0]] * 8)
"""One input has twice the rate of the other, in turn."""


def small(model: Model) -> Sites:
    return potential(model, Scenarios.of(model, mixes=16), np.random.default_rng(1), tries=2)


PLACED: dict[str, Callable[[Model], Sites]] = {
    "random": lambda model: randomly(model, np.ones(model.sources), np.random.default_rng(1)),
    "scattered": lambda model: scattered(model, np.random.default_rng(1)),
    "largest": lambda model: largest(model, np.ones(model.sources)),
    "connected": lambda model: connected(model, np.ones(model.sources)),
    "correlation": lambda model: everywhere(model.coefficients @ (1 + cube(model.sources, 12)).T, model.capacity),
    "resilient": resilient,
    "potential": small,
}


@st.composite
def models(draw: st.DrawFn) -> Model:
    seed, pieces, sources, sites = draw(st.integers(0, 999)), draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rng = np.random.default_rng(seed)
    coefficients = rng.integers(0, 5, (pieces, sources)) * rng.choice([1e-6, 1.0])
    links = tuple((i, i + 1) for i in range(pieces - 1) if rng.random() < 0.5)
    return Model(coefficients.astype(float), rng.choice([0.5, 1.0], sites), links)


# ---------------------------------------------------------------- the papers' example


@pytest.mark.parametrize("name", ["correlation", "resilient", "potential"])
def test_chains_are_cut_so_that_bursts_meet_at_no_site(name: str) -> None:
    """BO fig. 3(b): both sites have a load of 3 whichever input bursts."""
    placed = everywhere(CHAINS.coefficients @ BURSTS.T, EVEN) if name == "correlation" else PLACED[name](CHAINS)
    assert CHAINS.loads(placed, BURSTS).tolist() == [[3.0, 3.0]] * 16
    assert feasible_size(CHAINS, placed) == pytest.approx(1)


def test_connected_chains_meet_all_of_a_burst_at_one_site() -> None:
    """BO fig. 3(a): 2 and 4, in turn; so one site is full at 3/4 of the capacity, and the feasible set is half of the ideal one."""
    placed = connected(CHAINS, np.ones(2))
    assert sorted(CHAINS.loads(placed, BURSTS)[0]) == [2.0, 4.0] and crossing(CHAINS, placed) == 0
    assert feasible_size(CHAINS, placed) == pytest.approx(0.5, abs=0.01)


def test_the_past_pushes_apart_what_bursts_together() -> None:
    """Without any mix but those that there were."""
    placed = potential(CHAINS, Scenarios.of(CHAINS, BURSTS.mean(axis=0), BURSTS, mixes=0), np.random.default_rng(1))
    assert CHAINS.loads(placed, BURSTS).tolist() == [[3.0, 3.0]] * 16


def test_the_operators_that_go_least_with_their_site_are_the_ones_to_leave() -> None:
    """One-way, BO 3.1: three operators of the first site burst together, and one does not; half of the excess is one of the three."""
    up, down = np.array([1.0, 3.0] * 8), np.array([3.0, 1.0] * 8)
    series = np.array([up, up, up, down, down, up / 2])
    before = np.array([0, 0, 0, 0, 1, 1])
    after = one_way(series, EVEN, before)
    assert after.tolist() in ([1, 0, 0, 0, 1, 1], [0, 1, 0, 0, 1, 1], [0, 0, 1, 0, 1, 1])
    assert one_way(series, EVEN, after).tolist() == after.tolist(), "the difference is within the threshold"


@pytest.mark.parametrize("th_score", [None, 0.5])
def test_two_way_exchange_lowers_variance_where_one_way_has_nothing_to_do(th_score: float | None) -> None:
    up, down = np.array([1.0, 3.0] * 8), np.array([3.0, 1.0] * 8)
    series = np.array([up, up, up * 1.1, down, down, down])
    before = np.array([0, 0, 0, 1, 1, 1])
    after = two_way(series, EVEN, before, th_difference=0.0, th_score=th_score)

    def variance(placed: Sites) -> float:
        return float(np.mean([series[placed == site].sum(axis=0).var() for site in range(2)]))

    assert variance(after) < variance(before) / 4
    assert two_way(series, EVEN, before, th_difference=0.0, th_score=2.5).tolist() == before.tolist(), "no score is above 2"


# ---------------------------------------------------------------- what can be calculated


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_directions_lie_evenly_on_the_simplex(dimensions: int) -> None:
    found = simplex(dimensions, 4096)
    assert np.allclose(found.sum(axis=1), 1) and (found >= 0).all()
    assert np.allclose(found.mean(axis=0), 1 / dimensions, atol=0.01)
    assert np.allclose((found**2).mean(axis=0), 2 / (dimensions * (dimensions + 1)), atol=0.01)


def test_one_site_takes_all_that_it_can() -> None:
    model = Model(CHAINS.coefficients, np.array([0.3]))
    assert feasible_size(model, np.zeros(4, np.int64)) == pytest.approx(1)


def test_a_site_that_has_everything_leaves_a_power_of_the_others() -> None:
    """All load at one of three sites: the set is that of the ideal, made a third as long in each of the two dimensions."""
    model = Model(CHAINS.coefficients, np.ones(3))
    assert feasible_size(model, np.zeros(4, np.int64)) == pytest.approx(1 / 9)


def test_a_series_that_never_changes_goes_with_nothing() -> None:
    flat, up = np.full(8, 3.0), np.arange(8.0)
    assert correlation(flat, up) == 0 and correlation(up, up) == pytest.approx(1) and correlation(up, -up) == pytest.approx(-1)


def test_scattered_pieces_are_as_many_everywhere() -> None:
    placed = scattered(Model(np.ones((23, 1)), np.ones(4)), np.random.default_rng(3))
    assert sorted(np.bincount(placed)) == [5, 6, 6, 6]


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("name", PLACED)
@settings(max_examples=15, deadline=None)
@given(model=models())
def test_every_piece_has_a_site_always_the_same_and_the_set_is_no_larger_than_the_ideal(name: str, model: Model) -> None:
    placed = PLACED[name](model)
    assert placed.shape == (model.pieces,) and ((placed >= 0) & (placed < model.capacity.size)).all()
    assert PLACED[name](model).tolist() == placed.tolist()
    assert 0 < feasible_size(model, placed, points=64) <= 1 + 1e-9


@settings(max_examples=15, deadline=None)
@given(model=models(), seed=st.integers(0, 99))
def test_what_is_searched_keeps_its_sums_and_never_gets_worse(model: Model, seed: int) -> None:
    search = Search(model, Scenarios.of(model, mixes=8))
    search.fill()
    greedy = search.phi
    search.descend()
    assert search.phi <= greedy * (1 + 1e-9)
    random = np.random.default_rng(seed)
    for _ in range(5):
        search.put(int(random.integers(model.pieces)), int(random.integers(model.capacity.size)))
    loads: Floats = np.zeros_like(search.loads)
    np.add.at(loads, search.placed, search.pieces)
    assert np.allclose(search.loads, loads / model.capacity[:, None])


@settings(max_examples=15, deadline=None)
@given(model=models(), factor=st.sampled_from([1e-3, 7.0]))
def test_the_unit_of_cost_does_not_matter(model: Model, factor: float) -> None:
    """A slower machine everywhere is no reason to place anything elsewhere."""
    other = Model(model.coefficients * factor, model.capacity, model.links)
    for name in ("largest", "resilient"):
        assert feasible_size(other, PLACED[name](model)) == pytest.approx(feasible_size(model, PLACED[name](model)))


def test_twice_as_fast_a_site_gets_twice_as_much() -> None:
    model = Model(np.ones((30, 1)), np.array([1.0, 0.5]))
    for name in ("largest", "resilient", "potential"):
        assert np.bincount(PLACED[name](model)).tolist() == [20, 10], name
