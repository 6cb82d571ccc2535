"""Views over views in which nothing comes any more: event time goes on through all of them, and what is open comes out as of one query."""

from __future__ import annotations

from typing import Any

import pytest

import evenflow as ef
from evenflow import testing

pytestmark = pytest.mark.one_in(2)

SCHEMA = "ts timestamp_ntz, k string, n bigint"
ROWS = [(f"2026-01-01 12:00:{second:02}", f"k{second % 3}", second) for second in range(0, 40, 2)]
PASSED = [("2026-01-01 12:10:00", "none", -1)]
"""A row that no view lets through; its time is beyond all that is open."""

FIRST = "SELECT ts, k, n FROM t WHERE n >= 0"
COUNTED = "SELECT k, count(*) AS c, sum(n) AS s, window.end AS e FROM {} GROUP BY k, window(ts, '10 seconds')"
CHAINS: dict[str, list[str]] = {
    "filters": [FIRST, "SELECT ts, k, n + 1 AS n FROM {} WHERE k <> 'k1'", COUNTED],
    "windows of windows": [FIRST, COUNTED, "SELECT max(c) AS c, window.start AS b FROM {} GROUP BY window(e, '20 seconds')"],
    "three of them": [
        FIRST, COUNTED, "SELECT k, sum(s) AS s, window.end AS e FROM {} GROUP BY k, window(e, '20 seconds')",
        "SELECT sum(s) AS s, window.end AS e FROM {} WHERE s > 3 GROUP BY window(e, '40 seconds')",
    ],
    "sessions": [FIRST, "SELECT k, count(*) AS c, session_window.end AS e FROM {} GROUP BY k, session_window(ts, '7 seconds')"],
    "frames that wait": [
        FIRST,
        "SELECT ts, k, sum(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '9' SECONDS FOLLOWING) AS n FROM {}",
        COUNTED,
    ],
    "all rows so far": [
        FIRST, "SELECT ts, k, sum(n) OVER (PARTITION BY k ORDER BY ts) AS s, n FROM {}",
        "SELECT ts, k, s AS n FROM {} WHERE n % 4 = 0", COUNTED,
    ],
    "values at regular times": [
        FIRST, "SELECT * FROM GAP_FILL({}, ts_column => 'ts', "
        "bucket_width => INTERVAL '4' SECONDS, partitioning_columns => ['k'], value_columns => [('n', 'null')], "
        "max_gap => INTERVAL '9' SECONDS)",
        COUNTED,
    ],
    "joined with a view that is empty": [
        FIRST, "SELECT a.ts AS ts, a.k AS k, coalesce(b.n, a.n) AS n FROM {0} AS a LEFT JOIN (SELECT * FROM {0} WHERE n > 99) AS b "
        "ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '8' SECONDS", COUNTED,
    ],
    "united with a view that is empty": [FIRST, "SELECT ts, k, n FROM {0} UNION ALL SELECT ts, k, n FROM {0} WHERE n > 99", COUNTED],
    "a place in each window": [
        FIRST, "SELECT k, window.end AS e, sum(n) AS s, rank() OVER (PARTITION BY k ORDER BY window.end) AS p FROM {} "
        "GROUP BY k, window(ts, '10 seconds')", "SELECT sum(s * p) AS s, window.end AS e FROM {} GROUP BY window(e, '20 seconds')",
    ],
    "the best of windows": [
        FIRST, COUNTED, "SELECT k, s, e FROM (SELECT *, row_number() OVER (PARTITION BY e ORDER BY s DESC) AS p FROM {}) WHERE p <= 1",
        "SELECT count(*) AS c, sum(s) AS s, window.end AS e FROM {} GROUP BY window(e, '20 seconds')",
    ],
    "distinct": [FIRST, "SELECT DISTINCT ts, k FROM {}", "SELECT count(*) AS c, window.end AS e FROM {} GROUP BY window(ts, '10 seconds')"],
    "united with itself": [
        FIRST, "SELECT ts, k, n FROM {0} WHERE n > 20 UNION ALL SELECT ts, k, n FROM {0} WHERE n < 10", COUNTED,
    ],
    "joined with itself": [
        FIRST, "SELECT a.ts AS ts, a.k AS k, b.n AS n FROM {0} AS a LEFT JOIN {0} AS b ON a.k = b.k AND a.n + 6 = b.n AND "
        "b.ts BETWEEN a.ts AND a.ts + INTERVAL '8' SECONDS", COUNTED,
    ],
    "a pattern": [
        FIRST, """SELECT k, ts, n FROM {} MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(ts) AS ts, SUM(n) AS n
        PATTERN (A B*) WITHIN INTERVAL '11' SECONDS DEFINE B AS n > PREV(n))""", COUNTED,
    ],
}  # fmt: skip


