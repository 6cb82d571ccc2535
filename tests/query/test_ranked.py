"""Places, neighbours and totals OVER results that change, and ORDER BY with LIMIT and OFFSET, are those of what is left."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import QueryError
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld
from tests.query.test_regrouped import COUNTS, KEYS, SUMS, TABLE, VALUES, run

GROUPS = "(SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k)"
ROWS = sorted((k, COUNTS[k], SUMS[k]) for k in SUMS)
EPOCHS = pytest.mark.parametrize("epoch_rows", [11, 1000])


@EPOCHS
def test_places_of_all_rows(epoch_rows: int) -> None:
    text = f"""SELECT k, rank() OVER (ORDER BY n DESC) AS r, dense_rank() OVER (ORDER BY n DESC) AS d,
        row_number() OVER (PARTITION BY k % 2 ORDER BY s, k) AS p FROM {GROUPS}"""
    sizes = sorted({n for _, n, _ in ROWS}, reverse=True)
    wanted = [
        (
            k,
            1 + sum(m > n for _, m, _ in ROWS),
            1 + sizes.index(n),
            1 + sum((other, j) < (s, k) for j, _, other in ROWS if j % 2 == k % 2),
        )
        for k, n, s in ROWS
    ]
    assert run(text, epoch_rows) == sorted(wanted, key=str)


@EPOCHS
def test_neighbours_and_frames(epoch_rows: int) -> None:
    text = f"""SELECT k, lag(k) OVER (ORDER BY k) AS a, lead(s, 2, -1000L) OVER (ORDER BY k) AS b, sum(n) OVER (ORDER BY k) AS c,
        max(s) OVER () AS d, count(*) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS e,
        min(s) OVER (PARTITION BY k % 2 ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS f,
        avg(n) OVER (ORDER BY k % 3 RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS g,
        sum(n) FILTER (WHERE s > 0) OVER (ORDER BY k) + count(*) FILTER (WHERE k % 2 = 0) OVER () AS h FROM {GROUPS}"""
    wanted: list[tuple[Any, ...]] = []
    for at, (k, _, s) in enumerate(ROWS):
        before = [row[2] for row in ROWS[:at] if row[0] % 2 == k % 2][-1:]
        peers = [row[1] for row in ROWS if row[0] % 3 <= k % 3]
        wanted.append((
            k, ROWS[at - 1][0] if at else None, ROWS[at + 2][2] if at + 2 < len(ROWS) else -1000, sum(row[1] for row in ROWS[: at + 1]),
            max(SUMS.values()), len(ROWS[max(0, at - 1) : at + 3]), min([s, *before]), sum(peers) / len(peers),
            sum(own) + sum(row[0] % 2 == 0 for row in ROWS) if (own := [row[1] for row in ROWS[: at + 1] if row[2] > 0]) else None,
        ))  # fmt: skip
    assert run(text, epoch_rows) == sorted(wanted, key=str)


@EPOCHS
def test_frames_by_value(epoch_rows: int) -> None:
    text = f"""SELECT k, sum(k) OVER (ORDER BY s RANGE BETWEEN 20 PRECEDING AND 35 FOLLOWING) AS a,
        count(*) OVER (ORDER BY s DESC RANGE BETWEEN 20 PRECEDING AND 35 FOLLOWING) AS b,
        max(k) OVER (ORDER BY n RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS c,
        min(s) OVER (PARTITION BY k % 2 ORDER BY CAST(n AS DOUBLE) RANGE BETWEEN CURRENT ROW AND 1.5 FOLLOWING) AS d,
        count(*) OVER (ORDER BY date_add(DATE '2026-01-01', CAST(k AS INT)) RANGE BETWEEN INTERVAL 2 DAYS PRECEDING AND 1 FOLLOWING) AS e,
        count(*) OVER (ORDER BY timestamp_seconds(k) RANGE INTERVAL '3' SECONDS PRECEDING) AS f FROM {GROUPS}"""
    wanted = [
        (
            k,
            sum(j for j, _, t in ROWS if s - 20 <= t <= s + 35),
            sum(s - 35 <= t <= s + 20 for _, _, t in ROWS),
            max((j for j, m, _ in ROWS if m <= n - 1), default=None),
            min(t for j, m, t in ROWS if j % 2 == k % 2 and n <= m <= n + 1.5),
            sum(k - 2 <= j <= k + 1 for j, _, _ in ROWS),
            sum(k - 3 <= j <= k for j, _, _ in ROWS),
        )
        for k, n, s in ROWS
    ]
    assert run(text, epoch_rows) == sorted(wanted, key=str)


def test_nulls_last_and_shares_of_places() -> None:
    table = pa.table({"k": pa.array([1, 2, 3, 4, 5, None, 7]), "v": pa.array([5, None, 5, 1, None, 9, 2])})
    text = """SELECT k, row_number() OVER (ORDER BY v NULLS LAST, k DESC NULLS FIRST) AS p, ntile(3) OVER (ORDER BY k) AS t,
        percent_rank() OVER (ORDER BY v) AS r, cume_dist() OVER (ORDER BY v) AS c, nth_value(v, 2) OVER (ORDER BY k) AS f FROM t"""
    assert run(text, 2, table) == sorted(
        [
            (None, 5, 1, 1.0, 1.0, None), (1, 4, 1, 4 / 6, 6 / 7, 5), (2, 7, 1, 0.0, 2 / 7, 5), (3, 3, 2, 4 / 6, 6 / 7, 5),
            (4, 1, 2, 2 / 6, 3 / 7, 5), (5, 6, 3, 0.0, 2 / 7, 5), (7, 2, 3, 3 / 6, 4 / 7, 5),
        ],
        key=str,
    )  # fmt: skip
    assert run("SELECT k FROM t WHERE k > 1 ORDER BY v DESC NULLS FIRST, k LIMIT 3", 2, table) == [(2,), (3,), (5,)]


def test_a_sum_is_of_its_frame_alone() -> None:
    given = [1e300, float("inf"), 0.1, 0.2, None, float("nan"), 0.3, 0.4]
    table = pa.table({"k": pa.array(range(8), pa.int64()), "x": pa.array(given)})
    frames = {
        "1 PRECEDING AND CURRENT ROW": (1, 0),
        "CURRENT ROW AND UNBOUNDED FOLLOWING": (0, 9),
        "UNBOUNDED PRECEDING AND CURRENT ROW": (9, 0),
    }
    for frame, (before, after) in frames.items():
        text = f"SELECT k, sum(x) OVER (ORDER BY k ROWS BETWEEN {frame}) AS s FROM t"
        inside = [[x for x in given[max(0, k - before) : k + after + 1] if x is not None] for k in range(8)]
        wanted = [(k, sum(part[::-1] if after else part) if part else None) for k, part in enumerate(inside)]
        assert str(run(text, 3, table)) == str(wanted), frame


@EPOCHS
def test_those_that_have_a_place(epoch_rows: int) -> None:
    best = sorted(ROWS, key=lambda row: (-row[1], row[0]))
    for condition, wanted in (("p <= 3", best[:3]), ("p = 2", best[1:2]), ("p > 6", best[6:])):
        text = f"SELECT k, n FROM (SELECT k, n, row_number() OVER (ORDER BY n DESC, k) AS p FROM {GROUPS}) WHERE {condition}"
        assert run(text, epoch_rows) == sorted(((k, n) for k, n, _ in wanted), key=str)


@EPOCHS
def test_some_rows_of_an_order(epoch_rows: int) -> None:
    rows = sorted(zip(KEYS, VALUES, strict=True), key=lambda row: (-row[1], row[0]))
    assert run("SELECT k, v FROM t ORDER BY v DESC, k LIMIT 5 OFFSET 3", epoch_rows) == sorted(rows[3:8], key=str)
    assert run("SELECT k, v FROM t ORDER BY v DESC, k OFFSET 117", epoch_rows) == sorted(rows[117:], key=str)
    assert run("SELECT sum(v) AS s FROM (SELECT v FROM t ORDER BY v LIMIT 9)", epoch_rows) == [(sum(sorted(VALUES)[:9]),)]
    few = sorted(ROWS, key=lambda row: (row[1], row[0]))[:2]
    assert run("SELECT k FROM t GROUP BY k ORDER BY count(*), k LIMIT 2", epoch_rows) == [(k,) for k, _, _ in sorted(few)]
    assert run(f"SELECT k, n FROM {GROUPS} ORDER BY n", epoch_rows) == sorted(((k, n) for k, n, _ in ROWS), key=str)


def test_the_whole_table_from_a_place_on() -> None:
    flow = ef.Dataflow("q")
    text = "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY n DESC, k LIMIT 3 OFFSET 2"
    ef.sql(text, {"t": flow.source(ef.sources.memory(TABLE), name="t")}, output_mode="complete").to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=1, partitions=2), sites=1, replicas=1, options=FlowOptions(epoch_rows=50, linger_ms=1))
    world.run_until_quiet()
    wanted = [(k, n) for k, n, _ in sorted(ROWS, key=lambda row: (-row[1], row[0]))[2:5]]
    assert [tuple(row.values()) for row in world.output("out").to_pylist()][-3:] == wanted


def test_what_has_no_place_is_refused() -> None:
    for text, says in (
        (f"SELECT rank() OVER (PARTITION BY n) AS r FROM {GROUPS}", "needs ORDER BY"),
        (f"SELECT k FROM {GROUPS} ORDER BY n LIMIT 1 + 1", "LIMIT takes a number"),
        (f"SELECT sum(n) OVER (ORDER BY k, n RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS r FROM {GROUPS}", "goes by one expression"),
        (f"SELECT sum(n) OVER (ORDER BY k RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) AS r FROM {GROUPS}", "such as 3 PREC"),
        (f"SELECT sum(n) OVER (ORDER BY CAST(k AS DECIMAL(20)) RANGE 3 PRECEDING) AS r FROM {GROUPS}", "at most 18 digits"),
        (f"SELECT sum(n) OVER (ORDER BY k ROWS BETWEEN 1 FOLLOWING AND 2 PRECEDING) AS r FROM {GROUPS}", "ends before it begins"),
        (f"SELECT ntile(0) OVER (ORDER BY k) AS r FROM {GROUPS}", "at least 1"),
    ):
        with pytest.raises(QueryError, match=says):
            run(text, 7)
