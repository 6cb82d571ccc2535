"""Gaps and percentiles of the failover benchmark, on moments written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.bench.gaps import Gap, longest_gap, percentile_ms, usual_gaps, weighted_percentile, within

MOMENTS = np.array([0.0, 1.0, 2.0, 5.0, 5.5, 6.0, 10.0])


@pytest.mark.parametrize(
    ("begin_s", "end_s", "gap"),
    [
        (0.0, 10.0, Gap(6.0, 4.0)),
        (0.5, 1.5, Gap(0.0, 1.0)),
        (3.0, 5.6, Gap(2.0, 3.0)),  # The gap had begun before the span.
        (5.1, 7.0, Gap(6.0, 4.0)),  # It goes on behind the span.
        (3.0, 4.0, Gap(2.0, 3.0)),  # The span lies within it.
        (-2.0, 0.5, Gap(-2.0, 2.0)),  # Nothing came out before.
        (9.0, 20.0, Gap(10.0, 10.0)),  # Nothing came out any more.
        (12.0, 20.0, Gap(10.0, 10.0)),
    ],
)
def test_longest_gap(begin_s: float, end_s: float, gap: Gap) -> None:
    assert longest_gap(MOMENTS, begin_s, end_s) == gap


def test_no_output_at_all_is_one_gap() -> None:
    assert longest_gap(np.empty(0), 1.0, 4.0) == Gap(1.0, 3.0)


def test_usual_gaps_are_those_of_whole_pieces() -> None:
    moments = np.arange(0.0, 10.0, 0.5)
    assert usual_gaps(moments, [(0.0, 4.5), (6.0, 7.0)], 2.0) == [0.5, 0.5]


def test_a_usual_gap_ends_where_the_kill_is() -> None:
    assert usual_gaps(MOMENTS, [(0.0, 2.5)], 2.5) == [1.0]
    assert usual_gaps(MOMENTS, [(0.0, 4.0)], 2.0) == [1.0, 2.0]


@pytest.mark.parametrize(("percent", "expected"), [(50, 2000.0), (95, 4000.0), (100, 4000.0)])
def test_percentiles_are_by_nearest_rank(percent: float, expected: float) -> None:
    assert percentile_ms([1.0, 2.0, 4.0], percent) == expected
    assert percentile_ms([], percent) is None


def test_of_twenty_the_nineteenth_is_the_95th_percentile() -> None:
    assert percentile_ms([float(value) for value in range(20, 0, -1)], 95) == 19_000.0
    assert percentile_ms([float(value) for value in range(1, 22)], 95) == 20_000.0


def test_an_endless_gap_has_no_length_but_counts() -> None:
    assert percentile_ms([1.0, float("inf"), 2.0], 50) == 2000.0
    assert percentile_ms([1.0, float("inf"), 2.0], 95) is None


def test_values_within_spans() -> None:
    values = np.arange(7.0)
    assert within(MOMENTS, values, [(1.0, 5.0), (5.5, 7.0)]).tolist() == [1.0, 2.0, 4.0, 5.0]
    assert within(MOMENTS, values, []).tolist() == []


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 1.0), (90, 2.0), (99, 5.0), (100, 5.0)])
def test_a_weighted_percentile_is_that_of_values_that_are_there_so_often(percent: float, expected: float) -> None:
    values, often = np.array([5.0, 1.0, 2.0]), np.array([1, 5, 4])
    assert weighted_percentile(values, often / 10, percent) == weighted_percentile(values, often, percent) == expected
    if percent:
        assert percentile_ms(np.repeat(values, often), percent) == 1000 * expected
