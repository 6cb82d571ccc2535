"""What progress says of each box."""

from __future__ import annotations

from evenflow.statistics.progress import BoxProgress
from evenflow.statistics.totals import Totals
from evenflow.statistics.window import BoxWindow, SegmentWindow, SiteWindow
from evenflow.world.spark.driver.run_numbers import boxes_of
from tests.statistics.windows import site


def window(partition: int, rows: int) -> SegmentWindow:
    boxes = (BoxWindow("filter", rows, rows // 4, rows * 2), BoxWindow("count", 0, 0, 0))
    return SegmentWindow(0, "rows", (partition,), (rows,), (0,), rows * 2, boxes)


def totals(*windows: SiteWindow) -> Totals:
    made = Totals(10_000_000)
    for each in windows:
        made.add(each)
    return made


def test_boxes_are_per_second_and_over_all_sites() -> None:
    lines = boxes_of(totals(site(0, 0, 2_000_000, 0, window(0, 1_000)), site(1, 0, 2_000_000, 0, window(1, 3_000))))
    assert lines == (
        BoxProgress("rows", "filter", rows_in_per_s=2_000.0, cost_us=2.0, selectivity=0.25, busy_share=0.004),
        BoxProgress("rows", "count", rows_in_per_s=0.0, cost_us=None, selectivity=None, busy_share=0.0),
    )


def test_before_the_first_report_there_are_none() -> None:
    assert boxes_of(totals()) == ()
