"""Bounds, the verdict, and what JSON and people are shown."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from evenflow.experiments.result.chart import Bars, Chart, Curves, Line, Mark
from evenflow.experiments.result.drawing import draw
from evenflow.experiments.result.report import markdown, rows
from evenflow.experiments.result.result import Bound, Result


@pytest.mark.parametrize(
    ("bound", "value", "holds"),
    [
        (Bound(at_least=1.0), 1.0, True),
        (Bound(at_least=1.0), 0.999, False),
        (Bound(at_most=2), 2, True),
        (Bound(at_most=2), 2.1, False),
        (Bound(-2.1, -1.9), -2.0, True),
        (Bound(at_least=0.0), math.nan, False),
        (Bound(at_least=0.0), math.inf, False),
        (Bound(at_least=0.0), None, False),
        (Bound(at_least=0.0), "much", False),
    ],
)
def test_a_bound_holds_only_for_a_number_within_it(bound: Bound, value: object, holds: bool) -> None:
    assert bound.holds(value) is holds


def result(**measured: object) -> Result:
    return Result("x", "FT 1", "sim", {"gap_ms": 941, "old": 1.0}, measured, {"gap_ms": Bound(at_most=100.0)}, "somewhere/x-sim.svg")


def test_a_result_holds_if_every_bound_does_and_a_missing_figure_is_a_miss() -> None:
    assert result(gap_ms=3.0).holds
    assert result(gap_ms=300.0).missed == ("gap_ms",)
    assert not result().holds


def test_json_has_exactly_its_keys_and_no_number_that_json_has_not() -> None:
    found = result(gap_ms=3.14159265, nothing=math.nan, rows=123456, shown=True).to_json()
    assert list(found) == ["name", "source", "world", "paper", "measured", "target", "holds", "plot"]
    assert found["measured"] == {"gap_ms": 3.142, "nothing": None, "rows": 123456, "shown": True}
    assert found["target"] == {"gap_ms": {"at_most": 100.0}} and found["holds"] is True


def test_people_see_the_papers_figure_beside_ours() -> None:
    assert list(rows(result(gap_ms=300.0))) == [("gap_ms", "941", "300", "≤ 100", "no"), ("old", "1", "–", "", "")]
    page = markdown(result(gap_ms=300.0), "a gap", ["Emulated."])
    assert "**does not hold: gap_ms**" in page and "- Emulated." in page and "![x](x-sim.svg)" in page


def test_a_chart_is_drawn_the_same_twice(tmp_path: Path) -> None:
    curves = Curves("rate", "s", "rows/s", (Line("ours", [0, 1], [1, 2]), Line("paper", [0, 1], [2, 2], "paper")), (Mark(0.5, "kill"),))
    bars = Bars("cost", "rows/s", ("none", "pairs"), (("ours", "ours", (2.0, 1.0)), ("paper", "paper", (82_000.0, 36_000.0))))
    for name in ("first.svg", "second.svg"):
        draw(Chart("both", (curves, bars)), tmp_path / name)
    text = (tmp_path / "first.svg").read_text()
    assert "kill" in text and "82,000" in text.replace("8.2e+04", "82,000")
    assert text == (tmp_path / "second.svg").read_text()
