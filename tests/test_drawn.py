"""What is not today's is another day's, and nothing is nobody's."""

from __future__ import annotations

from tests.drawn import by_the_day


def test_every_case_has_its_day_within_as_many_days_as_there_are_shares() -> None:
    days = [[case for case in by_the_day("abcde", 3, day) if isinstance(case, str)] for day in range(3)]
    assert days == [["a", "d"], ["c"], ["b", "e"]]
    assert [len(by_the_day("abcde", 3, day)) for day in range(3)] == [5, 5, 5], "the others are there, for conformance"
