"""The coefficients of the linear model: what can be calculated by hand, and what windows tell beside it."""

from __future__ import annotations

import numpy as np
import pytest

import evenflow as ef
from evenflow.bench.events import ScheduledEvents
from evenflow.plan.layout import Layout
from evenflow.policy.offered import KEPT, Series, corrected, loads_of, rates_of, reach_of, sources_of, structure
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.statistics.statistics import Statistics
from evenflow.world.sim.model import CostModel
from evenflow.world.sim.world import SimWorld
from tests.drawn import one_in


def two_sources() -> Layout:
    """The rows of one source that pass a filter, and all of another one, in one keyed box."""
    flow = ef.Dataflow("two")
    one = flow.source(ScheduledEvents(4_000, 4_000, 20, count=2), name="one").where("value < 250", name="quarter")
    other = flow.source(ScheduledEvents(2_000, 2_000, 20, count=2, seed=1), name="other")
    one.union(other).group_by("key").rows(10).agg(n="count(*)").to(ef.sinks.memory("out"), name="out")
    return layout(flow.network, sites=2, partitions=4)


COST = {"quarter": 50.0}


def ran(planned: Layout, replicas: int, slow: float) -> Statistics:
    totals = next(step.box for segment in planned.segments if segment.kind == "inner" for step in segment.steps)
    cost = CostModel(work_us=0.0, event_us=0.0, slow=(1.0, slow), boxes={**COST, totals: 100.0})
    options = FlowOptions(linger_ms=1, epoch_rows=200, heartbeat_ms=5.0)
    world = SimWorld(planned, sites=2, replicas=replicas, cost=cost, options=options, read_rows=50, seed=2)
    world.run_for(0.2)
    world.collect()
    world.run_for(0.5)
    return world.collect()


@pytest.mark.parametrize(("replicas", "slow"), one_in(2, [(1, 2.0), (2, 1.1)], spread=True))
def test_coefficients_are_products_along_the_paths(replicas: int, slow: float) -> None:
    """A row of the first source costs 50 us, and a quarter of them 100 us more for the keyed box before the exchange, where it leaves out
    columns, and behind it; one of the other source costs those. Replicas cost the same each, and a slow site is no reason to think that
    rows cost more."""
    planned = two_sources()
    statistics = ran(planned, replicas, slow)
    assert rates_of(statistics, planned) == pytest.approx([4_000, 2_000], rel=0.03)
    keyed = next(segment for segment in planned.segments if segment.kind == "inner")
    assert reach_of(statistics, planned)[keyed.id] == pytest.approx([0.25, 1.0], rel=0.08)
    pieces, coefficients = structure(statistics, planned, {0: 1.0, 1: 1 / slow})
    by_segment = {number: coefficients[[piece[0] == number for piece in pieces]].sum(axis=0) for number, _ in pieces}
    one, other = sources_of(planned)
    assert by_segment[one] == pytest.approx([75e-6, 0], rel=0.03)
    assert by_segment[other] == pytest.approx([0, 100e-6], rel=0.03)
    assert by_segment[keyed.id] == pytest.approx([25e-6, 100e-6], rel=0.08)
    # What the model says of the rates that there were is what was measured.
    loads = loads_of(statistics, {0: 1.0, 1: 1 / slow})
    assert [loads[piece] for piece in pieces] == pytest.approx(coefficients @ rates_of(statistics, planned), rel=0.1, abs=1e-4)


def test_a_segment_that_had_no_rows_costs_nothing_and_divides_by_nothing() -> None:
    planned = two_sources()
    assert reach_of(Statistics(0, 0, ()), planned).sum() == 2 and rates_of(Statistics(0, 0, ()), planned).tolist() == [0, 0]
    assert structure(Statistics(0, 0, ()), planned, {})[0] == ()


def test_windows_correct_what_sources_do_together_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    rates = rng.uniform(1_000, 5_000, (KEPT, 2)) * [1, 100]
    true = np.array([[2e-4, 1e-6], [1e-4, 0.0]])
    given = np.array([[1e-4, 2e-6], [3e-4, 0.0]])
    found = corrected(given, rates, rates @ true.T, pull=1e-6)
    assert found[0] == pytest.approx(true[0], rel=1e-3)
    assert found[1].tolist() == given[1].tolist(), "one source alone is measured directly"
    drawn = corrected(given, rates, rates @ true.T)
    assert abs(drawn[0] - true[0]).max() < abs(given[0] - true[0]).max()


def test_rates_that_never_change_leave_what_they_cannot_tell() -> None:
    """Goal: no coefficient is invented. Method: both sources are always at the same rates, so that only their sum is known, which is twice
    as great as was thought: both are thought greater, and neither is negative."""
    rates = np.full((KEPT, 2), 1_000.0)
    given = np.array([[1e-4, 3e-4]])
    found = corrected(given, rates, np.full((KEPT, 1), 0.8), pull=1e-3)
    assert found.sum() * 1_000 == pytest.approx(0.8, rel=1e-2) and (found > given).all()
    gone = corrected(given, rates, np.zeros((KEPT, 1)), pull=1e-3)
    assert (gone >= 0).all()
    assert corrected(given, np.zeros((KEPT, 2)), np.zeros((KEPT, 1))) is given, "a rate of zero tells nothing"


def test_series_keep_the_newest_windows_however_they_come() -> None:
    series = Series(1_000_000)
    for at in range(4 * (KEPT + 6)):
        series = series.add(((1, 0), (1, 1)), np.array([float(at // 4)]), np.array([1.0, float(at % 4)]), 250_000)
    assert series.rates.shape == (KEPT, 1) and series.loads.shape == (KEPT, 2)
    assert series.rates[:, 0].tolist() == list(range(6, KEPT + 6)) and series.loads.mean(axis=0).tolist() == [1.0, 1.5]
    assert series.add(series.pieces, np.array([7.0]), np.ones(2), 0) is series
    other = series.add(((1, 0),), np.array([7.0]), np.ones(1), 1_000_000)
    assert other.rates.tolist() == [[7.0]], "other pieces have no past"
