"""GAP_FILL gives each key a row at every multiple of a width from its first row to its last."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import EvenflowError, QueryError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

NOON = datetime(2026, 1, 1, 12)
GIVEN = [
    ("a", 0, 10.0, 1),
    ("b", 1, 5.0, 2),
    ("a", 3, 16.0, 3),
    ("b", 2, None, 4),
    ("a", 5, 12.0, 5),
    ("a", 190, 1.0, 6),
    ("a", 192, 2.0, 7),
]
TABLE = pa.table({
    "ts": pa.array([NOON + timedelta(seconds=row[1]) for row in GIVEN], pa.timestamp("us")),
    "k": [row[0] for row in GIVEN], "x": [row[2] for row in GIVEN], "n": [row[3] for row in GIVEN],
})  # fmt: skip


def run(text: str, epoch_rows: int = 2) -> list[tuple[Any, ...]]:
    flow = ef.Dataflow("q")
    rows = flow.source(ef.sources.memory(TABLE), name="t").with_watermark("ts", "5 seconds")
    ef.sql(text, {"t": rows}).to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, replicas=2, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    return sorted((tuple(row.values()) for row in world.output("out").to_pylist()), key=str)


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize("epoch_rows", [2, 100])
def test_values_at_regular_times(epoch_rows: int) -> None:
    text = """SELECT * FROM GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL '1' SECOND, partitioning_columns => ['k'],
        value_columns => [('x', 'linear'), ('n', 'null'), ('n2', 'locf')], max_gap => INTERVAL 10 SECONDS) AS g"""
    wanted = [
        (at(0), "a", 10.0, 1, 1), (at(1), "a", 12.0, None, 1), (at(2), "a", 14.0, None, 1), (at(3), "a", 16.0, 3, 3),
        (at(4), "a", 14.0, None, 3), (at(5), "a", 12.0, 5, 5), (at(190), "a", 1.0, 6, 6), (at(191), "a", 1.5, None, 6),
        (at(192), "a", 2.0, 7, 7),
        (at(1), "b", 5.0, 2, 2), (at(2), "b", None, 4, 4),
    ]  # fmt: skip
    assert run(text.replace("TABLE t,", "(SELECT *, n AS n2 FROM t),"), epoch_rows) == sorted(wanted, key=str)


def test_windows_without_rows_get_a_row() -> None:
    text = """WITH counts AS (SELECT k, window.end AS e, count(*) AS c FROM t GROUP BY k, window(ts, '1 minute'))
        SELECT k, e, coalesce(c, 0) AS c FROM GAP_FILL(TABLE(counts), ts_column => 'e', bucket_width => INTERVAL 1 MINUTE,
        partitioning_columns => array('k'), value_columns => array(('c', 'null')))"""
    assert run(text) == sorted([("a", at(60), 3), ("a", at(120), 0), ("a", at(180), 0), ("a", at(240), 2), ("b", at(60), 2)], key=str)


def test_windows_go_on_behind_it_where_gaps_have_a_bound() -> None:
    text = """SELECT window.start AS s, count(*) AS c FROM GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL 1 SECOND,
        partitioning_columns => ['k'], max_gap => INTERVAL 5 SECONDS) GROUP BY window(ts, '4 seconds')"""
    assert run(text) == sorted([(at(0), 6), (at(4), 2), (at(188), 2), (at(192), 1)], key=str)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("GAP_FILL(TABLE t, ts_column => 'n', bucket_width => INTERVAL 1 SECOND)", "its ts_column is ts"),
        ("GAP_FILL(TABLE t, ts_column => 'ts')", "needs bucket_width"),
        ("GAP_FILL(TABLE t, ts_column => ts, bucket_width => INTERVAL 1 SECOND)", "as texts"),
        ("GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL 1 SECOND, origin => 'now')", "each once and by name"),
        ("GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL 1 SECOND, value_columns => [('x', 'last')])", "one of locf"),
        (
            "GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL 1 SECOND, value_columns => [('k', 'linear')])",
            "has no values in between",
        ),
        ("GAP_FILL(ts_column => 'ts', bucket_width => INTERVAL 1 SECOND)", "begins with what it fills"),
        ("GAP_FILL(TABLE t, ts_column => 'ts', bucket_width => INTERVAL 1 SECOND, partitioning_columns => ['q'])", "no column"),
    ],
)
def test_what_is_wrong_is_named(call: str, says: str) -> None:
    with pytest.raises(EvenflowError, match=says):
        run(f"SELECT * FROM {call}")


def test_a_way_for_each_column() -> None:
    flow = ef.Dataflow("q")
    rows = flow.source(ef.sources.memory(TABLE), name="t").with_watermark("ts", "5 seconds").group_by("k")
    assert [f.type for f in rows.resample("1 second", "x", "n", how={"n": "previous", "x": "linear"}).schema][2:] == [
        pa.float64(),
        pa.int64(),
    ]
    with pytest.raises(QueryError, match="how names n, and the columns are x, n"):
        rows.resample("1 second", "x", "n", how={"n": "previous"})
