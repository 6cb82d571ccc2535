"""Stars as arguments of functions, and what columns are called that were given no name."""

from __future__ import annotations

from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch
from evenflow.query.builder import Stream
from evenflow.testing import run

SCHEMA = "k bigint, v double, s string, at timestamp_ntz"
ROWS = [
    {"k": 1, "v": 1.5, "s": "a", "at": "2026-01-01 10:00:01"},
    {"k": 1, "v": 0.5, "s": None, "at": "2026-01-01 10:00:02"},
    {"k": 2, "v": 2.5, "s": "b", "at": "2026-01-01 10:01:01"},
]
JSON = [
    '{"k":1,"v":1.5,"s":"a","at":"2026-01-01T10:00:01.000"}', '{"k":1,"v":0.5,"at":"2026-01-01T10:00:02.000"}',
    '{"k":2,"v":2.5,"s":"b","at":"2026-01-01T10:01:01.000"}',
]  # fmt: skip


def stream() -> Stream:
    flow = ef.Dataflow("stars")
    return flow.source(ef.sources.tcp_lines("nowhere.invalid", 9092, schema=SCHEMA), name="t").with_watermark("at", "1 second")


def rows(made: Stream) -> list[Any]:
    made.to(ef.sinks.memory(), name="out")
    found: list[dict[str, Any]] = run(made.flow, {"t": ROWS}).rows("out")
    return found


def sql(text: str) -> list[Any]:
    return rows(ef.sql(text, {"t": stream()}))


@pytest.mark.parametrize("star", ["*", "t.*"])
def test_a_star_among_arguments_is_all_columns(star: str) -> None:
    assert [row["j"] for row in sql(f"SELECT to_json(struct({star})) AS j FROM t")] == JSON
    assert len({row["h"] for row in sql(f"SELECT hash({star}) AS h FROM t")}) == 3
    assert [row["s"]["one"] for row in sql(f"SELECT struct({star}, 1 AS one) AS s FROM t WHERE hash({star}) IS NOT NULL")] == [1, 1, 1]


def test_in_the_builder_too() -> None:
    assert [row["j"] for row in rows(stream().select("to_json(struct(*)) as j"))] == JSON
    assert [row["j"] for row in rows(stream().with_columns(j="to_json(struct(*))"))] == JSON
    fields = stream().select("struct(k, v) as p", "s").select(q="struct(p.*, s)")
    assert next(row["q"] for row in rows(fields)) == {"k": 1, "v": 1.5, "s": "a"}
    with pytest.raises(TypeMismatch, match=r"s\.\*: s is string, and has no fields"):
        stream().select(q="struct(s.*)")


def test_of_structures_it_is_the_fields_and_some_may_be_left_out() -> None:
    assert sql("SELECT struct(p.*) AS q FROM (SELECT struct(k, s) AS p FROM t)")[1]["q"] == {"k": 1, "s": None}
    assert sql("SELECT struct(* EXCEPT (at, v)) AS q FROM t")[1]["q"] == {"k": 1, "s": None}
    with pytest.raises(QueryError, match="there is no table 'x' in FROM"):
        sql("SELECT struct(x.*) AS q FROM t")


def test_aggregates_of_stars() -> None:
    """count(*) is of rows, count(t.*) of those in which nothing is null."""
    found = sql("SELECT k, count(*) AS n, count(t.*) AS m, max_by(struct(*), at) AS newest FROM t GROUP BY k, window(at, '1 hour')")
    assert {row["k"]: (row["n"], row["m"], row["newest"]["v"]) for row in found} == {1: (2, 1, 0.5), 2: (1, 1, 2.5)}
    assert [row["n"] for row in sql("SELECT count(DISTINCT *) AS n FROM t GROUP BY window(at, '1 hour')")] == [2]
    by_hash = sql("SELECT hash(*) % 1 AS b, count(*) AS n FROM t GROUP BY hash(*) % 1, window(at, '1 hour')")
    assert [(row["b"], row["n"]) for row in by_hash] == [(0, 3)]


def test_aggregates_that_are_made_of_others_are_called_as_they_were_written() -> None:
    text = """SELECT k, max_by(s, v), min_by(s, v), bool_or(v > 1), mode(s) FILTER (WHERE v > 1),
        listagg(s, ',') WITHIN GROUP (ORDER BY v), approx_percentile(v, 0.5) + 1 FROM t GROUP BY k, window(at, '1 hour')"""
    assert ef.sql(text, {"t": stream()}).columns == [
        "k", "MAX_BY(s, v)", "MIN_BY(s, v)", "BOOL_OR(v > 1)", "MODE(s) FILTER(WHERE v > 1)", "LISTAGG(s, ',') WITHIN GROUP (ORDER BY v)",
        "APPROX_PERCENTILE(v, 0.5) + 1",
    ]  # fmt: skip


def test_the_time_of_a_window_that_a_query_inside_has_made() -> None:
    inner = "SELECT k, window, count(*) AS n FROM t GROUP BY k, window(at, '1 minute')"
    found = sql(f"SELECT k, window.end AS ends, window_time(window) AS at FROM ({inner})")
    assert [(row["k"], str(row["ends"]), str(row["at"])) for row in found] == [
        (1, "2026-01-01 10:01:00", "2026-01-01 10:00:59.999999"), (2, "2026-01-01 10:02:00", "2026-01-01 10:01:59.999999"),
    ]  # fmt: skip
