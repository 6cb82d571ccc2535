"""ASOF JOIN and FOR SYSTEM_TIME AS OF: a row with the newest of its key, and what is refused of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import errors
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

TRADES = pa.schema([("ts", pa.timestamp("us")), ("sym", pa.string()), ("n", pa.int64())])
QUOTES = pa.schema([("at", pa.timestamp("us")), ("sym", pa.string()), ("n", pa.int64()), ("price", pa.float64())])


def drawn(seed: int) -> tuple[pa.Table, pa.Table]:
    """Trades and quotes of five names, out of order by up to a second, at times that are no two quotes' of one name."""
    rng = np.random.default_rng(seed)
    made = []
    for count, schema in ((400, TRADES), (150, QUOTES)):
        at = np.sort(rng.choice(60_000, count, replace=False)) * 1_000 + (0 if schema is TRADES else 500 * rng.integers(0, 2, count))
        late = np.argsort(at + rng.integers(0, 1_000_000, count))
        columns = [pa.array(at[late], pa.timestamp("us")), pa.array([f"s{i}" for i in rng.integers(0, 5, count)]), pa.array(range(count))]
        made.append(pa.table([*columns, pa.array(rng.random(count))][: len(schema)], schema=schema))
    return made[0], made[1]


def joined(trades: pa.Table, quotes: pa.Table, *, outer: bool) -> list[tuple[Any, ...]]:
    """What it should be, row by row."""
    found = []
    for trade in trades.to_pylist():
        before = [quote for quote in quotes.to_pylist() if quote["sym"] == trade["sym"] and quote["at"] <= trade["ts"]]
        best = max(before, key=lambda quote: quote["at"], default=None)
        if best is not None or outer:
            found.append((trade["sym"], trade["n"], best and best["n"], best and best["price"], best and best["at"]))
    return sorted(found, key=str)


def answered(text: str, trades: pa.Table, quotes: pa.Table, mode: Any = "append") -> list[tuple[Any, ...]]:
    flow = ef.Dataflow("asof")
    streams = {}
    for name, table in (("t", trades), ("q", quotes)):
        halves = [table.take(list(range(half, table.num_rows, 2))).combine_chunks().to_batches() for half in range(2)]
        rows = flow.source(ef.sources.memory(halves), name=f"{name}_rows")
        streams[name] = rows.with_watermark(table.column_names[0], "2 seconds")
    ef.sql(text, streams, output_mode=mode).to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(flow.network, sites=2, partitions=8), sites=2, options=FlowOptions(epoch_rows=50, linger_ms=1), read_rows=40)
    world.run_until_quiet()
    return sorted(map(tuple, (row.values() for row in world.output("out").to_pylist())), key=str)


