"""Patterns as they are drawn and as SQL writes them: what they put out, and what is refused, with its place."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import ExpressionError, QueryError, TypeMismatch, UnknownColumn
from evenflow.query.matching import understood
from evenflow.query.network import Box
from evenflow.query.planner import layout
from evenflow.query.text import layout_text, network_text
from tests.query.networks import packets

DEFINE = {"big": "length > 2 * PREV(length)", "SMALL": "Small.length < 10"}
MEASURES = {"n": "count(*)", "bytes": "sum(BIG.length) + 1", "to": "big.dst", "started": "FIRST(ts)"}


def draw(stream: ef.Stream, **changed: Any) -> ef.Stream:
    arguments = {"pattern": "small+ (BIG | other){1,2}", "define": DEFINE, "measures": MEASURES, "within": "1 minute", **changed}
    return stream.group_by("src").pattern(**arguments)


@pytest.fixture
def rows() -> ef.Stream:
    return packets(ef.Dataflow("f"))


def test_a_match_is_its_key_its_bounds_and_its_measures(rows: ef.Stream) -> None:
    out = draw(rows)
    assert [(f.name, str(f.type)) for f in out.schema] == [
        ("src", "string"), ("match_start", "timestamp[us]"), ("match_end", "timestamp[us]"), ("n", "int64"), ("bytes", "int64"),
        ("to", "string"), ("started", "timestamp[us]"),
    ]  # fmt: skip
    assert out.event_time == "match_end"
    assert out.type.watermark_delay_us == 70_000_000
    assert out.late().columns == rows.columns
    assert rows.group_by().pattern("A", measures={"n": "count(*)"}, within=timedelta(seconds=1), name="one").box.name == "one"


def test_what_stands_behind_waits_for_matches(rows: ef.Stream) -> None:
    """A match may be put out when the watermark is as far ahead of its end as it may take, and goes to its key's partition again."""
    draw(rows).group_by("src").window("1 hour").agg(matches="count(*)").to(ef.sinks.discard())
    assert [arc.lag_us for arc in layout(rows.flow.network, sites=2).arcs] == [0, 60_000_000]


def test_a_drawn_pattern_survives_json_and_prints(rows: ef.Stream) -> None:
    draw(rows, skip="to next row", tie_break=["dst"]).to(ef.sinks.discard())
    loaded = ef.Dataflow.from_json(rows.flow.to_json())
    assert loaded.to_json() == rows.flow.to_json()
    text = network_text(loaded.network)
    assert "by src, small+ (BIG | other){1,2} within 1 min, skip to next row, big as length > 2 * PREV(length)" in text
    assert "bytes = sum(BIG.length) + 1" in text
    assert "pattern [pattern]" in layout_text(layout(loaded.network, sites=2))
    assert "<svg" in rows.flow.to_svg()


PATTERNS = [
    (" ", "write variables in the order of their rows"),
    ("A B*?", "'?' at 5 would make the quantifier reluctant, which is not available"),
    ("(A?)*", "'*' at 5 repeats what can be without a row"),
    ("A* B?", "matches without a row"),
    ("A & B", "'&' at 3 should be a variable"),
    ("A (B", "ends where there should be a closing parenthesis"),
    ("A)", "')' at 2 does not belong here"),
    ("A |", "ends where there should be a variable"),
    ("A{}", "has no number"),
    ("A{0}", "allows no row"),
    ("A{3,2}", "allows no row"),
    ("A{1000}", "'{1000}' at 2 is too large"),
    ("(A{16}){17}", "is too large; it may have 256 places"),
    ("^A", "'^' at 1 is not available"),
    ("{- A -}", "'{-' at 1 is not available"),
    ("PERMUTE(A, B)", "write the orders as alternatives"),
    (" ".join(f"V{i}" for i in range(64)), "has 64 variables; it may have 63"),
    (None, "the pattern is None"),
]


@pytest.mark.parametrize(("pattern", "says"), PATTERNS, ids=[str(pattern)[:20] for pattern, _ in PATTERNS])
def test_what_is_no_pattern_says_where(rows: ef.Stream, pattern: str, says: str) -> None:
    with pytest.raises(QueryError, match=f"box 'pattern': .*{re.escape(says)}"):
        draw(rows, pattern=pattern, define={}, measures={"n": "count(*)"})


