"""Windows merge, and what is derived from them."""

from __future__ import annotations

import pytest

from evenflow.errors import EvenflowError, StatisticsError
from evenflow.statistics.statistics import ReplicaLoad, Statistics
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow, SourceWindow, merged
from tests.statistics.windows import segment, site


def test_what_sources_offered_adds_up_and_what_waits_is_the_newest() -> None:
    def window(begin_us: int, *sources: SourceWindow) -> SiteWindow:
        return SiteWindow(1, begin_us, begin_us + 10, 0, sources=sources)

    first, other = SourceWindow("in", 0, 0, 10, 7, (1,), 2, 50), SourceWindow("in", 0, 3, 5, 5, (), 4, 60)
    later = SourceWindow("in", 0, 0, 20, 12, (0, 6), 4, 70)
    both = window(0, first, other).then(window(10, later))
    assert both.sources == (SourceWindow("in", 0, 0, 30, 19, (1, 6), 4, 70), SourceWindow("in", 0, 3, 5, 5, (), None, 0))


def test_cost_and_selectivity_are_per_input_row() -> None:
    box = BoxWindow("filter", rows_in=200, rows_out=50, busy_us=100)
    assert box.cost_us == 0.5
    assert box.selectivity == 0.25


def test_a_box_without_rows_has_no_cost_and_no_selectivity() -> None:
    box = BoxWindow("filter", 0, 0, 10)
    assert box.cost_us is None
    assert box.selectivity is None
    assert segment({0: 0}).cost_us is None


def test_utilization_is_busy_over_busy_and_idle() -> None:
    window = site(0, 1_000, 2_000, 250)
    assert window.idle_us == 750
    assert window.utilization == 0.25


def test_a_site_that_worked_longer_than_its_window_is_fully_utilized_and_not_more() -> None:
    assert site(0, 0, 100, 130).utilization == 1.0
    assert site(0, 0, 100, 130).idle_us == 0


def test_an_empty_window_has_no_utilization() -> None:
    assert site(0, 5, 5, 0).utilization == 0.0


def test_consecutive_windows_add_up_and_keep_the_later_state() -> None:
    first = site(0, 0, 100, 40, segment({0: 10, 2: 20}, state=100), latency=Latency(1_000, 3_000, 1))
    later = site(0, 100, 300, 60, segment({0: 1, 2: 2}, state=250), latency=Latency(4_000, 5_000, 2))
    whole = merged([first, later])
    assert (whole.begin_us, whole.end_us, whole.busy_us) == (0, 300, 100)
    (only,) = whole.segments
    assert only.rows == (11, 22)
    assert only.state_bytes == (250, 250)
    assert only.busy_us == 100
    assert only.boxes == (BoxWindow("box 0", 33, 16, 100),)
    assert whole.latency == Latency(3_000, 5_000, 3)


def test_a_partition_that_left_keeps_its_rows_and_holds_nothing() -> None:
    whole = merged([site(0, 0, 1, 0, segment({0: 10, 2: 20})), site(0, 1, 2, 0, segment({1: 5, 2: 6}))])
    (only,) = whole.segments
    assert only.partitions == (0, 1, 2)
    assert only.rows == (10, 5, 26)
    assert only.state_bytes == (0, 100, 100)


def test_a_segment_that_came_or_left_is_still_counted() -> None:
    whole = merged([site(0, 0, 1, 0, segment({0: 10}, number=1)), site(0, 1, 2, 0, segment({0: 3}, number=2))])
    assert [(s.segment, s.rows, s.state_bytes) for s in whole.segments] == [(1, (10,), (0,)), (2, (3,), (100,))]


def test_a_gap_between_windows_is_neither_busy_nor_idle() -> None:
    whole = merged([site(0, 0, 100, 50), site(0, 900, 1_000, 50)])
    assert whole.end_us == 1_000
    assert whole.utilization == 0.5
    assert whole.idle_us == 100


def test_latency_of_windows_without_releases_is_the_others() -> None:
    some, none = Latency(10, 20, 3), Latency()
    assert some.then(none) == some == none.then(some)
    assert none.then(none) == none


@pytest.mark.parametrize(
    ("first", "later", "word"),
    [
        (site(0, 0, 10, 0), site(1, 10, 20, 0), "site 1"),
        (site(0, 0, 10, 0), site(0, 9, 20, 0), "before"),
        (site(0, 0, 10, 0, segment({0: 1}, boxes=1)), site(0, 10, 20, 0, segment({0: 1}, boxes=2)), "other boxes"),
    ],
)
def test_windows_that_do_not_follow_each_other_are_refused(first: SiteWindow, later: SiteWindow, word: str) -> None:
    with pytest.raises(StatisticsError, match=word):
        first.then(later)


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(EvenflowError, match="no windows"):
        merged([])


def test_a_segment_needs_rows_and_state_for_each_partition() -> None:
    with pytest.raises(StatisticsError, match="2 partitions, 1 rows"):
        SegmentWindow(0, "s", (0, 1), (5,), (0, 0), 0, ())


def test_a_window_cannot_end_before_it_begins() -> None:
    with pytest.raises(StatisticsError, match="site 4"):
        site(4, 10, 9, 0)


def test_statistics_gather_the_windows_of_each_site_in_any_order() -> None:
    windows = [site(1, 5, 20, 1), site(0, 10, 30, 2), site(0, 0, 10, 3)]
    statistics = Statistics.of(windows)
    assert (statistics.begin_us, statistics.end_us) == (0, 30)
    assert [(w.site, w.busy_us) for w in statistics.sites] == [(0, 5), (1, 1)]
    assert Statistics.of([]) == Statistics(0, 0, ())


def test_rows_and_state_per_partition_are_over_all_sites_and_replicas_count_each() -> None:
    statistics = Statistics.of([site(0, 0, 1, 0, segment({0: 10, 1: 20}, state=100)), site(1, 0, 1, 0, segment({1: 20, 2: 7}, state=90))])
    assert statistics.rows() == {(1, 0): 10, (1, 1): 40, (1, 2): 7}
    assert statistics.state_bytes() == {(1, 0): 100, (1, 1): 190, (1, 2): 90}
    assert statistics.replicas()[1:3] == (ReplicaLoad(1, 1, 0, 20, 100), ReplicaLoad(1, 1, 1, 20, 90))
    assert [window.rows for window in statistics.sites] == [30, 27]
    assert [window.state_bytes for window in statistics.sites] == [200, 180]


def test_boxes_are_added_over_the_sites() -> None:
    statistics = Statistics.of([site(0, 0, 1, 0, segment({0: 10}, boxes=2)), site(1, 0, 1, 0, segment({1: 30}, boxes=2))])
    assert statistics.boxes() == {(1, 0): BoxWindow("box 0", 40, 20, 100), (1, 1): BoxWindow("box 1", 40, 20, 100)}
