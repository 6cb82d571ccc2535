"""What `evenflow bench scaling` makes of what it has seen: figures of sites and rows that never were."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenflow.bench.delivered import Delivered
from evenflow.bench.scaling import BASE, CAN, PEAK, SWING, Setting, compared, due_between, excess, middle, overhead
from evenflow.errors import ClusterError
from evenflow.policy.scaling import Times
from evenflow.statistics.statistics import Statistics
from evenflow.statistics.window import SegmentWindow, SiteWindow

LOOP: tuple[float, ...] = (0.0, 0.1, 0.2, 0.24)
"""Share of a site's time that its loop may take."""


def out(at_s: list[float], age_ms: list[float]) -> Delivered:
    return Delivered(np.array(at_s), np.array(age_ms), np.ones(len(at_s)))


def test_what_sites_could_not_do_counts_those_that_host_and_what_they_were_measured_to_do() -> None:
    """Two sites that do 1,800 each and six that do 1,700 each, with 7,200 rows/s from second 10 to 20."""
    can = {2: 3600.0, 6: 10_200.0}
    hosts = [(8.0, 2), (12.0, 3), (13.0, 6), (25.0, 2)]
    assert excess(hosts, 10.0, 20.0, 7200, can) == pytest.approx(3600 * 2 + (7200 - 5250) * 1)
    assert excess([(12.0, 2)], 10.0, 20.0, 7200, can) == pytest.approx(36_000), "until the first look it was as at that"
    assert excess([(0.0, 1)], 10.0, 20.0, 7200, can) == pytest.approx(54_000)
    assert excess(hosts, 13.0, 20.0, 7200, can) == 0.0


def test_rows_belong_to_the_time_at_which_they_were_due() -> None:
    """Goal: what is dropped is counted where it was due, however late the others come."""
    seen = out([9.99, 10.2, 10.4, 12.5, 12.6], [0.0, 200.0, 400.001, 1500.0, 10.0])
    assert due_between(seen, 10.0, 12.0) == 2 and due_between(seen, 9.0, 10.0) == 2 and due_between(seen, 12.0, 13.0) == 1


def test_rows_that_nobody_left_out_are_lost() -> None:
    seen = out([1.0, 2.0, 3.0, 3.5], [500.0, 500.0, 500.0, 1000.0])
    assert compared(seen, 10, 7) == {"rows_lost": 0, "rows_repeated": 1}
    assert compared(seen, 10, 5) == {"rows_lost": 2, "rows_repeated": 1}


def test_the_rate_of_a_closed_loop_is_that_of_its_middle() -> None:
    """It begins slowly and ends slowly, and comes in pieces."""
    at = [0.0] * 10 + [5.0 + 0.5 * (i // 50) for i in range(380)] + [20.0] * 10
    assert middle(out(at, [1.0] * len(at))) == pytest.approx(100.0)
    with pytest.raises(ClusterError, match="too few pieces"):
        middle(out([1.0] * 8, [1.0] * 8))
    with pytest.raises(ClusterError, match="0 rows"):
        middle(out([], []))


def site(number: int, busy_us: int, *segments_us: int) -> SiteWindow:
    segments = tuple(SegmentWindow(i, "s", (), (), (), each, ()) for i, each in enumerate(segments_us))
    return SiteWindow(number, 0, 1_000_000, busy_us, segments=segments)


def test_what_is_work_and_for_no_row_is_overhead() -> None:
    assert overhead(Statistics.of((site(0, 700_000, 400_000, 200_000), site(1, 300_000)))) == pytest.approx(0.2)
    assert math.isnan(overhead(Statistics.of(())))


@pytest.mark.parametrize("loop", LOOP)
def test_there_is_room_for_a_sites_loop_before_the_step_and_in_the_sine(loop: float) -> None:
    """Goal: what the set-up itself costs asks for no site, and what is left out of it lets none go in the sine."""
    setting, times = Setting(), Times()
    least = setting.base / CAN / setting.least
    assert least + loop <= times.rest, "and back to the fewest"
    peak = PEAK + loop
    assert PEAK * (setting.least + 1) / setting.least > times.rest, "two would not do"
    assert peak <= times.fill
    period_s = setting.sine_s / 5
    angles = np.linspace(0, 2 * math.pi, 400)
    load = 1 + SWING * np.sin(angles)
    rise = np.maximum(0.0, SWING * 2 * math.pi / period_s * np.cos(angles)) * times.start_s
    assert float(((PEAK / (1 + SWING) * load + loop) * (1 + rise / load)).max()) <= times.fill, "with its trend, of all that a site does"
    needed = 3 * BASE * setting.least
    assert needed / setting.most + loop <= times.fill, "the step fits the most"