REFUSED: list[tuple[dict[str, Any], type[QueryError], str]] = [
    ({"define": {"C": "length > 1"}}, QueryError, "'C' is defined, but it is not in the pattern; its variables are SMALL, BIG, OTHER"),
    ({"define": {"BIG": "true", "big": "true"}}, QueryError, "'big' is defined twice"),
    ({"define": {"BIG": "sum(BIG.length) < 10", "big": "count(BIG.*) < 3"}}, QueryError, "'big' is defined twice"),
    ({"define": {"BIG": "sum(BIG.length) < 10", "big": "length > 1"}}, QueryError, "'big' is defined twice"),
    ({"define": {"BIG": "length"}}, TypeMismatch, "the condition of BIG, 'length', is int32, not boolean"),
    ({"define": {"BIG": "size > 1"}}, UnknownColumn, "the condition of BIG, 'size > 1', is wrong: there is no column 'size'"),
    ({"define": {"BIG": "length >"}}, ExpressionError, "the condition of BIG, 'length >', is wrong: cannot read"),
    ({"define": {"BIG": "length > TINY.length"}}, ExpressionError, "reads TINY.length; it may read its own row, PREV of it, and"),
    ({"define": {"BIG": "stddev(SMALL.length) > 1"}}, ExpressionError, "has STDDEV(SMALL.length); of a match so far there are count, sum,"),
    ({"define": {"BIG": "LAST(SMALL.length, -1) > 1"}}, ExpressionError, "how many rows back last looks is a whole number, 100 at most"),
    ({"define": {"BIG": "FIRST(SMALL.length, 101) > 1"}}, ExpressionError, "how many rows back first looks is a whole number, 100"),
    ({"define": {"BIG": "sum(length, 1) > 1"}}, ExpressionError, "sum takes one argument here"),
    ({"define": {"BIG": "sum(SMALL.length + BIG.length) > 1"}}, ExpressionError, "mixes rows of different variables"),
    ({"define": {"BIG": "sum(PREV(length)) > 1"}}, ExpressionError, "an aggregate takes an expression over one row"),
    ({"define": {"BIG": "count(DISTINCT length) > 1"}}, ExpressionError, "an aggregate takes an expression over one row"),
    ({"define": {"BIG": "sum(length) FILTER (WHERE proto = 6) > 1"}}, ExpressionError, "FILTER, OVER and IGNORE NULLS are not available"),
    ({"define": {"BIG": "PREV(LAST(length, 1)) > 1"}}, ExpressionError, "PREV is of the own row: write LAST with an offset"),
    ({"define": {"BIG": "sum(length)"}}, TypeMismatch, "the condition of BIG, 'sum(length)', is int64, not boolean"),
    ({"define": {"BIG": "sum(dst) > 1"}}, TypeMismatch, "sum needs a number"),
    ({"define": {"BIG": "NEXT(length) > 1"}}, ExpressionError, "has NEXT(length)"),
    ({"define": {"BIG": "PREV(length, 2) > 1"}}, ExpressionError, "PREV takes one expression, of the row before"),
    ({"define": {"BIG": "PREV(3) > 1"}}, ExpressionError, "name a column of the row before"),
    ({"define": {"BIG": "PREV(PREV(length)) > 1"}}, ExpressionError, "PREV of PREV is not available"),
    ({"define": {"BIG": "PREV(SMALL.length) > 1"}}, ExpressionError, "reads SMALL.length"),
    ({"define": {"BIG": "PREV(size) > 1"}}, UnknownColumn, "there is no column 'size'"),
    ({"measures": {}}, QueryError, "has no measures; name at least one"),
    ({"measures": {"x": "sum(C.length)"}}, ExpressionError, "but C is not in the pattern; its variables are SMALL, BIG, OTHER"),
    ({"measures": {"x": "sum(BIG.length - SMALL.length)"}}, ExpressionError, "mixes rows of different variables"),
    ({"measures": {"x": "sum(max(length))"}}, ExpressionError, "an aggregate takes an expression over one row"),
    ({"measures": {"x": "count(DISTINCT length)"}}, ExpressionError, "an aggregate takes an expression over one row"),
    ({"measures": {"x": "last(length, 1)"}}, ExpressionError, "last takes one argument here"),
    ({"measures": {"x": "sum(*)"}}, ExpressionError, "has sum(*); name a column"),
    ({"measures": {"x": "sum(dst)"}}, TypeMismatch, "sum needs a number"),
    ({"measures": {"x": "MATCH_NUMBER(1)"}}, ExpressionError, "has MATCH_NUMBER(1), which is not available"),
    ({"define": {"BIG": "MATCH_NUMBER() > 1"}}, ExpressionError, "has MATCH_NUMBER(); rows are judged when they come"),
    ({"measures": {"x": "CLASSIFIER(BIG)"}}, ExpressionError, "has CLASSIFIER(BIG), which is not available"),
    ({"rows": "each"}, QueryError, "rows is 'each'; it must be 'one', one row per match, 'all', all of its rows, or 'with"),
    ({"rows": "all", "measures": {"length": "count(*)"}}, QueryError, "two columns called 'length'"),
    ({"measures": {"x": "sum(length) FILTER (WHERE proto = 6)"}}, ExpressionError, "FILTER, OVER and IGNORE NULLS are not available"),
    ({"measures": {"x": "size"}}, UnknownColumn, "there is no column 'size'"),
    ({"measures": {"x": "count(*) as y"}}, ExpressionError, "has a name twice; leave out AS"),
    ({"measures": {"match_end": "count(*)"}}, QueryError, "two columns called 'match_end'"),
    ({"within": "soon"}, QueryError, "box 'pattern'.*soon"),
    ({"within": "0 s"}, QueryError, "within is 0 microseconds; say how long a match may take"),
    ({"skip": "to last B"}, QueryError, "skip is 'to last B', but B is not in the pattern; its variables are SMALL, BIG, OTHER"),
    ({"skip": "back"}, QueryError, "skip is 'back'; it must be 'past last row', 'to next row', or of a variable 'to first other' or"),
    ({"tie_break": ["size"]}, UnknownColumn, "no column 'size'"),
]


