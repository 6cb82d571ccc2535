"""Messages name what is wrong, and not what is right beside it; advice is not what was written."""

from __future__ import annotations

import pytest

import evenflow as ef
from evenflow.errors import EvenflowError


def stream() -> ef.Stream:
    return ef.Dataflow("told").source(ef.sources.packets(rows=10), name="g").with_watermark("ts", "1 second")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT src, foo(length) AS f FROM g GROUP BY src", "there is no function or aggregate 'foo'; the aggregates are approx_count"),
        ("SELECT src, hll_sketch_agg(length) AS p FROM g GROUP BY src", "no function or aggregate 'hll_sketch_agg'"),
        ("SELECT src, abs(length) AS p FROM g GROUP BY src", "the column 'length' is neither in GROUP BY nor inside an aggregate"),
        (
            "SELECT src FROM g WHERE src IN (SELECT src FROM g GROUP BY src HAVING count(*) > 1)",
            r"IN takes a SELECT with FROM and WHERE here; name another query with WITH",
        ),
        ("SELECT src FROM g WHERE count(*) > 1", "an aggregate cannot be in WHERE; write the condition in HAVING"),
        (
            "SELECT sum(length) OVER (PARTITION BY src ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM g",
            "all rows that follow would be waited for",
        ),
    ],
)
def test_sql_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(EvenflowError, match=says):
        ef.sql(text, streams={"g": stream()})


def test_an_aggregate_with_two_names() -> None:
    with pytest.raises(EvenflowError, match=r"'n' has two names; write agg\(n='COUNT\(\*\)'\), or agg\('count\(\*\) as m'\)"):
        stream().group_by("src").agg(n="count(*) as m")


def test_several_columns_to_order_by_are_a_list() -> None:
    with pytest.raises(EvenflowError, match=r"several as a list, such as \['length desc', 'src'\]"):
        stream().group_by("src").window("1 minute").top(3, order_by="length desc, src")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("window(ts, '1 minute')", r"behind the keys, group_by\(\.\.\.\)\.window\('1 minute'\), or in a query of ef\.sql"),
        ("session_window(ts, '1 minute').start", r"behind the keys, group_by\(\.\.\.\)\.session\("),
        ("windo_start(ts)", r"there is no function 'windo_start'(?!.*_window_start)"),
    ],
)
def test_a_window_in_an_expression_by_itself_is_told_where_it_is_said(text: str, says: str) -> None:
    with pytest.raises(EvenflowError, match=says):
        stream().select("src", f"{text} as w")


def test_a_window_anywhere_in_a_query_is_what_the_message_promises() -> None:
    made = ef.sql("SELECT src, window(ts, '1 minute').start AS w FROM g", streams={"g": stream()})
    assert made.schema.names == ["src", "w"]
