"""Reports of an idle site are left out, but not for long, and never while anything is under way."""

from __future__ import annotations

from evenflow.world.spark.executor.quiet import QUIET_REPORTS, Quiet


def test_what_would_be_said_again_is_left_out_a_few_times() -> None:
    quiet = Quiet()
    given = [quiet.holds([(5, 5)]) for _ in range(2 * (QUIET_REPORTS + 1))]
    assert given == 2 * [False, *[True] * QUIET_REPORTS]


def test_news_are_reported_at_once() -> None:
    quiet = Quiet()
    assert [quiet.holds(stands) for stands in ([(5, 5)], [(5, 5)], [(6, 6)], [(6, 6)], [(6, 6), (0, 0)], [])] == [
        False, True, False, True, False, False
    ]  # fmt: skip


def test_while_something_is_under_way_every_report_counts() -> None:
    quiet = Quiet()
    assert [quiet.holds([(5, 5), None]) for _ in range(5)] == 5 * [False]