@pytest.mark.parametrize(("changed", "kind", "says"), REFUSED, ids=[str(changed) for changed, _, _ in REFUSED])
def test_what_is_refused_says_what_to_do(rows: ef.Stream, changed: dict[str, Any], kind: type[QueryError], says: str) -> None:
    if "define" in changed:
        changed = {"measures": {"n": "count(*)"}, **changed}
    with pytest.raises(kind, match=says if ".*" in says else re.escape(says)) as found:
        draw(rows, **changed)
    assert type(found.value) is kind
    assert str(found.value).startswith("box 'pattern'")


def test_what_reads_the_row_alone_is_apart_from_what_reads_the_match() -> None:
    define = [
        ("B", "b.n > 3 AND (n > PREV(n) AND x < LAST(A.x, 1)) AND n > A.n"),
        ("A", "SUM(A.n) < 100 OR n > 1"),
        ("C", "n = 1 AND COUNT(A.*) + COUNT(a.*) > 2 AND x > PREV(x)"),
    ]
    found = understood(T, "A+ B C", define, [("n", "count(*)")])
    assert found.conditions == [(1, "(`n` > 3) AND (n > `_prev_n`)"), (2, "(n = 1) AND (x > `_prev_x`)")]
    assert found.tried == [
        (1, "(x < `_so_far0`) AND (n > `_so_far1`)"), (0, "(`_so_far2` < 100 OR n > 1)"), (2, "(`_so_far3` + `_so_far3` > 2)"),
    ]  # fmt: skip
    calls = [(call.function, call.variable, call.argument, call.offset) for call in found.so_far.values()]
    assert calls == [("last", 0, "`x`", 1), ("last", 0, "`n`", 0), ("sum", 0, "`n`", 0), ("count", 0, None, 0)]
    assert found.tried_read == ("x", "n")
    (odd,) = understood(T.append(pa.field("_so_far0", pa.int64())), "A", [("A", "max(n) > 1")], [("n", "count(*)")]).so_far
    assert odd == "__so_far0"


def test_a_pattern_needs_event_time() -> None:
    with pytest.raises(QueryError, match="needs a watermark; add .with_watermark"):
        draw(packets(ef.Dataflow("f"), watermark=False))


