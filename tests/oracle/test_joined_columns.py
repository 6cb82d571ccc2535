"""Columns that streams and DataFrames were asked for say in a join, and behind it, whose they are: as in PySpark, by batch Spark.

A column `name` is taken as `b["name"]`: streams have a method of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import NotPortable, QueryError
from evenflow.testing import run, source

pytestmark = pytest.mark.oracle

ORDERS = "k bigint, v bigint, ts timestamp"
SHOPS = "k bigint, v bigint, name string, ts timestamp"


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


LEFT = [(1, 10, at(0)), (1, 11, at(1)), (2, 12, at(2)), (3, 13, at(3)), (None, 14, at(4))]
RIGHT = [(1, 20, "one", at(0)), (2, 21, "two", at(2)), (2, 12, "twelve", at(2)), (4, 23, "four", at(4)), (None, 24, "none", at(4))]

Draw = Callable[[Any, Any, Any], Any]


def streams(draw: Draw, table: Any = None) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    flow = ef.Dataflow("joined")
    orders = flow.source(source(ORDERS), name="orders").with_watermark("ts", "1 minute")
    given = {"orders": LEFT}
    if table is None:
        table = flow.source(source(SHOPS), name="shops").with_watermark("ts", "1 minute")
        given |= {"shops": RIGHT}
    draw(orders, table, F).to(ef.sinks.discard(), name="out")
    return run(flow, given).rows()


def frames(spark: Any, draw: Draw) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    made = draw(spark.createDataFrame(LEFT, ORDERS), spark.createDataFrame(RIGHT, SHOPS), F)
    return [row.asDict() for row in made.collect()]


def plain(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(dict(sorted(row.items()))) for row in rows)


def inner(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, (a.k == b.k) & (a.ts == b.ts)).select(a.k, a.v, b["name"], (b.v + a["v"]).alias("sum"))


def several(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, [a.k == b.k, b.ts == a.ts, a.v < b.v], "left").select(a.v, b["name"], b.v.alias("theirs"))


def nobody(a: Any, b: Any, F: Any) -> Any:
    """The idiom for rows without a partner."""
    return a.join(b, (b.k == a.k) & (a.ts == b.ts), "left").where(b.k.isNull()).select(a.k, a.v)


def dropped(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, (a.k == b.k) & (a.ts == b.ts)).drop(b.k).drop(b["v"]).drop(b.ts)


def of_a_step_before(a: Any, b: Any, F: Any) -> Any:
    """Columns of streams that those which are joined come from."""
    chosen, renamed = a.where(a.v > 10), b.where(b["name"] != "one")
    return chosen.join(renamed, (a.k == b.k) & (chosen.ts == renamed.ts), "left").select(a.v, b.k, renamed["name"])


def grouped(a: Any, b: Any, F: Any) -> Any:
    made = a.join(b, (a.k == b.k) & (a.ts == b.ts), "left")
    return made.select(a.v, b.k.alias("theirs"), b.v.alias("w")).select("theirs", F.coalesce("w", F.lit(0)).alias("w"))


def semi(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, (a.k == b.k) & (a.ts == b.ts) & (a.v < b.v), "left_semi")


def anti(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, (a.k == b.k) & (a.ts == b.ts), "left_anti")


def aliases(a: Any, b: Any, F: Any) -> Any:
    made = a.alias("o").join(b.alias("s"), (F.col("o.k") == F.col("s.k")) & (F.col("o.ts") == F.col("s.ts")), "left")
    return made.where("s.v > 20 or s.k is null").select("o.k", "o.v", F.col("s.name"), (F.col("s.v") + F.col("o.v")).alias("sum"))


def aliases_in_text(a: Any, b: Any, F: Any) -> Any:
    """The example of Spark's guide, with qualifiers."""
    made = a.alias("o").join(b.alias("s"), F.expr("o.k = s.k AND s.ts >= o.ts AND s.ts <= o.ts + interval 2 seconds"), "leftOuter")
    return made.selectExpr("o.k", "s.v AS theirs", "coalesce(s.name, 'none') AS name").where("theirs <> 12 or theirs is null")


def aliases_further_on(a: Any, b: Any, F: Any) -> Any:
    made = a.where("v > 10").alias("o").join(b.alias("s"), F.expr("o.k = s.k AND o.ts = s.ts"))
    counted = made.where("o.v < s.v").withColumn("twice", F.col("s.v") * 2)
    return counted.select("twice", F.to_json(F.struct("o.k", "s.v")).alias("p"), "s.name", (F.col("o.k") + 1).alias("next"))


def alias_of_one_stream(a: Any, b: Any, F: Any) -> Any:
    return a.alias("o").where("o.v > 10 AND o.k IS NOT NULL").select("o.v", F.upper("o.k").alias("k"))


