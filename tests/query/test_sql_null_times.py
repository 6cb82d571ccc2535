"""Rows whose event time is null, as columns may be and as outer joins make them: no answer is without them because of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.testing import simulate, source

TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema([("ts", TIME), ("k", pa.string())])
PACKETS = pa.schema([("ts", TIME), ("src", pa.string()), ("dst", pa.string())])
NOON = "2026-01-01 12:00"


def rows_of(text: str, schema: pa.Schema, given: Sequence[Sequence[tuple[Any, ...]]], mode: Any = "append") -> list[tuple[Any, ...]]:
    """What the query puts out, in complete mode the last table, sorted; times as hours and minutes. given: the rows of t, by epochs."""
    flow = ef.Dataflow("q")
    stream = flow.source(source(schema), name="t").with_watermark("ts", "0 seconds")
    ef.sql(text, {"t": stream}, output_mode=mode, every="1 hour").to(ef.sinks.memory("out"), name="out")
    test = simulate(flow, sites=1)
    for rows in given:
        test.give("t", list(rows)).settle()
    epochs = test.finish().epochs("out")
    found = epochs[-1][1] if mode == "complete" else [row for _, rows in epochs for row in rows]
    return sorted((tuple(f"{v:%H:%M}" if hasattr(v, "hour") else v for v in row.values()) for row in found), key=str)


@pytest.mark.parametrize("mode", ["append", "complete"])
@pytest.mark.parametrize(
    "given",
    [
        [[(NOON, "a")], [(None, "x"), (None, "x")], [(None, "x")]],
        [[(NOON, "a"), (None, "x")], [("2026-01-01 12:01", "a")], [(None, "x"), (NOON, None)]],
        [[(None, "x")], [(NOON, "a"), (None, "x")]],
    ],
)
def test_distinct_rows_without_a_time(given: list[list[tuple[Any, ...]]], mode: str) -> None:
    """Whatever the epochs are. Late rows, of which there is one with a time, are in no other answer than that of complete mode."""
    rows = {row for epoch in given for row in epoch if mode == "complete" or row != (NOON, None)}
    wanted = [(ts and ts[11:], k) for ts, k in rows]
    assert rows_of("SELECT DISTINCT ts, k FROM t", ROWS, given, mode) == sorted(wanted, key=str)
    both = "SELECT ts, k FROM t UNION SELECT ts, k FROM t"
    assert rows_of(both, ROWS, given, mode) == sorted(wanted, key=str)


def test_groups_by_the_end_of_windows_that_a_full_join_leaves_out() -> None:
    """The newest row of each group, as of all groups whose rows may still come."""
    sides = [
        f"(SELECT {side}, window.end AS {end}, count(*) AS {n} FROM t GROUP BY {side}, window(ts, '1 minute'))"
        for side, end, n in (("src", "ends", "c"), ("dst", "e2", "d"))
    ]
    joined = f"{sides[0]} l FULL JOIN {sides[1]} r ON l.src = r.dst AND l.ends = r.e2"
    given = [[(f"{NOON}:10", "x", "y")], [("2026-01-01 12:05", "z", "z")]]
    newest = dict(rows_of(f"SELECT l.ends, count(*) AS n FROM {joined} GROUP BY l.ends", PACKETS, given))
    assert newest == {"12:01": 1, None: 1, "12:06": 1}
    best = f"SELECT e2, p FROM (SELECT e2, ends, row_number() OVER (PARTITION BY ends ORDER BY e2) AS p FROM {joined}) WHERE p <= 1"
    assert rows_of(best, PACKETS, given) == [("12:01", 1), ("12:06", 1), (None, 1)]