# ---------------------------------------------------------------- SQL

T = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
CLAUSES = {
    "select": "*", "from": "t", "partition": "PARTITION BY k", "order": "ORDER BY ts", "alias": "AS m",
    "measures": "MEASURES FIRST(A.n) AS a, LAST(ts) AS ended, FINAL COUNT(B.*) AS bs, B.X",
    "rows": "ONE ROW PER MATCH", "after": "AFTER MATCH SKIP PAST LAST ROW", "pattern": "PATTERN (A B+ (C | D){1,3})",
    "within": "WITHIN INTERVAL '10' MINUTES", "define": "DEFINE B AS b.N > PREV(B.n), C AS x < 1",
}  # fmt: skip


def sql(**changed: str) -> ef.Stream:
    flow = ef.Dataflow("q")
    given = {"t": flow.source(ef.sources.memory([], 2, schema=T), name="t_rows").with_watermark("ts", "1 second")}
    c = {**CLAUSES, **changed}
    inside = "\n".join(c[name] for name in ("partition", "order", "measures", "rows", "after", "pattern", "within", "define"))
    return ef.sql(f"SELECT {c['select']} FROM {c['from']} MATCH_RECOGNIZE (\n{inside}\n) {c['alias']}", given)


def pattern_box(stream: ef.Stream) -> Box:
    (box,) = stream.flow.network.of_kind("pattern")
    return box


def test_match_recognize_is_a_pattern() -> None:
    out = sql()
    assert [(f.name, str(f.type)) for f in out.schema] == [
        ("k", "string"), ("a", "int64"), ("ended", "timestamp[us]"), ("bs", "int64"), ("X", "double"),
    ]  # fmt: skip
    assert out.event_time == "ended", "the last row's time is the event time of the match"
    params = pattern_box(out).params
    assert (params["keys"], params["pattern"], params["within_us"]) == (("k",), "A B+ (C | D){1,3}", 600_000_000)
    assert (params["skip"], params["tie_break"]) == ("past last row", None)
    assert [variable for variable, _ in params["define"]] == ["B", "C"]
    assert [name for name, _ in params["measures"]] == ["a", "bs", "X"]


def test_all_rows_of_a_match_have_their_columns_and_measures_so_far(rows: ef.Stream) -> None:
    out = draw(rows, rows="all", measures={"n": "FINAL count(*)", "what": "classifier()"})
    assert out.columns == [*rows.columns, "match_start", "match_end", "n", "what"]
    assert (out.event_time, out.type.watermark_delay_us) == ("ts", 70_000_000)
    assert draw(rows, rows="all", measures={}, name="bare").columns == [*rows.columns, "match_start", "match_end"]
    assert "all rows of a match" in network_text(out.flow.network)
    left = sql(rows="ALL ROWS PER MATCH WITH UNMATCHED ROWS", measures="MEASURES MATCH_NUMBER() AS nr, FINAL LAST(ts) AS ended")
    assert pattern_box(left).params["rows"] == "with unmatched" and left.schema.field("nr").type == pa.int64()
    said = sql(rows="ALL ROWS PER MATCH", measures="MEASURES FIRST(A.n) AS a, LAST(ts) AS ended, FINAL COUNT(B.*) AS bs, B.X AS bx")
    assert (said.columns, said.event_time) == (["ts", "k", "n", "x", "a", "ended", "bs", "bx"], "ts")
    params = pattern_box(said).params
    assert params["rows"] == "all" and ("bs", "FINAL COUNT(B.*)") in params["measures"]


def test_clauses_that_may_be_left_out_or_say_more() -> None:
    short = sql(rows="", after="", define="", alias="", measures="", select="k")
    assert pattern_box(short).params["measures"] == (("_rows", "count(*)"),)
    more = sql(
        partition="PARTITION BY k, n % 2", order="ORDER BY ts, n", after="AFTER MATCH SKIP TO NEXT ROW", select="m.a + 1 AS a, m.bs",
        alias="AS m WHERE m.bs > 1",
    )  # fmt: skip
    assert more.columns == ["a", "bs"]
    params = pattern_box(more).params
    assert (params["keys"], params["tie_break"], params["skip"]) == (("k", "_key0"), ("n",), "to next row")
    skips = {"FIRST b": "to first B", "LAST c": "to last C", "b": "to last B"}
    for text, skip in skips.items():
        assert pattern_box(sql(after=f"AFTER MATCH SKIP TO {text}")).params["skip"] == skip
    renamed = sql(measures="MEASURES last(A.y) AS y", define="DEFINE A AS p.y > 3", **{"from": "(SELECT ts, k, n + 1 AS y FROM t) AS p"})
    assert renamed.columns == ["k", "y"]


