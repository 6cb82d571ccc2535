"""Named windows, * EXCEPT, HAVING with queries, joins by names of queries without one, and whole tables of plain rows."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import errors
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

T = pa.table({"ts": pa.array(range(0, 20_000_000, 1_000_000), pa.timestamp("us")), "k": [i % 3 for i in range(20)], "n": list(range(20))})
U = pa.table({"at": pa.array(range(0, 6_000_000, 1_000_000), pa.timestamp("us")), "k": [1, 1, 2, 2, 2, 5], "m": [4, 5, 57, 3, 2, 1]})


def drawn(text: str, mode: Any, given: pa.Table = T) -> ef.Stream:
    flow = ef.Dataflow("clauses")
    streams = {
        name: flow.source(ef.sources.memory(table), name=f"{name}_rows").with_watermark(table.column_names[0], "1 second")
        for name, table in (("t", given), ("u", U))
        if re.search(rf"(FROM|JOIN) {name}\b", text)
    }
    return ef.sql(text, streams, output_mode=mode)


def rows(text: str, mode: Any = "append", given: pa.Table = T, epoch_rows: int = 1_000) -> list[tuple[Any, ...]]:
    """All rows; in complete mode those of the last table, in their order."""
    stream = drawn(text, mode, given)
    stream.to(ef.sinks.memory("out"), name="out")
    planned = layout(stream.flow.network, sites=2, partitions=4)
    world = SimWorld(planned, sites=2, options=FlowOptions(epoch_rows=epoch_rows, linger_ms=1), read_rows=epoch_rows)
    world.run_until_quiet()
    made: list[tuple[Any, ...]] = [tuple(row.values()) for row in world.output("out").to_pylist()]
    return made if mode == "complete" else sorted(made, key=str)


def test_windows_have_names() -> None:
    frame = "PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
    written = rows(f"SELECT k, ts, sum(n) OVER ({frame}) AS s, max(n) OVER ({frame}) AS m FROM t WHERE n > 2")
    assert len(written) == 17
    named = f"SELECT k, ts, sum(n) OVER w AS s, max(n) OVER W AS m FROM t WHERE n > 2 WINDOW w AS ({frame})"
    assert rows(named) == written
    parts = "v AS (PARTITION BY k), w AS (v ORDER BY ts)"
    assert rows(
        "SELECT k, ts, sum(n) OVER (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s, "
        f"max(n) OVER (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS m FROM t AS a WHERE n > 2 WINDOW {parts}"
    ) == written  # fmt: skip
    assert rows("SELECT window.start AS window, count(*) AS c FROM t GROUP BY window(ts, '10 seconds')")[0][1] == 10


def test_a_star_leaves_columns_out() -> None:
    assert drawn("SELECT * EXCEPT (ts, K) FROM t", "append").columns == ["n"]
    assert drawn("SELECT t.* EXCEPT (k), u.m FROM t JOIN u ON t.k = u.k AND t.ts = u.at", "append").columns == ["ts", "n", "m"]


def test_what_is_over_groups_is_no_key_of_all() -> None:
    """Spark takes a place for a key here, and refuses it."""
    over = "rank() OVER (PARTITION BY k ORDER BY n % 2 DESC) AS r, lag(k) OVER (ORDER BY k, n % 2) AS l"
    text = f"SELECT k, n % 2 AS odd, {over} FROM t GROUP BY"
    assert rows(f"{text} ALL", "complete") == rows(f"{text} k, odd", "complete") != []


def test_having_takes_queries_of_rows() -> None:
    totals = {k: sum(range(k, 20, 3)) for k in range(3)}
    assert rows("SELECT k, sum(n) AS s FROM t GROUP BY k HAVING k IN (SELECT k FROM u)", "complete") == [(1, totals[1]), (2, totals[2])]
    assert rows("SELECT k, sum(n) AS s FROM t GROUP BY k HAVING sum(n) NOT IN (SELECT m FROM u)", "complete") == [
        (k, s) for k, s in totals.items() if s not in U["m"].to_pylist()
    ]
    assert rows("SELECT k FROM t GROUP BY k HAVING count(*) > 6 AND EXISTS (SELECT 1 FROM u WHERE m > 50)", "complete") == [(0,), (1,)]


def test_names_of_the_list_are_names_in_having_beside_queries() -> None:
    totals = {k: sum(range(k, 20, 3)) for k in range(3)}
    most = max(U["m"].to_pylist())
    above = [(k, s) for k, s in totals.items() if s > most]
    assert 0 < len(above) < 3
    assert rows("SELECT k, sum(n) AS s FROM t GROUP BY k HAVING s > (SELECT max(m) FROM u)", "complete") == above
    assert rows("SELECT k AS kk, sum(n) AS s FROM t GROUP BY k HAVING kk IN (SELECT k FROM u)", "complete") == [
        (1, totals[1]),
        (2, totals[2]),
    ]
    # A group's own column comes first; any other name is the list's, as without a query.
    assert rows("SELECT -k AS k, max(n) AS n FROM t GROUP BY k HAVING k IN (SELECT k FROM u) AND n > 18", "complete") == [(-1, 19)]
    distinct = "SELECT DISTINCT count(*) > 0 AS there FROM t GROUP BY k HAVING k IN (SELECT k FROM u)"
    assert rows(distinct, "complete") == [(True,)]


def test_queries_without_names_are_joined_by_what_both_have() -> None:
    both = "FROM (SELECT k, sum(n) AS s FROM t GROUP BY k) {} (SELECT k, max(m) AS m FROM u GROUP BY k) {}"
    wanted = [(1, 70, 5), (2, 57, 57)]
    assert rows(f"SELECT * {both.format('NATURAL JOIN', '')}", "complete") == wanted
    assert rows(f"SELECT * {both.format('JOIN', 'USING (k)')}", "complete") == wanted
    third = "JOIN (SELECT k, count(*) AS c FROM u GROUP BY k) USING (k)"
    assert rows(f"SELECT k, s, m, c {both.format('JOIN', 'USING (k)')} {third}", "complete") == [(1, 70, 5, 2), (2, 57, 57, 3)]


def test_plain_rows_have_a_whole_table_in_an_order() -> None:
    assert rows("SELECT k, n FROM t ORDER BY n DESC, k LIMIT 3", "complete") == [(1, 19), (0, 18), (2, 17)]
    assert rows("SELECT k, n FROM t ORDER BY n LIMIT 2 OFFSET 3", "complete") == [(0, 3), (1, 4)]
    best = "SELECT k, n, r FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM t) WHERE r <= 2"
    assert rows(f"{best} ORDER BY k, r", "complete") == [(0, 18, 1), (0, 15, 2), (1, 19, 1), (1, 16, 2), (2, 17, 1), (2, 14, 2)]
    assert len(rows("SELECT t.n, u.m FROM t JOIN u ON t.k = u.k", "complete")) == 7 * 2 + 6 * 3


PLACE = "row_number() OVER (PARTITION BY k ORDER BY n DESC)"


@pytest.mark.parametrize(
    ("text", "around"),
    [
        (f"SELECT * FROM t QUALIFY {PLACE} <= 2", f"SELECT ts, k, n FROM (SELECT *, {PLACE} AS p FROM t) WHERE p <= 2"),
        (f"SELECT n, {PLACE} AS p FROM t QUALIFY P <= 2", f"SELECT n, p FROM (SELECT n, {PLACE} AS p FROM t) WHERE p <= 2"),
        (f"SELECT * EXCEPT (ts, n) FROM t QUALIFY {PLACE} = 1", f"SELECT k FROM (SELECT *, {PLACE} AS p FROM t) WHERE p = 1"),
        (
            f"SELECT upper('x'), n FROM t AS a QUALIFY a.ts > timestamp '1970-01-01 00:00:17' AND {PLACE} = 1",
            f"SELECT 'X', n FROM (SELECT n, ts, {PLACE} AS p FROM t) WHERE p = 1 AND ts > timestamp '1970-01-01 00:00:17'",
        ),
        (
            "SELECT n, lag(n) OVER w AS l FROM t WINDOW w AS (PARTITION BY k ORDER BY ts) QUALIFY n - 3 = lag(n) OVER w AND l > 2",
            "SELECT n, l FROM (SELECT n, lag(n) OVER (PARTITION BY k ORDER BY ts) AS l FROM t) WHERE n - 3 = l AND l > 2",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["append", "complete"])
def test_qualify_is_a_condition_around_the_query(text: str, around: str, mode: str) -> None:
    wanted = rows(around, mode)
    assert wanted and rows(text, mode) == wanted


def test_conditions_with_queries_are_asked_of_the_best_rows_too() -> None:
    text = f"SELECT n FROM t QUALIFY {PLACE} <= 4 AND n NOT IN (SELECT m + 12 FROM u)"
    assert sorted(rows(text, "complete")) == [(n,) for n in range(8, 20) if n not in {m + 12 for m in U["m"].to_pylist()}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT sum(n) OVER w AS s FROM t", r"column 8: no window is called 'w'; write WINDOW w AS"),
        ("SELECT sum(n) OVER w AS s FROM t WINDOW w AS (ORDER BY ts), W AS (PARTITION BY k)", "two windows are called 'W'"),
        ("SELECT sum(n) OVER (w ORDER BY n) AS s FROM t WINDOW w AS (ORDER BY ts)", "the window 'w' says that already"),
        ("SELECT * EXCEPT (x) FROM t", "column 18: there is no column 'x' to leave out"),
        ("SELECT * EXCEPT (ts, k, n) FROM t", "leaves no column"),
        ("SELECT * REPLACE (1 AS n) FROM t", "REPLACE"),
        ("SELECT k, lag(n) OVER (ORDER BY k) AS l FROM t GROUP BY ALL", "column 15: the column 'n' is neither in GROUP BY nor inside"),
        ("SELECT k, rank() OVER (ORDER BY sum(n)) AS r FROM t GROUP BY k", "column 11: .* would count every state of a running aggregate"),
        ("SELECT k, sum(n) OVER (ORDER BY ts) AS r FROM t GROUP BY k", "column 15: the column 'n' is neither in GROUP BY nor inside"),
        ("SELECT k FROM t QUALIFY k > 1", r"column 25: QUALIFY without a function OVER .*; write the condition in WHERE"),
        (
            "SELECT k FROM t QUALIFY row_number() OVER (ORDER BY n) > 1",
            r"column 25: row_number of .* row_number\(\) <= 10 in QUALIFY",
        ),
        ("SELECT k FROM t QUALIFY rank() OVER (ORDER BY n) <= 1", "column 25: rank of every row would change .* take the best: row_number"),
        ("SELECT k FROM t QUALIFY lead(n) OVER (ORDER BY n) > 1", r"column 25: rows come in order of event time"),
        ("SELECT k FROM t QUALIFY sum(n) OVER w > 1", "column 25: no window is called 'w'"),
        ("SELECT k FROM t QUALIFY row_number() OVER (ORDER BY y) = 1", "column 53: there is no column 'y'"),
        ("SELECT k + 1 AS k FROM t QUALIFY row_number() OVER (ORDER BY n) = 1 AND k > 1", "column 73: 'k' is a column of FROM and of the"),
        ("SELECT k + 1 AS k FROM t QUALIFY lag(n) OVER (PARTITION BY k ORDER BY ts) > 1", "column 60: 'k' is a column of FROM and of"),
        ("SELECT k FROM t QUALIFY row_number() OVER (ORDER BY n) = 1 AND k IN (SELECT k FROM u)", "use changelog or complete mode"),
    ],
)
def test_what_is_refused_says_where(text: str, message: str) -> None:
    with pytest.raises(errors.QueryError, match=message):
        drawn(text, "append")


OWN = "CASE WHEN n % 4 = 0 THEN '5 seconds' WHEN n % 4 = 3 THEN '-1 second' WHEN n % 7 > 0 THEN '4 seconds' END"
SESSIONS = (
    "SELECT k, session_window.start AS a, session_window.end AS b, count(*) AS c, sum(n) AS s, session_window AS w FROM t "
    f"GROUP BY k, session_window(ts, {OWN}) HAVING session_window.start >= timestamp '1970-01-01 00:00:01'"
)


def test_sessions_with_gaps_of_their_own_are_the_same_in_every_mode() -> None:
    once = rows(SESSIONS)
    assert len(once) > 5 and any(row[3] > 1 for row in once)
    assert sorted(rows(f"{SESSIONS} ORDER BY k, a", "complete"), key=str) == once
    assert left(rows(SESSIONS, "changelog")) == once
    alone = f"SELECT session_window(ts, {OWN}) AS w, min(n) AS m FROM t GROUP BY 1"
    assert sorted(rows(alone, "complete"), key=str) == rows(alone)


def test_a_row_between_two_sessions_makes_them_one_however_late_it_is() -> None:
    late = pa.table({"ts": pa.array([0, 60_000_000, 3_000_000, 1_500_000], pa.timestamp("us")), "k": [1] * 4, "n": [1, 2, 3, 4]})
    gap = "concat(2 * k, ' seconds')"
    text = f"SELECT session_window.start AS a, session_window.end AS b, sum(n) AS s FROM t GROUP BY k, session_window(ts, {gap})"
    found = left(rows(text, "changelog", late, epoch_rows=1))
    assert [(row[0].second, row[1].second, row[2]) for row in found] == [(0, 5, 8), (0, 2, 2)]


def left(changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows that changes leave, whose last column says what they do."""
    there: list[tuple[Any, ...]] = []
    for *row, change in sorted(changes, key=lambda each: each[-1] in ("delete", "update_before")):
        there.remove(tuple(row)) if change in ("delete", "update_before") else there.append(tuple(row))
    return sorted(there, key=str)
