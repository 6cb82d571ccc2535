"""What `make test` leaves out is there for conformance."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drawn import but, for_conformance, one_in


def test_one_case_in_a_share_is_tried_and_all_others_are_marked() -> None:
    cases = one_in(3, "abcde")
    assert [case for case in cases if isinstance(case, str)] == ["a", "d"]
    assert [case.values[0] for case in cases if not isinstance(case, str)] == ["b", "c", "e"]


def test_a_case_of_several_arguments_stays_one_of_several() -> None:
    kept, left = one_in(2, [("a", 1), ("b", 2)], spread=True)
    assert kept == ("a", 1) and left.values == ("b", 2)


def test_dear_ones_are_left_out_by_names_that_there_are() -> None:
    kept, left = but({"b"}, "ab")
    assert kept == "a" and left.values == ("b",) and [mark.name for mark in left.marks] == ["conformance"]
    assert one_in(1, [kept, left]) == [kept, left] and one_in(2, [kept, left]) == [kept, left], "what is left out already stays so"
    with pytest.raises(ValueError, match="no case has these names: c"):
        but({"b", "c"}, "ab")


class Case:
    """As much of a test's case as is asked for."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self._marks = nodeid, {mark.name: mark.mark for mark in marks}

    def get_closest_marker(self, name: str) -> Any:
        return self._marks.get(name)


def test_of_each_test_of_a_marked_module_one_case_in_a_share_is_tried() -> None:
    marked, dear = pytest.mark.one_in(2), pytest.mark.conformance
    cases: list[Any] = [Case(f"t.py::test_a[{at}]", marked) for at in range(4)]
    cases += [Case("t.py::test_b[0]", marked), Case("t.py::test_c[0]", marked, dear), Case("t.py::test_c[1]", marked)]
    cases += [Case(f"other.py::test_a[{at}]") for at in range(2)]
    assert [case.nodeid for case in for_conformance(cases)] == ["t.py::test_a[1]", "t.py::test_a[3]"]