@pytest.mark.parametrize(
    "draw",
    [
        inner, several, nobody, dropped, of_a_step_before, grouped, semi, anti, aliases, aliases_in_text, aliases_further_on,
    ],
)  # fmt: skip
def test_of_two_streams(spark: Any, draw: Draw) -> None:
    assert plain(streams(draw)) == plain(frames(spark, draw))


def field_of_a_structure(a: Any, b: Any, F: Any) -> Any:
    return a.alias("o").select("o.v", F.struct("k", "ts").alias("o")).where("o.k > 0").select("v", "o.k")


@pytest.mark.parametrize("draw", [alias_of_one_stream, field_of_a_structure])
def test_of_one_stream(spark: Any, draw: Draw) -> None:
    assert plain(streams(draw, table=False)) == plain(frames(spark, draw))


def named(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, a.k == b.k).select(a.k, b["name"], b.v.alias("theirs"))


def missing(a: Any, b: Any, F: Any) -> Any:
    return a.join(b, a.k == b.k, "left").where(b.k.isNull()).select(a.v, "name")


def alias_of_a_frame(a: Any, b: Any, F: Any) -> Any:
    made = a.alias("o").join(F.broadcast(b.alias("s")), F.expr("o.k = s.k AND s.v > o.v"), "left")
    return made.where(F.col("s.k").isNull() | (F.col("s.name") == "one")).select("o.v", "s.name", "s.k")


@pytest.mark.parametrize("refreshed", [False, True])
@pytest.mark.parametrize("draw", [named, missing, alias_of_a_frame])
def test_of_a_stream_and_a_frame(spark: Any, draw: Draw, refreshed: bool) -> None:
    table = spark.createDataFrame(RIGHT, SHOPS)
    assert plain(streams(draw, table)) == plain(frames(spark, draw))
    if refreshed:
        flow = ef.Dataflow("refreshed")
        orders = flow.source(source(ORDERS), name="orders")
        joined = orders.join(flow.table(table, "shops", key=None), orders.k == table.k)
        assert joined.columns == ["k", "v", "ts", "k_right", "v_right", "name", "ts_right"]
        assert joined.select(table.v).box.params["columns"] == (("v", "v_right"),)


def test_with_itself(spark: Any) -> None:
    """Spark takes both columns for the left's there, and warns; here the one that is joined is meant."""
    flow = ef.Dataflow("itself")
    rows = flow.source(source(ORDERS), name="rows").with_watermark("ts", "1 minute")
    later = rows.where(rows.v > 11)
    joined = rows.join(later, (rows.k == later.k) & (rows.ts == later.ts))
    assert joined.columns == ["k", "v", "ts", "k_right", "v_right", "ts_right"]
    assert joined.select(rows.v, later.v.alias("w")).box.params["columns"] == (("v", "v"), ("w", "v_right"))


def test_names_of_boxes_are_no_expressions(spark: Any) -> None:
    rows = ef.Dataflow("names").source(source(ORDERS), name="rows").alias("s").where("s.v > 1", name="hosts.big!")
    assert rows.box.name == "hosts.big!"


def test_what_has_no_side_is_named(spark: Any) -> None:
    from pyspark.sql import functions as F

    flow = ef.Dataflow("sides")
    a = flow.source(source(ORDERS), name="a").with_watermark("ts", "1 minute")
    b = flow.source(source(SHOPS), name="b").with_watermark("ts", "1 minute")
    with pytest.raises(QueryError, match=r"both sides have a column 'k'; say whose it is, as in a.join\(b, a.k == b.k\)"):
        a.join(b, (F.col("k") == F.col("k")) & (a.ts == b.ts))
    with pytest.raises(NotPortable, match="no join has brought a column 'k' of a DataFrame into this stream"):
        a.where(spark.createDataFrame(RIGHT, SHOPS).k > 1)
    for wrong, why in (
        ("a.alias('1')", "cannot go before names"), ("a.alias('x').join(b, F.expr('y.k = x.k'))", "'y.k': the sides of a join"),
        ("a.alias('x').join(b.alias('x'), F.expr('x.k = x.v'))", "both sides have something called x"),
        ("a.alias('x').select('x.nope')", "there is no column x.nope here"),
        ("a.alias('x').select('v').select('x.k')", "there is no column x.k here"),
        ("a.alias('x').join(a.alias('y'), F.expr('x.k = y.k AND x.ts = y.ts')).select('y.k')", "y.k could be k or k_right"),
    ):  # fmt: skip
        with pytest.raises(QueryError, match=why):
            eval(wrong, {"a": a, "b": b, "F": F})
    frame = spark.createDataFrame(RIGHT, SHOPS)
    twice = a.join(frame, a.k == frame.k).join(frame.select("k", "name"), a.k == frame.k, suffix="_again")
    with pytest.raises(NotPortable, match="several joins have brought a column 'k' of a DataFrame"):
        twice.where(frame.k > 1)
