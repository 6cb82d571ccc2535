"""Functions OVER rows in lists of columns: what SQL gives of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.testing import run, source

ROWS = pa.table({
    "ts": pa.array([datetime(2026, 1, 1) + timedelta(seconds=at) for at in range(6)], pa.timestamp("us")),
    "k": list("abaabb"), "x": [1, 2, 3, None, 5, 6],
})  # fmt: skip
OVER = "OVER (PARTITION BY k ORDER BY ts"


def made(draw: Any) -> list[tuple[Any, ...]]:
    flow = ef.Dataflow("q")
    draw(flow.source(source(ROWS.schema), name="t").with_watermark("ts", "1 second")).to(ef.sinks.memory("out"), name="out")
    return sorted((tuple(row.values()) for row in run(flow, {"t": ROWS}, epoch_rows=2, sites=2).table("out").to_pylist()), key=str)


def test_a_list_of_columns() -> None:
    found = made(lambda s: s.select("k", "x", f"sum(x) {OVER} ROWS 1 PRECEDING) + 1 AS s", n=f"row_number() {OVER})"))
    assert found == [
        ("a", 1, 2, 1), ("a", 3, 5, 2), ("a", None, 4, 3), ("b", 2, 3, 1), ("b", 5, 8, 2), ("b", 6, 12, 3),
    ]  # fmt: skip


def test_a_column_in_its_place_and_one_more() -> None:
    found = made(lambda s: s.with_columns(x=f"count(x) {OVER})").with_column("before", f"lag(x) {OVER})").select("k", "x", "before"))
    assert found == [("a", 1, None), ("a", 2, 1), ("a", 2, 2), ("b", 1, None), ("b", 2, 1), ("b", 3, 2)]


def test_of_what_changes_the_places_change() -> None:
    def draw(stream: Any) -> Any:
        totals = ef.sql("SELECT k, sum(x) AS s FROM t GROUP BY k", {"t": stream}, output_mode="changelog")
        return totals.with_column("place", "rank() OVER (ORDER BY s DESC)")

    there: list[tuple[Any, ...]] = []
    for *row, change in sorted(made(draw), key=lambda row: row[-1] in ("delete", "update_before")):
        (there.remove if change in ("delete", "update_before") else there.append)(tuple(row))
    assert sorted(there) == [("a", 4, 2), ("b", 13, 1)]


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda s: s.select(a=lambda batch: batch["x"], b=f"sum(x) {OVER})"), "a function of a batch"),
        (lambda s: s.with_column("r", "rank() OVER (ORDER BY x)"), "rank of every row would change"),
        (lambda s: s.select(f"sum(nothing) {OVER}) AS s"), "nothing"),
    ],
)
def test_what_cannot_be_is_said(draw: Any, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        made(draw)
