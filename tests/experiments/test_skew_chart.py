"""The chart of a skew benchmark's result."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import pytest

from evenflow.experiments.result.chart import Chart, Curves, Mark
from evenflow.experiments.result.drawing import can_draw, draw
from evenflow.experiments.result.skew_chart import chart_of


def system(rows_per_s: float) -> dict[str, Any]:
    return {"rows_per_s_over_time": [[0.5, rows_per_s], [1.5, rows_per_s]], "p99_ms_over_time": [[0.5, 10.0], [1.5, None], [2.5, 30.0]]}


RESULT: dict[str, Any] = {
    "rate": 5000,
    "capacity_rows_per_s": 7000,
    "static": system(3750.0),
    "balanced": None,
    "spark": system(3000.0),
    "moves": [],
}
BALANCED: dict[str, Any] = RESULT | {"balanced": system(6400.0), "moves": [{"at_s": -0.5}, {"at_s": 0.75}]}


def panels(chart: Chart) -> list[Curves]:
    return [panel for panel in chart.panels if isinstance(panel, Curves)]


def test_what_did_not_run_is_not_drawn() -> None:
    rates, ages = panels(chart_of(RESULT))
    assert [line.label for line in ages.lines] == ["Evenflow, static", "Structured Streaming"]
    assert [list(line.y) for line in rates.lines] == [[3750.0, 3750.0], [3000.0, 3000.0], [7000, 7000]]
    assert isnan(ages.lines[0].y[1]) and ages.lines[0].y[2] == 30.0 and ages.marks == ()


def test_moves_are_marked_where_ages_are() -> None:
    rates, ages = panels(chart_of(BALANCED))
    assert [line.label for line in rates.lines][:3] == ["Evenflow, static", "Evenflow, balancing", "Structured Streaming"]
    assert ages.marks == (Mark(0.75, ""),) and rates.marks == ()


@pytest.mark.skipif(not can_draw(), reason="the extra for experiments is not installed")
def test_it_can_be_drawn(tmp_path: Path) -> None:
    draw(chart_of(BALANCED), tmp_path / "skew.svg")
    assert "Evenflow, balancing" in (tmp_path / "skew.svg").read_text()
