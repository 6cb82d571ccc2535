"""Places, neighbours and totals OVER results that change, and ORDER BY with LIMIT and OFFSET, are those of what is left."""

from __future__ import annotations

from typing import Any

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
        avg(n) OVER (ORDER BY k % 3 RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS g FROM {GROUPS}"""
    wanted: list[tuple[Any, ...]] = []
    for at, (k, _, s) in enumerate(ROWS):
        before = [row[2] for row in ROWS[:at] if row[0] % 2 == k % 2][-1:]
        peers = [row[1] for row in ROWS if row[0] % 3 <= k % 3]
        wanted.append((
            k, ROWS[at - 1][0] if at else None, ROWS[at + 2][2] if at + 2 < len(ROWS) else -1000, sum(row[1] for row in ROWS[: at + 1]),
            max(SUMS.values()), len(ROWS[max(0, at - 1) : at + 3]), min([s, *before]), sum(peers) / len(peers),
        ))  # fmt: skip
    assert run(text, epoch_rows) == sorted(wanted, key=str)


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
        (f"SELECT stddev(n) OVER () AS r FROM {GROUPS}", "of results that change is not available"),
        (f"SELECT k FROM {GROUPS} ORDER BY n LIMIT 1 + 1", "LIMIT takes a number"),
        (f"SELECT sum(n) OVER (ORDER BY k RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS r FROM {GROUPS}", "a frame is a number of ROWS"),
    ):
        with pytest.raises(QueryError, match=says):
            run(text, 7)
