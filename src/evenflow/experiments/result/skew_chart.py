"""The result of `evenflow bench skew` as a chart: rates and ages of the three systems over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, Final

from evenflow.experiments.result.chart import Chart, Curves, Line, Mark

LABELS: Final = {"static": "Evenflow, static", "balanced": "Evenflow, balancing", "spark": "Structured Streaming"}


def chart_of(result: Mapping[str, Any]) -> Chart:
    """Left: rows per second in a closed loop. Right: p99 age at the set rate, with the moves as marks. What did not run is left out."""
    systems = [name for name in LABELS if result[name] is not None]
    capacity = result["capacity_rows_per_s"]
    longest = max(points[-1][0] for name in systems if (points := result[name]["rows_per_s_over_time"]))
    limit = Line("what the executors can do", (0.0, longest), (capacity, capacity), "law")
    rates = (*(line(LABELS[name], result[name]["rows_per_s_over_time"]) for name in systems), limit)
    ages = tuple(line(LABELS[name], result[name]["p99_ms_over_time"]) for name in systems)
    moves = tuple(Mark(move["at_s"], "") for move in result["moves"] if move["at_s"] >= 0)
    return Chart(
        "Keys of drifting popularity, one slow executor (CPU emulated by sleep)",
        (
            Curves("Rows as fast as they are taken", "seconds", "rows/s", rates),
            Curves(f"Age of answers at {result['rate']:,} rows/s", "seconds", "p99, ms", ages, moves),
        ),
    )


def line(label: str, points: Sequence[Sequence[float | None]]) -> Line:
    """One line through (x, y); y None breaks it."""
    return Line(label, [nan if x is None else x for x, _ in points], [nan if y is None else y for _, y in points])
