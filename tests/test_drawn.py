"""What `make test` leaves out is there for conformance."""

from __future__ import annotations

from tests.drawn import one_in


def test_one_case_in_a_share_is_tried_and_all_others_are_marked() -> None:
    cases = one_in(3, "abcde")
    assert [case for case in cases if isinstance(case, str)] == ["a", "d"]
    assert [case.values[0] for case in cases if not isinstance(case, str)] == ["b", "c", "e"]
