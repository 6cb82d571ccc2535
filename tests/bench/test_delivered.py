"""Rates, ages and the audit of the skew benchmark, on answers written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from evenflow.bench.delivered import Audit, Delivered, Probe, audit, probed, ramp


def delivered(*rows: tuple[float, float, float]) -> Delivered:
    """(at_s, age_ms, weight) of each."""
    columns = np.array(rows, np.float64).reshape(-1, 3).T
    return Delivered(*columns)


STEADY = delivered(*((at_s, 10.0, 50.0) for at_s in np.arange(0, 10, 0.5)))


def test_a_rate_is_from_output_to_output() -> None:
    """Results come in clumps: how many fall into a span is no rate, what comes between two of them is."""
    assert STEADY.rows_per_s == 100.0 and STEADY.between(0.2, 9.9).rows_per_s == 100.0
    assert delivered((1.0, 5.0, 10.0), (1.0, 5.0, 10.0)).rows_per_s is None
    assert delivered().rows_per_s is None


def test_percentiles_weigh_rows() -> None:
    seen = delivered((0.0, 30.0, 1.0), (1.0, 10.0, 98.0), (2.0, 20.0, 1.0))
    assert [seen.age_percentile_ms(percent) for percent in (50, 98, 98.5, 99, 99.5, 100)] == [10.0, 10.0, 20.0, 20.0, 30.0, 30.0]
    assert delivered().age_percentile_ms(99) is None


def test_over_time() -> None:
    assert delivered((0.1, 5.0, 2.0), (0.9, 7.0, 2.0), (2.0, 9.0, 1.0), (3.0, 1.0, 1.0)).over_time(3.0) == [
        {"at_s": 0.5, "rows_per_s": 4.0, "p99_ms": 7.0},
        {"at_s": 1.5, "rows_per_s": 0.0, "p99_ms": None},
        {"at_s": 2.5, "rows_per_s": 1.0, "p99_ms": 9.0},
    ]


@pytest.mark.parametrize(
    ("probe", "falls_behind"),
    [
        (Probe(100, 99.0, 50.0, 60.0), False),
        (Probe(100, 94.0, 50.0, 50.0), True),  # Less comes out than in.
        (Probe(100, 99.0, 500.0, 1100.0), True),  # Ever older.
        (Probe(100, 99.0, 500.0, 800.0), False),  # Older, as drift makes it, not twice as old.
        (Probe(100, 99.0, 20.0, 120.0), False),  # Young all the same.
        (Probe(100, None, None, None), True),
    ],
)
def test_what_falls_behind(probe: Probe, falls_behind: bool) -> None:
    assert probe.falls_behind is falls_behind


def test_a_backlog_shows_in_the_last_third() -> None:
    growing = delivered(*((at_s, 100.0 * at_s, 50.0) for at_s in np.arange(0, 12, 0.5)))
    probe = probed(100, growing, 3.0, 12.0)
    assert probe == Probe(100, 100.0, 550.0, 1150.0) and probe.falls_behind
    assert not probed(100, STEADY, 1.0, 10.0).falls_behind


def test_a_ramp_ends_where_it_is_too_much() -> None:
    def measure(rate: int) -> Probe:
        return Probe(rate, min(rate, 250.0), 10.0, 10.0)

    assert ramp([100, 200, 300, 400], measure) == (200, [measure(100), measure(200), measure(300)])
    assert ramp([300, 400], measure) == (None, [measure(300)])
    assert ramp([100, 200], measure)[0] == 200


NUMBERS = np.array([0, 1, 2, 3, 4, 6])  # Of two partitions: the even and the odd ones.
KEYS = np.array([7, 8, 7, 7, 8, 8])
COUNTS = np.array([1, 1, 2, 3, 2, 3])


def test_answers_that_are_as_they_must_be() -> None:
    """Row 5 is not answered yet, and nothing of its partition that is later."""
    assert audit(NUMBERS, KEYS, COUNTS, 2) == Audit(rows=6, lost=0, repeated=0, wrong=0)
    assert audit(*(np.empty(0, np.int64),) * 3, 2) == Audit(0, 0, 0, 0)


def test_answers_that_are_not() -> None:
    assert audit(np.delete(NUMBERS, 2), np.delete(KEYS, 2), np.delete(COUNTS, 2), 2) == Audit(5, 1, 0, 1)
    assert audit(np.append(NUMBERS, 4), np.append(KEYS, 8), np.append(COUNTS, 4), 2) == Audit(7, 0, 1, 0)
    assert audit(NUMBERS, KEYS, np.array([1, 1, 2, 1, 2, 3]), 2) == Audit(6, 0, 0, 1)
