"""Statements become boxes; what cannot run on a stream says where it stands in the text and what to write instead."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow import errors
from evenflow.query.aggregates import OwnSessions, SessionWindow, TimeWindow
from evenflow.query.planner import layout
from evenflow.world.sim.world import SimWorld

T = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
U = pa.schema([("at", pa.timestamp("us")), ("k", pa.string()), ("m", pa.int32())])


def streams(*, watermarks: bool = True) -> dict[str, Any]:
    flow = ef.Dataflow("q")
    t = flow.source(ef.sources.memory([], 2, schema=T), name="t_rows")
    u = flow.source(ef.sources.memory([], 2, schema=U), name="u_rows")
    return {"t": t.with_watermark("ts", "1 second"), "u": u.with_watermark("at", "1 second")} if watermarks else {"t": t, "u": u}


def sql(text: str, **more: Any) -> ef.Stream:
    return ef.sql(text, streams(**more))


def kinds(stream: ef.Stream) -> list[str]:
    return [box.kind for box in stream.flow.network if box.kind not in ("source", "watermark")]


# ---------------------------------------------------------------- what it becomes


def test_columns_have_the_names_and_types_of_the_query() -> None:
    stream = sql("SELECT K AS key, n + 1 AS more, t.x, 'a' AS a FROM t WHERE n > 3 AND x < 1.5")
    assert [(f.name, f.type) for f in stream.schema] == [
        ("key", pa.string()), ("more", pa.int64()), ("x", pa.float64()), ("a", pa.string()),
    ]  # fmt: skip
    assert kinds(stream) == ["filter", "filter", "select"]
    assert stream.event_time is None


def test_star_is_all_columns_and_costs_no_box() -> None:
    stream = sql("SELECT * FROM t")
    assert stream.columns == T.names
    assert kinds(stream) == []


def test_event_time_goes_on_under_its_new_name() -> None:
    assert sql("SELECT ts AS moment, k FROM t").event_time == "moment"
    assert sql("SELECT ts AS moment, ts FROM t").event_time == "ts"
    assert sql("SELECT a.moment FROM (SELECT ts AS moment, k FROM t) AS a").event_time == "moment"


def test_a_window_is_the_boxs_own() -> None:
    stream = sql("SELECT k, window.start AS s, window.end AS e, sum(n) AS total FROM t GROUP BY k, window(ts, '10 seconds', '5 seconds')")
    box = next(box for box in stream.flow.network if box.kind == "aggregate")
    assert box.params["window"] == TimeWindow("ts", 10_000_000, 5_000_000)
    assert stream.columns == ["k", "s", "e", "total"]
    assert stream.event_time == "e"


def test_tables_with_commas_are_joined_where_they_share_keys_and_star_is_in_their_order() -> None:
    given = streams()
    rows = ef.sources.memory([], 2, schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))
    given["v"] = given["t"].flow.source(rows, name="v_rows")
    of_u = "(SELECT k AS uk, m FROM u) b"
    stream = ef.sql(f"SELECT * FROM t a, v c, {of_u} WHERE b.m = c.id AND a.k = b.uk", given)
    joins = [box.params["join"] for box in stream.flow.network if box.kind == "join"]
    assert [(join.left_keys, join.right_keys) for join in joins] == [(("k",), ("uk",)), (("m",), ("id",))]
    assert stream.columns == [*T.names, "id", "name", "uk", "m"]
    with pytest.raises(errors.QueryError, match="every row with every row"):
        ef.sql(f"SELECT a.n FROM t a, v c, {of_u} WHERE a.k = b.uk", given)


@pytest.mark.parametrize(
    ("condition", "keys", "rest"),
    [
        ("(a.k = b.k AND a.n > 1) OR (a.k = b.k AND b.m > 2)", ("k",), "`l`.`n` > 1 OR `r`.`m` > 2"),
        ("(a.k = b.k) OR (a.k = b.k AND b.m > 2)", ("k",), None),
        (
            "a.n = b.m AND (a.k = b.k AND a.n > b.m OR a.n < b.m AND a.k = b.k)",
            ("n", "k"),
            "`l`.`n` > `r`.`m` OR `l`.`n` < `r`.`m`",
        ),
    ],
)
def test_what_stands_in_each_branch_of_an_or_is_taken_out_of_it(condition: str, keys: tuple[str, ...], rest: str | None) -> None:
    stream = sql(f"SELECT a.n FROM t a, u b WHERE {condition}")
    join = next(box for box in stream.flow.network if box.kind == "join").params["join"]
    assert (join.left_keys, join.condition) == (keys, rest)


INNER = "SELECT k, window.start AS window_start, window.end AS window_end, {}count(*) AS n FROM t GROUP BY k, window(ts, '10 seconds')"


@pytest.mark.parametrize(
    ("inner", "over", "first"),
    [
        ("", "window_time(window_end)", 2),
        ("window_time(window) AS at, ", "at", 2),
        ("window_time(window) AS at, ", "window_time(window_end)", 2),
        ("", "window_end", 1),
    ],
)
def test_windows_over_windows_go_by_their_last_microsecond_or_by_their_end(inner: str, over: str, first: int) -> None:
    """The window from second 10 to 20 is in the one up to 20 by its last microsecond, and in the one from 20 on by its end."""
    times = [datetime(2026, 1, 1, 12, 0, second) for second in (3, 12, 13, 24, 38)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": ["a", "b", "a", "a", "a"]})
    t = ef.Dataflow("q").source(ef.sources.memory(table), name="rows").with_watermark("ts", "1 second")
    columns = "window.start AS s, window.end AS e, sum(n) AS n, count(*) AS w"
    text = f"SELECT {columns} FROM ({INNER.format(inner)}) GROUP BY window({over}, '20 seconds')"
    stream = ef.sql(text, {"t": t}).to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(stream.flow.network, sites=2, partitions=4), sites=2)
    world.run_until_quiet()
    got = sorted((row["s"].second, row["e"].second, row["n"], row["w"]) for row in world.output("out").to_pylist())
    assert got == ([(0, 20, 3, 3), (20, 40, 2, 2)] if first == 2 else [(0, 20, 1, 1), (20, 40, 3, 3), (40, 0, 1, 1)])


def test_windows_that_are_grouped_again_have_their_time_too() -> None:
    text = f"SELECT window_time(window_end) AS at, sum(n) AS n FROM ({INNER.format('')}) GROUP BY window_start, window_end"
    stream = sql(text)
    assert stream.columns == ["at", "n"] and stream.event_time == "at"


def test_a_session_window_may_have_a_gap_of_each_rows_own() -> None:
    text = (
        "SELECT k, count(*) AS n FROM t GROUP BY k, session_window(ts, CASE WHEN k = 'a' THEN '5 minutes' ELSE concat(n, ' seconds') END)"
    )
    stream = sql(text)
    windows = [box.params["window"] for box in stream.flow.network if box.kind == "aggregate"]
    assert windows == [OwnSessions("ts", ends="_session_end")]


def test_a_session_window_is_the_boxs_own() -> None:
    stream = sql("SELECT k, count(*) AS n, session_window.end AS e FROM t GROUP BY k, session_window(ts, INTERVAL 5 MINUTES)")
    box = next(box for box in stream.flow.network if box.kind == "aggregate")
    assert box.params["window"] == SessionWindow("ts", 300_000_000)


def test_equal_calls_are_computed_once() -> None:
    stream = sql("SELECT k, sum(n) / count(*) AS mean, sum(n) AS total FROM t GROUP BY k HAVING count(*) > 2 AND sum(n) > 10")
    box = next(box for box in stream.flow.network if box.kind == "aggregate")
    assert [(call.function, call.column) for call in box.params["calls"]] == [("sum", "n"), ("count", None)]
    assert kinds(stream) == ["aggregate", "filter", "select"]


def test_conditions_of_one_side_stand_before_an_inner_join() -> None:
    stream = sql("SELECT a.n, b.m FROM t AS a JOIN u AS b ON a.k = b.k AND b.m > 1 WHERE a.n > 2 AND a.n > b.m AND a.ts = b.at")
    boxes = {box.name: box for box in stream.flow.network}
    join = next(box for box in boxes.values() if box.kind == "join").params["join"]
    assert (join.left_keys[0], join.low_us, join.high_us, join.unbounded) == ("k", 0, 0, False)
    assert join.condition is not None
    assert [box.params["condition"] for box in boxes.values() if box.kind == "filter"] == ["`m` > 1", "`n` > 2"]


def test_conditions_of_one_side_stay_behind_an_outer_join() -> None:
    query = "SELECT a.n, b.m FROM t AS a LEFT JOIN u AS b ON a.k = b.k AND b.at BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS WHERE b.m > 1"
    assert kinds(sql(query)) == ["select", "join", "filter", "select"]


def test_an_inner_join_without_bounds_keeps_its_rows() -> None:
    stream = sql("SELECT a.n FROM t AS a JOIN u AS b ON upper(a.k) = b.k")
    join = next(box for box in stream.flow.network if box.kind == "join").params["join"]
    assert join.unbounded
    assert len(join.left_keys) == 1


def test_a_script_names_its_views_and_sends_rows_to_its_sinks() -> None:
    out, rest = ef.sinks.memory("out"), ef.sinks.memory("rest")
    text = """
        CREATE TEMPORARY VIEW big (key, amount) AS SELECT k, n FROM t WHERE n > 10; -- a view
        INSERT INTO out SELECT key, sum(amount) AS total FROM big GROUP BY key;
        INSERT INTO REST SELECT key FROM big WHERE amount > 100;
    """
    stream = ef.sql(text, streams(), sinks={"out": out, "rest": rest})
    network = stream.flow.network
    assert network.box("out").params["sink"] == out
    assert stream.columns == ["key"]
    assert len(network.readers("big")) == 2


def test_sources_and_sinks_by_their_kind() -> None:
    stream = ef.sql(
        """CREATE TEMPORARY VIEW bid USING nexmark
             OPTIONS (stream 'bid', events '100', event_rate 50, event_time 'dateTime', delay '2 seconds');
           CREATE TABLE shown USING console OPTIONS (limit '3');
           INSERT INTO shown SELECT auction FROM bid""",
        name="bids",
    )
    network = stream.flow.network
    assert (network.name, network.box("bid").params["source"]) == ("bids", ef.sources.nexmark("bid", events=100, event_rate=50))
    assert network.box("shown").params["sink"] == ef.sinks.console(3)
    assert network.box("watermark").params["delay_us"] == 2_000_000
    network.check_complete()


@pytest.mark.parametrize(("said", "asked"), [("true", True), ("'true'", True), ("false", None)])
def test_a_sink_takes_first_come_first_served(said: str, asked: bool | None) -> None:
    text = f"""CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (stream 'bid', events '100');
               CREATE TABLE shown USING console OPTIONS (unordered {said}); INSERT INTO shown SELECT auction FROM bid"""
    assert ef.sql(text, name="bids").flow.network.box("shown").params.get("unordered") is asked
    box = ef.sql(text.replace("(unordered", "(every '2 seconds', unordered"), name="bids").flow.network.box("shown")
    assert (box.params["every_us"], box.params.get("unordered")) == (2_000_000, asked)
    with pytest.raises(errors.QueryError, match="a discard sink puts nothing out"):
        ef.sql(text.replace("console", "discard").replace("false", "true"), name="bids")
    with pytest.raises(errors.QueryError, match="unordered is 'maybe'; give True"):
        ef.sql(text.replace(said, "maybe"), name="bids")


def test_sources_can_be_passed_and_become_boxes_of_a_new_dataflow() -> None:
    stream = ef.sql("SELECT auction FROM bid", {"bid": ef.sources.nexmark(events=50)}, name="fresh")
    assert stream.flow.name == "fresh"
    assert stream.flow.network.box("bid").kind == "source"


def test_nothing_is_drawn_if_something_is_wrong() -> None:
    given = streams()
    before = given["t"].flow.network
    with pytest.raises(errors.UnknownColumn):
        ef.sql("CREATE TEMPORARY VIEW a AS SELECT n + 1 AS n FROM t; SELECT nn FROM a", given)
    assert given["t"].flow.network == before


def test_running_results_can_be_saved() -> None:
    best = sql("SELECT k FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n) AS p FROM t) WHERE p = 1")
    changes = sql("SELECT k, sum(c) AS c FROM (SELECT k, n, count(*) AS c FROM t GROUP BY k, n) GROUP BY k")
    for stream in (best, changes):
        assert ef.Dataflow.from_json(stream.flow.to_json()).network == stream.flow.network


UNTIL = """
SELECT a.k, {keys} count(*) AS c
FROM (SELECT k, at, at + INTERVAL 5 MINUTES AS ends FROM u) AS a
JOIN t ON a.k = t.k AND t.ts >= a.at AND {bound}
GROUP BY a.k{by}
"""


@pytest.mark.parametrize("bound", ["t.ts <= a.ends", "a.ends > t.ts", "t.ts BETWEEN a.at AND a.ends"])
def test_groups_of_a_time_that_the_rows_do_not_pass_come_once(bound: str) -> None:
    text = UNTIL.format(keys="a.ends AS over,", bound=bound, by=", a.ends")
    stream = sql(text)
    box = next(box for box in stream.flow.network if box.kind == "aggregate")
    assert box.params["keys"] == ("k",) and box.params["window"] == TimeWindow("ends", 1, 1)
    assert stream.columns == ["k", "over", "c"] and stream.event_time == "over"
    mean = "avg(c) OVER (PARTITION BY k ORDER BY over ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
    assert sql(f"SELECT k, {mean} AS mean FROM ({text})").columns == ["k", "mean"]


@pytest.mark.parametrize(
    ("bound", "by"), [("t.ts >= a.ends", ", a.ends"), ("t.ts <= a.ends + INTERVAL 1 SECOND", ", a.ends"), ("t.ts <= a.ends", "")]
)
def test_groups_of_any_other_time_are_running_results(bound: str, by: str) -> None:
    stream = sql(UNTIL.format(keys="", bound=bound, by=by))
    assert next(box for box in stream.flow.network if box.kind == "aggregate").params["window"] is None


# ---------------------------------------------------------------- what it refuses

REFUSED = [
    ("", "empty"),
    (" ; ", "no statement"),
    ("SELECT FROM WHERE", "line 1, column"),
    ("SELECT window_time(ts) AS at FROM t", "window_time is of the window that its query groups by"),
    ("SELECT window_time(n) AS at FROM (SELECT window.end AS e, count(*) AS n FROM t GROUP BY window(ts, '1 second'))", "or of the column"),
    ("SELECT 'a FROM t", "quote"),
    ("SELECT n FROM t;\nSELECT k FROM t", "line 1, column 8: the result of this SELECT goes nowhere"),
    ("SELECT 1 AS a", "without FROM"),
    ("SELECT n FROM v", "line 1, column 15: there is no stream 'v'; the streams are t, u"),
    ("SELECT n,\n  nn FROM t", r"line 2, column 3: there is no column 'nn' \(did you mean 'n'\?\)"),
    ("SELECT n,\n  nosuch(n) AS a FROM t", "line 2, column 3: .*there is no function 'nosuch'"),
    ("SELECT k + 1 AS a FROM t WHERE\n k AND n > 1", "line 2, column 2: .*not boolean"),
    ("SELECT n + 1, n + 1 FROM t", r"column 15: two columns are called 'n \+ 1'"),
    ("SELECT n, x AS N FROM t", "two columns are called 'N'"),
    ("SELECT n FROM t ORDER BY n", "ORDER is not available.*no end"),
    ("SELECT n FROM t LIMIT 3", "LIMIT is not available"),
    ("SELECT k, n FROM t UNION ALL SELECT k FROM u", "2 and 1 columns"),
    ("SELECT x FROM t UNION ALL SELECT at FROM u", "column 'x' of UNION ALL mixes"),
    ("SELECT n FROM t WHERE n IN (SELECT m FROM u)", "no time bounds say when a row can be forgotten"),
    ("SELECT n FROM t WHERE n = (SELECT max(m) FROM u)", "a query inside an expression"),
    ("SELECT n FROM t WHERE sum(n) > 1", "write the condition in HAVING"),
    ("SELECT k, n, count(*) AS c FROM t GROUP BY k", "line 1, column 11: the column 'n' is neither in GROUP BY"),
    ("SELECT k, sum(max(n)) AS c FROM t GROUP BY k", "an aggregate cannot be inside an aggregate"),
    ("SELECT k, nn FROM t GROUP BY k", "there is no column 'nn'"),
    ("SELECT count(*) AS c FROM t GROUP BY 3", "there is no column 3"),
    ("SELECT grouping(k) AS g, count(*) AS c FROM t GROUP BY k", "behind ROLLUP, CUBE and GROUPING SETS only"),
    ("SELECT grouping(n) AS g, count(*) AS c FROM t GROUP BY ROLLUP (k)", "takes one of the keys"),
    ("SELECT count(*) AS c FROM t GROUP BY ROLLUP (k, window(ts, '1 minute'))", "a window is in each of the sets"),
    ("SELECT session_window(ts, '1 minute') AS w FROM t", "write it in GROUP BY"),
    ("SELECT explode(k) AS e FROM t", "explode takes an array or a map"),
    ("SELECT e FROM t LATERAL VIEW posexplode(array(n)) v AS e", "makes 2 columns, and 1 names are given"),
    ("SELECT explode(array(n)) AS a, explode(array(k)) AS b FROM t", "write LATERAL VIEW for more"),
    ("SELECT n FROM t LATERAL VIEW upper(k) v AS e", "LATERAL VIEW of explode"),
    ("SELECT n FROM t WHERE n NOT IN (SELECT m FROM u)", "write NOT EXISTS"),
    ("SELECT n FROM t WHERE (n, k) NOT IN (SELECT m, k FROM u)", "write NOT EXISTS"),
    ("SELECT n FROM t WHERE (n, k) IN (SELECT m FROM u)", "line 1, column 24: IN takes a SELECT of the 2 columns that stand before it"),
    ("SELECT n FROM t WHERE (n, k) IN (SELECT * FROM u)", "the 2 columns that stand before it; name as many, and no"),
    ("SELECT n FROM t WHERE n IN (SELECT m, k FROM u)", "IN takes a SELECT of one column"),
    ("SELECT count(*) AS c FROM t GROUP BY window(ts, '1 minute'), window(ts, '2 minutes')", "two windows"),
    ("SELECT count(*) AS c FROM t GROUP BY window(ts, '1 fortnight')", "line 1, column 49: .*not a span"),
    ("SELECT count(*) AS c FROM t GROUP BY window(ts, n)", "no length of time"),
    ("SELECT count(*) AS c FROM t GROUP BY window(ts)", r"window\(time, size"),
    ("SELECT count(*) AS c FROM t GROUP BY window(ts + INTERVAL 1 SECOND, '1 minute')", "is over a column"),
    ("SELECT approx_count_distinct(DISTINCT n) AS c FROM t GROUP BY window(ts, '1 minute')", r"available in count\(DISTINCT x\)"),
    ("SELECT max(c) AS c FROM (SELECT k, count(*) AS c FROM t GROUP BY k)", "MAX.* of a running aggregate would have to know every"),
    ("SELECT c, count(*) AS n FROM (SELECT k, count(*) AS c FROM t GROUP BY k) GROUP BY c", "count every state of a running aggregate"),
    ("SELECT sum(c) AS c FROM (SELECT k, count(*) AS c FROM t GROUP BY k) WHERE c > 1", "count every state of a running"),
    ("SELECT sum(c) AS c FROM (SELECT k, count(*) AS c FROM t GROUP BY k HAVING count(*) > 1)", "count every state of a running"),
    ("SELECT k FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY n) AS p FROM t) WHERE p <= 1", "rank of every row would"),
    ("SELECT k FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n) AS p FROM t) WHERE p > 1", "or take the best: row_number"),
    ("SELECT k FROM (SELECT *, row_number() OVER (PARTITION BY k) AS p FROM t) WHERE p = 1", "needs ORDER BY"),
    ("SELECT p FROM (SELECT row_number() OVER (ORDER BY c) AS p, c FROM (SELECT k, count(*) AS c FROM t GROUP BY k)) WHERE p = 1", "every"),
    ("SELECT a.c FROM (SELECT k, count(*) AS c FROM t GROUP BY k) AS a JOIN u ON a.k = u.k", "a join would count every state"),
    ("SELECT 1 AS c FROM (SELECT session_window.end AS e FROM t GROUP BY session_window(ts, '1 minute')) GROUP BY e", "sessions of diff"),
    ("SELECT a.n FROM t AS a, u AS b", "a join of every row with every row"),
    ("SELECT k FROM t JOIN u ON t.k = u.k", "column 'k' is ambiguous: write t.k or u.k"),
    ("SELECT a.n FROM t AS a JOIN t AS a ON a.n = a.n", "two tables are called 'a'"),
    ("SELECT a.n FROM t AS a LEFT JOIN u AS b ON a.k = b.k", "could never come out"),
    ("SELECT k, avg(n) OVER (PARTITION BY k ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM t", "ORDER BY its column, ts"),
    ("SELECT k, avg(n) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW) AS a FROM t", "needs a number of rows"),
    ("SELECT k, lead(n) OVER (PARTITION BY k ORDER BY n) AS a FROM t", "ORDER BY its column, ts"),
    ("SELECT k, lead(n, k) OVER (PARTITION BY k ORDER BY ts) AS a FROM t", "a number of rows, and what it is"),
    ("SELECT lead(n) OVER (ORDER BY ts ROWS 1 PRECEDING) AS a FROM t", "lead has no frame"),
    ("SELECT k, lag(n, k) OVER (PARTITION BY k ORDER BY ts) AS a FROM t", "a fixed number of rows before"),
    ("SELECT k, lag(n, 1) OVER (PARTITION BY k ORDER BY n) AS a FROM t", "ORDER BY its column, ts"),
    ("SELECT lag(n) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM t", "lag has no frame"),
    ("SELECT lag(n) OVER (ORDER BY ts) AS a, lag(n) OVER (PARTITION BY k ORDER BY n) AS b FROM t", "ORDER BY its column, ts"),
    ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY n) AS a FROM t", "would change with every row"),
    ("WITH a AS (SELECT k FROM t), b AS (SELECT n FROM t WHERE n > 1) SELECT k FROM a", "nothing reads 'b'"),
    ("WITH RECURSIVE a AS (SELECT k FROM t) SELECT k FROM a", "WITH RECURSIVE"),
    ("SELECT a FROM (SELECT n FROM t) AS s (a, b)", "2 names for 1 columns"),
    ("CREATE TEMPORARY VIEW v AS SELECT n FROM t WHERE n > 1; SELECT k FROM u", "nothing reads 'v'"),
    ("CREATE TEMPORARY VIEW t AS SELECT n FROM t; SELECT n FROM t", "'t' is there already"),
    ("CREATE TABLE o AS SELECT n FROM t", "a table with a query"),
    ("CREATE TABLE o USING parquet", "needs the option 'path'"),
    ("CREATE TABLE o USING pulsar", "there is no sink USING pulsar; write USING console"),
    ("CREATE TABLE o USING console OPTIONS (lines 3)", "no option 'lines'; it has limit, stream"),
    ("SELECT FROM t", "line 1, column 13: SELECT has no columns; name some"),
    ("SELECT DISTINCT FROM t", "SELECT has no columns"),
    ("SELECT n FROM (SELECT FROM t)", "SELECT has no columns"),
    ("FROM t |> SELECT", "SELECT has no columns"),
    ("SELECT CAST(n AS DECIMAL(40, 2)) AS a FROM t", r"line 1, column 13: decimal\(40,2\) is not a decimal type: 1 <= precision <= 38"),
    ("SELECT CAST(n AS DECIMAL(5, 7)) AS a FROM t", r"decimal\(5,7\) is not a decimal type"),
    ("SELECT CAST(n AS DECIMAL(0, 0)) AS a FROM t", "is not a decimal type"),
    ("SELECT CAST(n AS DECIMAL(99999999999, 0)) AS a FROM t", "is not a decimal type"),
    ("SELECT CAST(n AS DECIMAL(12, k)) AS a FROM t", r"unknown type 'decimal\(12,K\)'"),
    ("SELECT CAST(n AS DECIMAL(3, 2, 1)) AS a FROM t", "unknown type"),
    ("SELECT sum() OVER (ORDER BY n) AS a FROM t", r"line 1, column 8: sum\(\) OVER takes a value; write sum\(x\)"),
    ("SELECT count() OVER (ORDER BY n) AS a FROM t", r"write count\(\*\)"),
    ("SELECT count(DISTINCT) AS a FROM t GROUP BY k", r"takes a value, as in count\(DISTINCT x\)"),
    ("SELECT count(DISTINCT) FILTER (WHERE n > 1) AS a FROM t", r"takes a value, as in count\(DISTINCT x\)"),
    ("FROM t |> SELECT n |> UNION ALL SELECT m FROM u", "line 1, column .*UNION, INTERSECT or EXCEPT stands in parentheses"),
    ("CREATE TABLE o USING console", "ends without a query"),
    ("CREATE TEMPORARY VIEW v USING nexmark OPTIONS (events 5, delay '1 second'); SELECT 1 AS a FROM v", "with event_time"),
    ("CREATE TEMPORARY VIEW v USING nexmark OPTIONS (stream 'bids'); SELECT 1 AS a FROM v", "column 23: .*no stream 'bids'"),
    ("CREATE TEMPORARY VIEW v (a INT) USING nexmark; SELECT a FROM v", "columns of its own"),
    ("INSERT INTO o SELECT n FROM t", "there is no sink 'o'; the sinks are none"),
    ("INSERT OVERWRITE o SELECT n FROM t", "write INSERT INTO"),
    ("DROP TABLE t", "DROP is not available"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[text[:60] for text, _ in REFUSED])
def test_what_cannot_run_on_a_stream_says_where_and_what_to_do(text: str, says: str) -> None:
    with pytest.raises(errors.QueryError, match=says):
        sql(text)


def test_a_window_needs_a_watermark() -> None:
    with pytest.raises(errors.QueryError, match=r"line 1, column 38: .*with_watermark"):
        sql("SELECT count(*) AS c FROM t GROUP BY window(ts, '1 minute')", watermarks=False)


def test_streams_of_two_dataflows_do_not_meet() -> None:
    with pytest.raises(errors.QueryError, match="of the dataflows"):
        ef.sql("SELECT n FROM t", {"t": streams()["t"], "u": streams()["u"]})
