"""Totals OVER a span of event time before each row, of rows that come once, are those of the rows in it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

NOON = datetime(2026, 1, 1, 12)
RANDOM = np.random.default_rng(5)
COUNT = 200
SECONDS = (np.arange(COUNT) // 2 * 2 + RANDOM.integers(0, 4, COUNT)).tolist()
KEYS = [None if key == 4 else f"k{key}" for key in RANDOM.integers(0, 5, COUNT)]
VALUES = [None if value == 0 else float(value) / 8 for value in RANDOM.integers(0, 40, COUNT)]
WORDS = [None if value is None else f"w{value % 3}" for value in VALUES]
TABLE = pa.table({
    "ts": pa.array([NOON + timedelta(seconds=s) for s in SECONDS], pa.timestamp("us")), "k": KEYS, "x": VALUES, "w": WORDS,
    "n": pa.array(range(COUNT), pa.int64()), "d": pa.array(range(COUNT), pa.int64()).cast(pa.decimal128(20, 0)),
})  # fmt: skip
OVER = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '9' SECONDS PRECEDING AND CURRENT ROW)"


def run(text: str, epoch_rows: int, table: pa.Table = TABLE) -> list[dict[str, Any]]:
    flow = ef.Dataflow("q")
    rows = flow.source(ef.sources.memory(table), name="t").with_watermark("ts", "5 seconds")
    ef.sql(text, {"t": rows}).to(ef.sinks.memory("out"), name="out")
    assert ef.Dataflow.from_json(flow.to_json()).to_json() == flow.to_json()
    options = FlowOptions(epoch_rows=epoch_rows, linger_ms=1)
    world = SimWorld(layout(flow.network, sites=2, partitions=4), sites=2, replicas=2, options=options, read_rows=epoch_rows)
    world.run_until_quiet()
    return list(world.output("out").to_pylist())


def within(at: int, before: int, until: int = 0) -> list[int]:
    """Rows of the same key whose time is from `before` to `until` seconds before that of one."""
    return [i for i in range(COUNT) if KEYS[i] == KEYS[at] and SECONDS[at] - before <= SECONDS[i] <= SECONDS[at] - until]


@pytest.mark.parametrize("epoch_rows", [7, 1000])
def test_totals_of_the_last_seconds(epoch_rows: int) -> None:
    text = f"""SELECT n, k, sum(x) {OVER} AS s, count(x) {OVER} + 1 AS c, max(w) {OVER} AS m, sum(d) {OVER} AS d,
        count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 20 SECONDS PRECEDING AND INTERVAL 3 SECONDS PRECEDING) AS b,
        avg(n) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL 1 SECOND PRECEDING) AS a FROM t"""
    found = {row["n"]: row for row in run(text, epoch_rows)}
    assert len(found) == COUNT
    for at, row in found.items():
        rows, near = within(at, 9), within(at, 1)
        given = [VALUES[i] for i in rows if VALUES[i] is not None]
        assert row["s"] == (sum(v for v in given if v is not None) if given else None)
        assert row["c"] == len(given) + 1
        assert row["m"] == max((WORDS[i] or "" for i in rows), default="") or (row["m"] is None and not given)
        assert row["d"] == sum(rows)
        assert row["b"] == len(within(at, 20, 3))
        assert row["a"] == pytest.approx(sum(near) / len(near))


@pytest.mark.parametrize("epoch_rows", [7, 1000])
def test_totals_of_the_next_seconds_wait_for_them(epoch_rows: int) -> None:
    def ahead(frame: str) -> str:
        return f"OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN {frame})"

    text = f"""SELECT n, k, x, w, d, ts, sum(d) {ahead("INTERVAL '3' SECONDS PRECEDING AND INTERVAL '9' SECONDS FOLLOWING")} AS s,
        count(*) {ahead("CURRENT ROW AND INTERVAL '4' SECONDS FOLLOWING")} AS c, max(w) {
        ahead("INTERVAL '1' SECOND FOLLOWING AND INTERVAL '6' SECONDS FOLLOWING")
    } AS m, count(x) {ahead("INTERVAL '9' SECONDS PRECEDING AND CURRENT ROW")} AS p FROM t"""
    out = run(text, epoch_rows)
    found = {row["n"]: row for row in out}
    assert len(out) == len(found) == COUNT
    for at, row in found.items():
        assert (row["k"], row["x"], row["w"], int(row["d"])) == (KEYS[at], VALUES[at], WORDS[at], at)
        assert row["ts"] == NOON + timedelta(seconds=SECONDS[at])
        assert row["s"] == sum(within(at, 3, -9))
        assert row["c"] == len(within(at, 0, -4))
        assert row["m"] == max((WORDS[i] for i in within(at, -1, -6) if WORDS[i] is not None), default=None)
        assert row["p"] == sum(VALUES[i] is not None for i in within(at, 9))


def test_windows_go_on_behind_rows_that_waited() -> None:
    over = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '9' SECONDS FOLLOWING)"
    inner = f"SELECT ts, count(*) {over} AS c FROM t"
    text = f"SELECT window.start AS s, max(c) AS m, count(*) AS n FROM ({inner}) GROUP BY window(ts, '20 seconds')"
    wanted: dict[datetime, tuple[int, int]] = {}
    for at, second in enumerate(SECONDS):
        start = NOON + timedelta(seconds=second // 20 * 20)
        most, count = wanted.get(start, (0, 0))
        wanted[start] = max(most, len(within(at, 0, -9))), count + 1
    for epoch_rows in (5, 60):
        assert {row["s"]: (row["m"], row["n"]) for row in run(text, epoch_rows)} == wanted


def test_windows_go_on_behind_it() -> None:
    text = f"SELECT window.start AS s, max(c) AS m FROM (SELECT ts, count(*) {OVER} AS c FROM t) GROUP BY window(ts, '20 seconds')"
    most: dict[datetime, int] = {}
    for at, second in enumerate(SECONDS):
        start = NOON + timedelta(seconds=second // 20 * 20)
        most[start] = max(most.get(start, 0), len(within(at, 9)))
    assert {row["s"]: row["m"] for row in run(text, 11)} == most


def test_rows_without_a_time_are_among_themselves() -> None:
    table = pa.table({"ts": pa.array([None, None, NOON, NOON], pa.timestamp("us")), "k": ["a"] * 4, "n": [1, 2, 3, 4]})
    for over in (OVER, OVER.replace("CURRENT ROW", "INTERVAL '5' SECONDS FOLLOWING")):
        found = run(f"SELECT n, count(*) {over} AS c FROM t", 10, table)
        assert sorted((row["n"], row["c"]) for row in found) == [(1, 2), (2, 2), (3, 2), (4, 2)]


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 SECOND PRECEDING", "kept for ever"),
        ("ORDER BY ts RANGE BETWEEN INTERVAL 1 SECOND PRECEDING AND UNBOUNDED FOLLOWING", "would be waited for"),
        ("ORDER BY n RANGE BETWEEN 3 PRECEDING AND CURRENT ROW", "its column, ts"),
        ("ORDER BY ts RANGE BETWEEN 3 PRECEDING AND CURRENT ROW", "INTERVAL '10' MINUTES"),
        ("ORDER BY ts", "RANGE BETWEEN INTERVAL"),
    ],
)
def test_what_would_wait_or_be_kept_is_refused(over: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        run(f"SELECT sum(n) OVER (PARTITION BY k {over}) AS s FROM t", 10)
