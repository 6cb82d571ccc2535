"""Running totals say what merging the windows says, whatever came and went."""

from __future__ import annotations

import random

import pytest

from evenflow.errors import StatisticsError
from evenflow.statistics.recent import Recent
from evenflow.statistics.totals import Totals
from tests.statistics.windows import segment, site

pytestmark = pytest.mark.one_in(2)

OVER_US = 1_000


def agree(totals: Totals, recent: Recent) -> None:
    """Whether both say the same of what is new enough."""
    whole = recent.over(OVER_US)
    assert totals.utilization() == {window.site: window.utilization for window in whole.sites}
    assert totals.span_us() == whole.end_us - whole.begin_us
    names = {each.segment: each.name for window in whole.sites for each in window.segments}
    assert [(name, box) for name, box in totals.boxes()] == [(names[number], box) for (number, _), box in whole.boxes().items()]


@pytest.mark.parametrize("seed", range(20))
def test_totals_say_what_merged_windows_say(seed: int) -> None:
    """Sites with gaps between their windows, that begin late, fall silent and host other segments by and by."""
    rng = random.Random(seed)
    totals, recent = Totals(OVER_US), Recent(kept=1_000)
    ends = {number: rng.randrange(0, 300) for number in range(5)}
    agree(totals, recent)
    for _ in range(400):
        number = rng.choice([each for each in ends if each != 3 or ends[3] < 2_000])
        begin_us = ends[number] + rng.choice((0, 0, 0, rng.randrange(1, 400)))
        ends[number] = begin_us + rng.choice((0, 1, 40, 90))
        hosted = sorted(rng.sample(range(4), rng.randrange(0, 4)))
        rows = rng.randrange(0, 50)
        made = [segment({0: rows, 1: 2 * rows}, number=each, boxes=1 + each, busy_us=rng.randrange(0, 30)) for each in hosted]
        window = site(number, begin_us, ends[number], rng.randrange(0, 120), *made)
        totals.add(window)
        recent.add(window)
        if rng.random() < 0.3:
            agree(totals, recent)
    agree(totals, recent)


def test_a_site_that_has_fallen_silent_is_forgotten_by_and_by() -> None:
    totals = Totals(OVER_US)
    totals.add(site(0, 0, 100, 50, segment({0: 1})))
    totals.add(site(1, 1_000, 1_100, 20, segment({0: 5})))
    assert totals.utilization() == {1: 0.2} and [box.rows_in for _, box in totals.boxes()] == [5]
    totals.add(site(2, 9_000, 9_100, 10))
    assert totals.utilization() == {2: 0.1} and list(totals.boxes()) == []


def test_nothing_is_known_before_the_first_report() -> None:
    totals = Totals(OVER_US)
    assert (totals.utilization(), totals.span_us(), list(totals.boxes())) == ({}, 0, [])


def test_a_segment_of_another_run_is_not_summed_up_with_this_one() -> None:
    totals = Totals(OVER_US)
    totals.add(site(0, 0, 100, 50, segment({0: 1}, boxes=2)))
    totals.add(site(1, 0, 100, 50, segment({0: 1}, boxes=3)))
    with pytest.raises(StatisticsError, match="2 boxes at one site and 3 at another"):
        list(totals.boxes())


@pytest.mark.parametrize("over_us", [0, -5])
def test_a_past_of_no_length_is_refused(over_us: int) -> None:
    with pytest.raises(StatisticsError, match="more than nothing"):
        Totals(over_us)