SQL_REFUSED: list[tuple[dict[str, str], str]] = [
    (
        {"rows": "ALL ROWS PER MATCH OMIT EMPTY MATCHES"},
        "line 5, column 1: .* OMIT EMPTY MATCHES is not available; write ONE ROW PER MATCH or ALL ROWS PER MATCH or ALL",
    ),
    ({"rows": "ALL ROWS PER MATCH", "measures": "MEASURES count(*) AS n"}, "the measure 'n' has the name of a column of the rows"),
    ({"after": "AFTER MATCH SKIP TO LAST E"}, "line 6, column 1: .*'to last E', but E is not in the pattern; its variables are A, B, C, D"),
    ({"after": "AFTER MATCH SKIP 3 ROWS"}, "line 6, column 1: AFTER MATCH SKIP 3 ROWS is not available; .* SKIP TO LAST D"),
    ({"pattern": "", "within": ""}, "MATCH_RECOGNIZE has no PATTERN"),
    ({"pattern": "PATTERN (A B"}, "line .*cannot read the SQL text"),
    ({"pattern": "PATTERN ()"}, "line 7, column 9: the pattern is ''"),
    ({"pattern": "PATTERN (A B*?)"}, "line 7, column 9: the pattern 'A B.*reluctant"),
    ({"within": ""}, "line 7, column 9: a pattern on a stream needs a bound in time.*WITHIN INTERVAL"),
    ({"within": "WITHIN 3"}, "line 8, column 8: '3' is no length of time"),
    ({"order": "ORDER BY n"}, "line 1, column 17: .* MATCH_RECOGNIZE must say ORDER BY its column, ts, ascending"),
    ({"order": ""}, "must say ORDER BY its column, ts"),
    ({"order": "ORDER BY ts, n DESC"}, "ORDER BY takes columns, ascending"),
    ({"partition": "PARTITION BY y"}, "line 2, column 14: there is no column 'y'"),
    ({"partition": "", "measures": ""}, "puts out no column"),
    ({"define": "DEFINE B AS STDDEV(A.n) > 1"}, "line 9, column 8: the condition of B.*of a match so far there are count, sum, avg"),
    ({"define": "DEFINE B AS n > 1, B AS n > 2"}, "line 9, column 20: B is defined twice"),
    ({"define": "DEFINE B AS y > 1"}, "line 9, column 13: there is no column 'y'"),
    ({"define": "SUBSET U = (A, B) DEFINE B AS n > 1"}, "line 9, column 1: cannot read the SQL text: SUBSET is not available"),
    ({"define": "DEFINE B"}, "line 9, column 8: DEFINE takes conditions of variables"),
    ({"define": "DEFINE E AS n > 1"}, "line 9, column 8: 'E' is defined, but it is not in the pattern"),
    ({"measures": "MEASURES COUNT(*)"}, "line 4, column 10: the measure .* has no name; write"),
    ({"measures": "MEASURES E.n AS e"}, "line 4, column 10: there is no column 'E.n'"),
    ({"measures": "MEASURES NEXT(n) AS e"}, "the measure 'e'.*NEXT.*is not available"),
    ({"measures": "MEASURES n AS a, n AS a"}, "line 4, column 18: two measures are called 'a'"),
    ({"from": "t AS p JOIN t AS q ON p.k = q.k AND p.ts = q.ts"}, "MATCH_RECOGNIZE behind a join; write the join in a query inside"),
    ({"from": "(SELECT k, count(*) AS n FROM t GROUP BY k)"}, "MATCH_RECOGNIZE would count every state of a running aggregate"),
]


@pytest.mark.parametrize(("changed", "says"), SQL_REFUSED, ids=[str(changed) for changed, _ in SQL_REFUSED])
def test_what_is_not_available_says_where(changed: dict[str, str], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        sql(**changed)
