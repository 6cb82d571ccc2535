"""Zeros of both signs, which are equal and not the same: each answer is batch Spark's to the last bit, which the oracle asks for."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.testing import run, source

ZEROS = pa.table({
    "ts": pa.array([datetime(2026, 1, 1) + timedelta(seconds=second) for second in range(9)], pa.timestamp("us")),
    "id": pa.array(range(1, 10), pa.int64()),
    "x": pa.array([-0.0, 0.0, -0.0, 0.0, -0.0, None, -0.0, -0.0, 0.0]),
    "k": pa.array(list("aabcccddc")),
})  # fmt: skip

TIED = pa.table({
    "ts": pa.array([datetime(2026, 1, 1) + timedelta(seconds=id_ // 6) for id_ in range(12)], pa.timestamp("us")),
    "id": pa.array(range(12), pa.int64()),
    "x": pa.array([0.0, -0.0, 0.0, math.nan, -math.nan, math.nan, None, 0.0, -0.0, 1.0, -math.nan, math.nan]),
    "f": pa.array([0.0, -0.0, 0.0, math.nan, -math.nan, math.nan, None, 0.0, -0.0, 1.0, -math.nan, math.nan], pa.float32()),
})  # fmt: skip


def asked(text: str, mode: Any, epoch_rows: int = 2) -> list[str]:
    """The rows that the query leaves, as texts: -0.0 and 0.0 are two."""
    flow = ef.Dataflow("q")
    table, name = (TIED, "tied") if "FROM tied" in text else (ZEROS, "zeros")
    read = flow.source(source(table.schema), name=name).with_watermark("ts", "1 second")
    ef.sql(text, {name: read}, output_mode=mode).to(ef.sinks.memory("out"), name="out")
    there: list[str] = []
    for row in run(flow, {name: table}, epoch_rows=epoch_rows, sites=2).table("out").to_pylist():
        change = row.pop("_change", "insert")
        if change in ("update_before", "delete"):
            there.remove(repr(tuple(row.values())))
        else:
            there.append(repr(tuple(row.values())))
    return sorted(there)


def over(frame: str = "", by: str = "ts") -> str:
    return f"OVER (PARTITION BY k ORDER BY {by}{frame})"


LAST, NEXT = over(" ROWS 1 PRECEDING"), over(" ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING")
GIVEN = {
    # Of equal ones the first of the frame.
    f"SELECT id, min(x) {over()} AS a, max(x) {over()} AS b, min(x) {LAST} AS c FROM zeros WHERE id <> 9": [
        "(1, -0.0, -0.0, -0.0)", "(2, -0.0, -0.0, -0.0)", "(3, -0.0, -0.0, -0.0)", "(4, 0.0, 0.0, 0.0)", "(5, 0.0, 0.0, 0.0)",
        "(6, 0.0, 0.0, -0.0)", "(7, -0.0, -0.0, -0.0)", "(8, -0.0, -0.0, -0.0)"],
    f"SELECT id, max(x) {NEXT} AS a, sum(x) {LAST} AS b, avg(x) {over()} AS c, first_value(x) {over()} AS d FROM zeros WHERE id < 6": [
        "(1, -0.0, 0.0, 0.0, -0.0)", "(2, 0.0, 0.0, 0.0, -0.0)", "(3, -0.0, 0.0, 0.0, -0.0)", "(4, 0.0, 0.0, 0.0, 0.0)",
        "(5, -0.0, 0.0, 0.0, 0.0)"],
    # In an order, -0.0 is before 0.0; the most frequent one has no sign.
    f"""SELECT id, percentile(x, 0.0) {LAST} AS a, percentile(x, 1.0) {LAST} AS b, percentile(x, 0.5) {LAST} AS c,
        mode(x) {LAST} AS d FROM zeros""": [
        "(1, -0.0, -0.0, -0.0, 0.0)", "(2, -0.0, 0.0, -0.0, 0.0)", "(3, -0.0, -0.0, -0.0, 0.0)", "(4, 0.0, 0.0, 0.0, 0.0)",
        "(5, -0.0, 0.0, -0.0, 0.0)", "(6, -0.0, -0.0, -0.0, 0.0)", "(7, -0.0, -0.0, -0.0, 0.0)", "(8, -0.0, -0.0, -0.0, 0.0)",
        "(9, 0.0, 0.0, 0.0, 0.0)"],
    f"SELECT id, percentile_approx(x, 0.5) {LAST} AS a, collect_list(x) {LAST} AS b FROM zeros WHERE k = 'c'": [
        "(4, 0.0, [0.0])", "(5, -0.0, [0.0, -0.0])", "(6, -0.0, [-0.0])", "(9, 0.0, [0.0])"],
    # In structures and arrays, too.
    f"""SELECT id, min(named_struct('x', x)) {over()} AS a, max(array(x)) {over(" ROWS 2 PRECEDING")} AS b,
        max(CAST(x AS FLOAT)) {LAST} AS c FROM zeros WHERE id < 6""": [
        "(1, {'x': -0.0}, [-0.0], -0.0)", "(2, {'x': -0.0}, [-0.0], -0.0)", "(3, {'x': -0.0}, [-0.0], -0.0)",
        "(4, {'x': 0.0}, [0.0], 0.0)", "(5, {'x': 0.0}, [0.0], 0.0)"],
    # Zeros are equal in an order, and so are NaNs, whatever their sign.
    """SELECT id, rank() OVER (ORDER BY ts, x) AS r, dense_rank() OVER (ORDER BY ts, f) AS d,
        count(*) OVER (ORDER BY ts, x) AS c FROM tied""": [
        "(0, 1, 1, 3)", "(1, 1, 1, 3)", "(10, 11, 6, 12)", "(11, 11, 6, 12)", "(2, 1, 1, 3)", "(3, 4, 2, 6)", "(4, 4, 2, 6)",
        "(5, 4, 2, 6)", "(6, 7, 3, 7)", "(7, 8, 4, 9)", "(8, 8, 4, 9)", "(9, 10, 5, 10)"],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["append", "changelog"])
@pytest.mark.parametrize("text", GIVEN)
def test_it_gives_what_spark_gives(text: str, mode: str) -> None:
    assert asked(text, mode) == GIVEN[text]


def test_rows_that_are_kept_keep_their_zeros() -> None:
    """Where rows of a key are placed, and where two of them meet."""
    held = [repr((id_, x)) for id_, x in zip(ZEROS["id"].to_pylist(), ZEROS["x"].to_pylist(), strict=True)]
    assert asked("SELECT id, x FROM (SELECT id, x, row_number() OVER (ORDER BY id DESC) AS r FROM zeros) WHERE r < 20", "changelog") == held
    assert asked("SELECT a.id, a.x FROM zeros a JOIN zeros b ON a.id = b.id", "changelog") == held


def test_a_row_more_changes_the_sign_of_the_others() -> None:
    text = f"SELECT id, max(x) {over(by='id DESC')} AS m FROM zeros WHERE k = 'c'"
    assert asked(text, "changelog", epoch_rows=1) == ["(4, 0.0)", "(5, 0.0)", "(6, 0.0)", "(9, 0.0)"]
    assert asked(text.replace("'c'", "'a'"), "changelog", epoch_rows=1) == ["(1, 0.0)", "(2, 0.0)"]
