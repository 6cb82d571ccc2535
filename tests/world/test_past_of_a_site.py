"""Rates of a site are over seconds, however often it reports."""

from __future__ import annotations

import pytest

from evenflow.world.spark.driver.run_numbers import PAST_S, SiteNumbers


@pytest.mark.parametrize("idle_every_s", [0.25, 1.0])
def test_a_rate_is_over_the_same_time_whether_the_site_was_idle_before_or_not(idle_every_s: float) -> None:
    numbers = SiteNumbers()
    for at in range(int(60 / idle_every_s) + 1):
        numbers.note(at * idle_every_s, 0.0, 0, 0)
    for at in range(1, 13):
        numbers.note(60 + 0.25 * at, 0.0, 250 * at, 0)
    assert numbers.rate(2) == pytest.approx(3000 / PAST_S, rel=0.1)
