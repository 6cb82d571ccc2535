"""What the experiments about placement are made of, against what can be calculated."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.bench.events import BurstingEvents
from evenflow.experiments.harness import chains
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


@pytest.mark.conformance
def test_rounds_cut_chains_that_burst_in_turn() -> None:
    """In the simulator: no move helps, and the boxes change places once, within ten seconds; without rounds they stay."""
    assert chains.live(0.8, chains.whole, "evenflow", settle_s=9, measure_s=1).crossed == 2
    assert chains.live(0.8, chains.whole, "none", settle_s=1, measure_s=1).crossed == 0


@pytest.mark.parametrize("first", [False, True])
def test_bursting_events_are_due_when_their_rows_say(first: bool) -> None:
    events = BurstingEvents(10, 100, 5, count=1, begin_us=0, turn_us=1_000_000, first=first)
    batch = events.open(0, 1).read(10_000_000, 1_000)
    assert batch is not None
    due_us = batch.column("ts").cast("int64").to_pylist()
    in_turns = [sum(at * 1_000_000 <= us < (at + 1) * 1_000_000 for us in due_us) for at in range(4)]
    assert in_turns == ([20, 10, 20, 10] if first else [10, 20, 10, 20])
    assert all(events.due(us) == at + 1 and events.due(us - 1) == at for at, us in enumerate(due_us))