COLUMNS = "t.sym, t.n, q.n AS m, q.price, q.at"
WRITTEN = {
    "Snowflake's": (f"SELECT {COLUMNS} FROM t ASOF JOIN q MATCH_CONDITION (t.ts >= q.at) ON t.sym = q.sym", False),
    "DuckDB's": (f"SELECT {COLUMNS} FROM t ASOF LEFT JOIN q ON t.sym = q.sym AND t.ts >= q.at", True),
    "the other way": (f"SELECT {COLUMNS} FROM t ASOF JOIN q ON q.at <= t.ts AND q.sym = t.sym", False),
    "a version": (f"SELECT {COLUMNS} FROM t JOIN q FOR SYSTEM_TIME AS OF t.ts ON t.sym = q.sym", False),
    "a version, outer": (
        "SELECT a.sym, a.n, c.n AS m, c.price, c.at FROM t AS a LEFT JOIN q FOR SYSTEM_TIME AS OF a.ts AS c ON upper(a.sym) = upper(c.sym)",
        True,
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_each_row_has_the_newest_that_is_not_later(name: str) -> None:
    text, outer = WRITTEN[name]
    trades, quotes = drawn(seed=sum(map(ord, name)))
    assert answered(text, trades, quotes) == joined(trades, quotes, outer=outer)


def test_what_it_leaves_can_be_counted_in_windows_and_kept_as_a_whole() -> None:
    trades, quotes = drawn(3)
    rows = joined(trades, quotes, outer=True)
    counted = "SELECT t.sym, count(q.n) AS c FROM t ASOF LEFT JOIN q ON t.sym = q.sym AND t.ts >= q.at GROUP BY t.sym"
    wanted = {(sym, sum(row[0] == sym and row[2] is not None for row in rows)) for sym in {row[0] for row in rows}}
    assert set(answered(counted, trades, quotes, "complete")) >= wanted
    windows = "SELECT window.start AS w, count(*) AS c FROM (SELECT t.ts, q.n FROM t ASOF JOIN q ON t.sym = q.sym AND t.ts >= q.at) "
    assert sum(row[1] for row in answered(f"{windows} GROUP BY window(ts, '10 seconds')", trades, quotes)) == len(
        joined(trades, quotes, outer=False)
    )


REFUSED = {
    "t ASOF JOIN q ON t.sym = q.sym AND t.ts > q.at": "takes equalities between the two sides; write other conditions in WHERE",
    "t ASOF JOIN q ON t.sym = q.sym AND t.n >= q.n": r"the newest row that is not later in event time: t\.ts >= q\.at",
    "t ASOF JOIN q ON t.sym = q.sym AND t.ts <= q.at": r"the newest row that is not later in event time: t\.ts >= q\.at",
    "t ASOF JOIN q ON t.sym = q.sym": r"has to say in ON which is not later, t\.ts >= q\.at, and which are equal",
    "t ASOF JOIN q ON t.ts >= q.at": "has to say which columns are equal",
    "t ASOF RIGHT JOIN q ON t.sym = q.sym AND t.ts >= q.at": "an inner or a left join",
    "t JOIN q FOR SYSTEM_TIME AS OF t.n ON t.sym = q.sym": r"takes the event time of the rows before it, t\.ts",
    "t JOIN q FOR SYSTEM_TIME AS OF q.at ON t.sym = q.sym": "there is no column",
    "t JOIN q FOR SYSTEM_TIME AS OF t.ts ON t.sym = q.sym AND t.ts >= q.at": "write other conditions in WHERE",
    "t JOIN q FOR VERSION AS OF 3 ON t.sym = q.sym": "only FOR SYSTEM_TIME AS OF a row's time",
    "t ASOF JOIN t ON t.sym = t.sym AND t.ts >= t.ts": "two tables are called 't'",
    "t ASOF JOIN late ON t.sym = late.sym AND t.ts >= late.at": "declare a watermark on both sides",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_says_where_and_what_to_write(text: str) -> None:
    flow = ef.Dataflow("asof")
    streams = {
        "t": flow.source(ef.sources.memory([], 1, schema=TRADES), name="a").with_watermark("ts", "1 second"),
        "q": flow.source(ef.sources.memory([], 1, schema=QUOTES), name="b").with_watermark("at", "1 second"),
        "late": flow.source(ef.sources.memory([], 1, schema=QUOTES), name="c"),
    }
    with pytest.raises(errors.EvenflowError, match=rf"line 1, column \d+: .*{REFUSED[text]}"):
        ef.sql(f"SELECT 1 AS one FROM {text}", streams)


def test_of_what_changes_there_is_no_newest_row() -> None:
    trades, quotes = drawn(0)
    changing = "(SELECT sym, count(*) AS n FROM q GROUP BY sym) q"
    with pytest.raises(errors.QueryError, match="rows that come once on both sides"):
        answered(f"SELECT t.n FROM t ASOF JOIN {changing} ON t.sym = q.sym AND t.ts >= q.at", trades, quotes, "changelog")


@pytest.mark.parametrize(("name", "outer"), [("Snowflake's", False), ("DuckDB's", True)])
def test_null_equals_nothing(name: str, outer: bool) -> None:
    """Neither a null key nor a time that is null has a newest row, though rows of both are there on the other side."""
    times = pa.array([0, 1_000_000, 2_000_000, None], pa.timestamp("us"))
    trades = pa.table([times, ["a", None, "b", "a"], [1, 2, 3, 4]], schema=TRADES)
    quotes = pa.table([times, [None, None, "a", "a"], [5, 6, 7, 8], [0.5, 1.5, 2.5, 3.5]], schema=QUOTES)
    wanted = [(key, n, None, None, None) for key, n in (("a", 1), (None, 2), ("b", 3), ("a", 4))] if outer else []
    text, _ = WRITTEN[name]
    assert answered(text, trades, quotes) == sorted(wanted, key=str)