def chained(chain: list[str]) -> str:
    """A view for each query, over the one before."""
    views = [f"CREATE TEMPORARY VIEW v{at} AS {query.format(f'v{at - 1}')};\n" for at, query in enumerate(chain[:-1])]
    return "".join(views) + chain[-1].format(f"v{len(chain) - 2}")


def nested(chain: list[str]) -> str:
    """The same as one query, with queries in FROM."""
    text = chain[0]
    for query in chain[1:]:
        text = query.format(f"({text})")
    return text


def played(text: str, seed: int, idle: str | None = None) -> testing.Simulation:
    """t has rows; u, if the text reads it, may be idle."""
    flow, tables = ef.Dataflow("q"), {}
    for name in ("t", "u") if " u " in f"{text} " else ("t",):
        tables[name] = flow.source(testing.source(SCHEMA), name=name).with_watermark("ts", "3 seconds", idle=idle)
    ef.sql(text, tables).to(ef.sinks.memory("out"), name="out")
    return testing.simulate(flow, sites=2, seed=seed)


def shown(rows: Any) -> list[str]:
    return sorted(str(dict(row)) for row in rows)


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_open_comes_out_as_of_one_query(name: str) -> None:
    chain, steps = CHAINS[name], []
    for text in (chained(chain), nested(chain)):
        test, found = played(text, len(steps)), []
        for rows in (ROWS[:9], ROWS[9:], PASSED, []):
            test.give("t", rows).settle()
            found.append(shown(test.new_rows()))
        test.finish()
        found.append(shown(test.new_rows()))
        steps.append(found)
    assert steps[0] == steps[1]
    assert steps[0][2] and not steps[0][4], "all that was open came with the row that no view lets through, nothing with the end"


BOTH = [
    "SELECT ts, k, n FROM t WHERE n >= 0 UNION ALL SELECT ts, k, n FROM u WHERE n >= 0",
    "SELECT ts, k, n, sum(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '4' SECONDS PRECEDING AND CURRENT ROW) AS s FROM {}",
    COUNTED,
    "SELECT sum(s) AS s, window.end AS e FROM {} GROUP BY window(e, '20 seconds')",
]


@pytest.mark.parametrize("given", [[], [("2026-01-01 12:00:01", "k1", 100)]], ids=["never", "no more"])
def test_a_source_without_rows_holds_no_view_back_if_it_may_be_idle(given: list[Any]) -> None:
    """given: what comes of u before it is silent."""
    steps = []
    for text, idle in ((chained(BOTH), "2 seconds"), (nested(BOTH), "2 seconds"), (chained(BOTH), None)):
        test = played(text, len(steps), idle)
        test.give("u", given).give("t", ROWS).settle()
        found = [shown(test.new_rows())]
        test.advance("5 seconds").give("t", PASSED).settle()
        found.append(shown(test.new_rows()))
        test.finish()
        found.append(shown(test.new_rows()))
        steps.append(found)
    assert steps[0] == steps[1]
    assert steps[0][0] == steps[2][0] == steps[2][1] == [], "while it may speak, and where it may not be idle, it is waited for"
    assert steps[0][1] == steps[2][2] and len(steps[0][1]) == 3 and not steps[0][2]
