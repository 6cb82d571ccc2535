"""The newest windows of all sites, kept and looked at in two ways."""

from __future__ import annotations

import pytest

from evenflow.errors import StatisticsError
from evenflow.statistics.recent import Recent
from evenflow.statistics.statistics import Statistics
from tests.statistics.windows import segment, site


def fed(kept: int = 10) -> Recent:
    """Two sites, four windows of 100 us each; site 1 dies after two."""
    recent = Recent(kept)
    for begin in (0, 100, 200, 300):
        recent.add(site(0, begin, begin + 100, 10, segment({0: 1})))
        if begin < 200:
            recent.add(site(1, begin, begin + 100, 20))
    return recent


def test_the_last_so_much_time_is_that_before_the_newest_end() -> None:
    assert [(w.site, w.begin_us, w.end_us, w.busy_us, w.rows) for w in fed().over(150).sites] == [(0, 200, 400, 20, 2)]
    assert [(w.site, w.begin_us) for w in fed().over(300).sites] == [(0, 100), (1, 100)]


def test_no_more_is_kept_than_was_said() -> None:
    whole = fed(kept=3).over(10_000)
    assert [(w.site, w.begin_us, w.end_us) for w in whole.sites] == [(0, 100, 400), (1, 0, 200)]


def test_what_has_been_seen_does_not_come_again() -> None:
    recent = fed()
    assert recent.count == 6
    assert recent.since(recent.count) == Statistics(0, 0, ())
    seen = recent.count
    recent.add(site(1, 200, 260, 5))
    assert recent.since(seen) == Statistics.of([site(1, 200, 260, 5)])
    assert recent.since(0) == recent.over(10_000)


def test_nothing_is_known_before_the_first_report() -> None:
    assert Recent().over(1) == Statistics(0, 0, ())


@pytest.mark.parametrize("last_us", [0, -5])
def test_a_past_of_no_length_is_refused(last_us: int) -> None:
    with pytest.raises(StatisticsError, match="more than nothing"):
        fed().over(last_us)
