"""Sites that back each other up: the thesis' worked example as a run, and that what an experiment is made of does what it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from evenflow.experiments.harness.backed_up import CAPTURE, PASTE, Cluster, Kind, drawn, packets, spread, uniform
from evenflow.experiments.papers.checkpoint_schedule import behind_s, merged, units
from evenflow.policy.checkpointing import CheckpointUnit, Pending, RowCosts, Schedule, Task, min_max, recovery_s, round_robin


def constant(load: float, cost_s: float) -> Kind:
    return Kind((load,), lambda _: (1, 0), RowCosts(cost_s, cost_s), RowCosts(cost_s, cost_s))


BACKUP = constant(0.875, 9.0)
EXAMPLE = [constant(0.11, 0.125), constant(0.10, 0.25), constant(0.665, 0.125)]
"""HW 4.3.1. Only the first site captures, and only the others paste."""


def mean_of_example(schedule: Schedule) -> float:
    seen: list[float] = []

    def one_way(mine: Sequence[CheckpointUnit], pending: Sequence[Pending], busy: float) -> Task:
        if mine[0].capture_s == 9.0:
            return schedule((), pending, busy)
        seen.append(recovery_s(mine))
        return schedule(mine, (), busy)

    cluster = Cluster([EXAMPLE, [BACKUP], [BACKUP]], [[1, 1, 2], [0], [0]], one_way, random=np.random.default_rng(0), noise=0.0)
    cluster.run(60, 1.0)
    return float(np.mean(seen[len(seen) // 4 :]))


def test_min_max_keeps_the_recovery_of_the_worked_example_30_per_cent_below_round_robin():
    assert 0.6 < mean_of_example(min_max) / mean_of_example(round_robin) < 0.75


def test_captures_of_the_two_types_cost_what_the_thesis_says_of_each_other():
    trace, keys = packets()(2.0), uniform()(2.0)
    assert 1.3 < CAPTURE.of(*map(round, trace)) / CAPTURE.of(*map(round, keys)) < 2.1
    assert keys[0] + keys[1] <= 2 * 100 * 10
    assert PASTE.of(100, 0) > CAPTURE.of(100, 0)


def test_two_replicas_fall_behind_at_half_of_a_site():
    assert behind_s() == pytest.approx(70, abs=1)


def test_all_of_a_site_as_one_unit_is_the_sum_of_its_units():
    whole = merged(units())
    assert whole.load == pytest.approx((0.784,))
    assert whole.changed(1.0)[0] == pytest.approx(sum(kind.changed(1.0)[0] for kind in units()))


def test_no_site_backs_itself_up():
    for backups in (spread(5, 8), drawn(5, 8, np.random.default_rng(1))):
        assert all(site not in to for site, to in enumerate(backups))


def test_units_are_captured_pasted_and_reassigned_until_nothing_is_far_behind():
    random = np.random.default_rng(3)
    cluster = Cluster([units()] * 3, [[1] * 8, [2] * 8, [0] * 8], min_max, random=random, balanced=True)
    seen = cluster.run(30, 0.5)
    assert seen.moved and min(seen.captures) >= 1
    assert seen.mean_s(20) < 8 * 0.168 * 20
    assert (seen.costs.new_s, seen.costs.updated_s) == pytest.approx((CAPTURE.new_s, CAPTURE.updated_s), rel=0.1)
