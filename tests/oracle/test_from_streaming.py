"""A ported streaming query gives what Spark gives for the same query over all rows at once.

The parts that stay in Spark are run by Spark as streams; the boxes above them run in the simulator.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import NotPortable, QueryError
from evenflow.query.planner import layout
from evenflow.query.ported.tree import Plan
from evenflow.site.options import FlowOptions
from evenflow.sources.source import Source
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.bridge import analysed
from tests.oracle.running import assert_same_rows, newest_per_key
from tests.oracle.test_sql_script import T, U

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::UserWarning:pyspark", "ignore::FutureWarning:pyspark"),
]

F: Any = pytest.importorskip("pyspark.sql.functions")


@dataclass(frozen=True)
class Ported:
    """query: of the frames t and u, streams or not, and a table. newest: as in update mode, columns whose newest row counts. whole: as in
    complete mode, in which the last table counts."""

    query: Callable[[Any, Any, Any], Any]
    newest: tuple[str, ...] = ()
    whole: bool = False


def as_columns(name: str, fields: Sequence[str]) -> list[Any]:
    """A structure as a column for each field, since the rows are compared as plain ones."""
    return [F.col(f"`{name}`.`{field}`").alias(f"{name}_{field}") for field in fields]


def without_structures(table: pa.Table) -> pa.Table:
    """The same of Evenflow's rows."""
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_struct(column.type):
            columns |= {f"{name}_{field.name}": part for field, part in zip(column.type, column.flatten(), strict=True)}
        else:
            columns[name] = column
    return pa.table(columns)


def by_row(column: str) -> Any:
    """A gap that is another one for each row, and for some none."""
    return F.when(F.col(column) > 9, "3 seconds").when(F.col(column) > 2, F.concat(column, F.lit(" seconds")))


def timely(frame: Any) -> Any:
    return frame.withWatermark("ts", "1 minute")


def with_functions(t: Any, u: Any, table: Any) -> Any:
    """Python functions of values, a pandas function of columns and one of groups."""
    long = F.udf(lambda k, n: None if n is None else len(k) + n, "bigint")
    doubled = F.pandas_udf(twice_as_much, "double")
    spread = F.pandas_udf(spread_of, "double")
    rows = timely(t).where(F.udf(lambda n: n is not None and n > 1, "boolean")("n")).withColumn("long", long("k", "n"))
    return rows.groupBy(F.window("ts", "20 seconds"), "k").agg(spread("n").alias("s"), spread(doubled("long")).alias("d"))


def twice_as_much(n: pd.Series) -> pd.Series:
    return n * 2.0


def spread_of(n: pd.Series) -> float:
    return float(n.max() - n.min())


QUERIES = {
    "functions": Ported(with_functions),
    "stateless": Ported(lambda t, u, table: t.where("n > 3").selectExpr("k", "n * 2 AS twice")),
    "window": Ported(lambda t, u, table: timely(t).groupBy(F.window("ts", "10 seconds"), "k").agg(F.count("*").alias("c"), F.avg("x"))),
    "sliding": Ported(
        lambda t, u, table: (
            timely(t).where("n IS NOT NULL").groupBy("k", F.window("ts", "20 seconds", "5 seconds")).count().where("count > 2")
            .select("k", F.col("window.end").alias("e"), (F.col("count") + 1).alias("more"))
        )
    ),
    "a window under another name": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds").alias("w")).agg(F.max("x").alias("m")).withColumnRenamed("w", "v")
        )
    ),
    "sessions that grow, as a whole": Ported(
        lambda t, u, table: timely(t).groupBy("k", F.session_window("ts", "1 second")).agg(F.sum("n").alias("s")), whole=True
    ),
    "session": Ported(lambda t, u, table: timely(t).groupBy("k", F.session_window("ts", "1 second")).agg(F.sum("n").alias("s"))),
    "sessions with gaps of their own": Ported(
        lambda t, u, table: (
            timely(t).groupBy("k", F.session_window("ts", by_row("n"))).agg(F.count("*").alias("c"), F.max("ts").alias("m"))
        )
    ),
    "windows grouped again": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("n").alias("s")).groupBy("window").agg(F.max("s").alias("most"))
        )
    ),
    "windows over windows": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("n").alias("s"))
            .groupBy(F.window(F.window_time("window"), "1 minute", "20 seconds")).agg(F.max("s").alias("most"), F.count("*").alias("c"))
        )
    ),
    "a window of a window": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"), "k").count().where("count > 1")
            .groupBy(F.window("window", "30 seconds"), "k").count()
        )
    ),
    "join on windows": Ported(
        lambda t, u, table: (
            timely(t).select("k", F.window("ts", "10 seconds").alias("w"), "n")
            .join(timely(u).select(F.col("k"), F.window("ts", "10 seconds").alias("w"), "m"), ["k", "w"])
        )
    ),
    "join on windows over another time": Ported(
        lambda t, u, table: (
            timely(t).withColumn("w", F.window("ts", "10 seconds")).select("k", "w", "n", "ts")
            .join(
                timely(u).withColumn("at", F.expr("ts - INTERVAL 12 SECONDS")).withColumn("w", F.window("at", "10 seconds"))
                .select("k", "w", "m", F.col("ts").alias("sent")), ["k", "w"],
            )
        )
    ),
    "outer join on windows": Ported(
        lambda t, u, table: (
            timely(t).withColumn("w", F.window("ts", "5 seconds")).select("k", "w", "n")
            .join(timely(u).withColumn("w", F.window("ts", "5 seconds")).select("k", "w", "m"), ["k", "w"], "left_outer")
            .select("k", F.col("w.start").alias("s"), "n", "m")
        )
    ),
    "join of windows": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("n").alias("s"))
            .join(timely(u).groupBy(F.window("ts", "10 seconds"), "k").agg(F.max("m").alias("most")), ["window", "k"])
        )
    ),
    "a window as a column": Ported(lambda t, u, table: timely(t).where("n > 1").select("n", F.window("ts", "10 seconds").alias("w"))),
    "windows and times": Ported(
        lambda t, u, table: (
            timely(t).withColumn("w", F.window("ts", "9 seconds", startTime="3 seconds")).alias("a")
            .join(timely(u).withColumn("w", F.window("ts", "9 seconds", startTime="3 seconds")).alias("b"),
                  F.expr("a.k = b.k AND a.w = b.w"))
            .select("a.k", "n", "m", F.expr("b.ts - a.ts > INTERVAL 1 SECOND").alias("later"), F.col("a.w.end").alias("e"))
        )
    ),
    "structures": Ported(
        lambda t, u, table: (
            timely(t.withColumn("s", F.struct("k", F.struct("n").alias("in"))))
            .where("s.in.n > 1").groupBy("s", F.window("ts", "10 seconds"))

            .agg(F.max("x").alias("x"), F.min(F.struct("x", "n")).alias("least"))
            .select("s.k", F.col("s")["in"]["n"].alias("n"), "x", "least", "window")
        )
    ),
    "structures with other fields": Ported(
        lambda t, u, table: (
            timely(t.withColumn("in", F.when(F.col("n") > 4, F.struct("n", "x"))).withColumn("s", F.expr("if(n > 2, struct(k, in), null)")))
            .dropDuplicates(["k", "ts"])
            .select(F.col("s").withField("N", F.lit(1)).withField("in.x", F.col("n") + 1).withField("k", F.upper("s.k")).alias("more"),
                    F.col("s").dropFields("in.x", "k").alias("less"), F.col("s").withField("k", F.lit(None).cast("int")).alias("none"))
            .select(F.to_json("more").alias("more"), F.to_json("less").alias("less"), F.to_json("none").alias("none"))
        )
    ),
    "null where others fail": Ported(
        lambda t, u, table: (
            timely(t).dropDuplicates(["k", "ts"])
            .selectExpr("ts", "try_cast(k AS INT) AS none", "try_cast(right(k, 1) AS INT) AS digit", "cast(n AS STRING) AS n",
                        "transform(array(k, '7'), e -> try_cast(e AS BIGINT)) AS list", "n AS m")
            .where("try_cast(n AS INT) > 1 AND none IS NULL").groupBy(F.window("ts", "10 seconds"), "digit")
            .agg(F.expr("try_sum(if(m > 2, 9000000000000000000L, m))").alias("much"), F.sum("m").alias("little"), F.max("list").alias("l"),
                 F.try_avg("m").alias("a"), F.expr("try_sum(try_cast(n AS INT)) FILTER (WHERE digit > 0)").alias("f"))
        )
    ),
    "rows without nulls": Ported(
        lambda t, u, table: (
            timely(t.withColumn("y", F.expr("if(n > 5, double('NaN'), x)"))).dropDuplicates(["k", "ts"]).dropna(subset=["n", "y"])
            .groupBy(F.window("ts", "10 seconds"), "k").agg(F.count("*").alias("c")).dropna(thresh=1, subset=["k", "c"])
        )
    ),
    "lists and maps": Ported(
        lambda t, u, table: (
            timely(t).withColumn("l", F.array("n", F.lit(2))).withColumn("m", F.create_map(F.coalesce("k", F.lit("?")), "x"))
            .dropDuplicates(["l", "k"]).select(F.col("l")[1].alias("two"), F.size("l").alias("c"), F.element_at("m", "a").alias("a"),
                                               F.map_keys("m")[0].alias("key"), F.struct("k", "n").alias("s"))
            .select("two", "c", "a", "key", "s.*")
        )
    ),
    "decimals": Ported(
        lambda t, u, table: (
            timely(t).withColumn("d", F.expr("cast(n AS decimal(12,2))")).groupBy(F.window("ts", "10 seconds"), "k")
            .agg(F.sum("d").alias("s"), F.avg("d").alias("a"), F.sum(F.expr("d * d / 7")).alias("q"), F.max("d").alias("m"))
        )
    ),
    "window_time": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"), "k").count().select("k", F.window_time("window").alias("at"), "count")
        )
    ),
    "running": Ported(
        lambda t, u, table: t.groupBy((F.col("n") % 3).alias("r"), F.upper("k").alias("u")).agg(F.avg("x").alias("m"), F.min("n")),
        ("r", "u"),
    ),
    "whole windows": Ported(
        lambda t, u, table: (
            t.withWatermark("ts", "0 seconds").groupBy(F.window("ts", "20 seconds", "10 seconds", "3 seconds"), "k")
            .agg(F.sum("n").alias("s"), F.avg("x").alias("m")).where("s > 3")
        ),
        whole=True,
    ),
    "whole table": Ported(
        lambda t, u, table: t.groupBy("k").agg(F.count("*").alias("c"), F.max("x").alias("m")).orderBy(F.desc("c"), "k").limit(5),
        whole=True,
    ),
    "start of windows": Ported(lambda t, u, table: timely(t).groupBy(F.window("ts", "10 seconds", "5 seconds", "3 seconds"), "k").count()),
    "windows in update mode": Ported(
        lambda t, u, table: timely(t).groupBy(F.window("ts", "20 seconds", "10 seconds"), "k").agg(F.sum("n").alias("s")).where("s > 3"),
        ("k", "window_start"),
    ),
    "aggregates": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "20 seconds"))
            .agg(F.expr("count(n) FILTER (WHERE x > 0.5)").alias("f"), F.stddev("x").alias("d"), F.countDistinct("k").alias("ks"),
                 F.expr("coalesce(sum(n), 0) / count(*)").alias("mean"))
        )
    ),
    "aggregates of those of a condition": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "20 seconds"), "k")
            .agg(F.expr("max_by(n, x) FILTER (WHERE n < 4)").alias("m"), F.expr("min_by(n, x) FILTER (WHERE x > 0.5)").alias("l"),
                 F.expr("any_value(n) FILTER (WHERE n = 3)").alias("a"), F.expr("any_value(n - n, true)").alias("i"),
                 F.expr("percentile(n, 0.5, abs(n) % 3 + 1)").alias("p"), F.expr("percentile(x, 0.5) FILTER (WHERE n > 2)").alias("q"),
                 F.expr("count_if(x > 0.5) FILTER (WHERE n > 2)").alias("c"), F.expr("corr(n, x) FILTER (WHERE n > 2)").alias("r"))
        )
    ),
    "aggregates of many values": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "20 seconds"), "k")
            .agg(F.regr_slope("x", "n").alias("slope"), F.regr_avgx("x", "n").alias("avgx"), F.regr_r2("x", "n").alias("r2"),
                 F.regr_sxy("x", "n").alias("sxy"), F.mode(F.expr("n - n")).alias("mode"), F.listagg(F.expr("'z'")).alias("all"),
                 F.listagg(F.expr("left(k, 1)"), "-").alias("some"), F.expr("percentile_cont(0.25) WITHIN GROUP (ORDER BY x)").alias("p"),
                 F.expr("percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC)").alias("q"),
                 F.expr("percentile_disc(0.5) WITHIN GROUP (ORDER BY n) FILTER (WHERE n > 2)").alias("d"),
                 F.bitmap_construct_agg(F.bitmap_bit_position("n")).alias("bits"), F.sum_distinct("n").alias("sum"))
        )
    ),
    "dropDuplicates": Ported(lambda t, u, table: timely(t).select("k", "n").dropDuplicates()),
    "dropDuplicates of columns": Ported(lambda t, u, table: timely(t).select("k", "n", "ts").dropDuplicates(["k", "ts"]).select("ts", "k")),
    "join": Ported(
        lambda t, u, table: (
            timely(t).alias("a").join(timely(u).alias("b"), F.expr("a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 2 SECONDS"))
            .select("a.k", "n", "m", F.col("b.ts").alias("at"))
        )
    ),
    "outer join": Ported(
        lambda t, u, table: (
            timely(t).alias("a")
            .join(timely(u).alias("b"), F.expr("a.k = b.k AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL 1 SECOND"), "left_outer")
            .select("a.k", "n", "m")
        )
    ),
    "join, bounds with minus": Ported(
        lambda t, u, table: (
            timely(t).alias("a")
            .join(timely(u).alias("b"), F.expr("a.k = b.k AND a.ts >= b.ts - INTERVAL 2 SECONDS AND b.ts - a.ts >= INTERVAL '-1' SECOND"))
            .select("a.k", "n", "m", F.col("b.ts").alias("at"))
        )
    ),
    "outer join, bounds with minus": Ported(
        lambda t, u, table: (
            timely(t).alias("a")
            .join(timely(u).alias("b"), F.expr("a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL 1 SECOND AND b.ts"), "left_outer")
            .select("a.k", "n", "m", F.expr("a.ts - INTERVAL 2 MINUTES").alias("before"))
        )
    ),
    "semi join, bounds with minus": Ported(
        lambda t, u, table: (
            timely(t).alias("a")
            .join(timely(u).alias("b"), F.expr("a.k = b.k AND b.ts - a.ts <= INTERVAL 1 SECOND AND a.ts <= b.ts"), "left_semi")
        )
    ),
    "distinct values, about": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"))
            .agg(F.approx_count_distinct("k").alias("ks"), F.approx_count_distinct(F.expr("n % 3"), 0.1).alias("ns"))
        )
    ),
    "ignoring nulls": Ported(
        lambda t, u, table: (
            timely(t).withColumn("known", F.expr("CASE WHEN n > 9 THEN k END")).groupBy(F.window("ts", "10 seconds"), "k")
            .agg(F.first("known", ignorenulls=True).alias("f"), F.last(F.expr("CASE WHEN n > 15 THEN 15L END"), True).alias("l"))
        )
    ),
    "join of a table": Ported(
        lambda t, u, table: timely(t).join(table, "k").groupBy(F.window("ts", "10 seconds"), "label").agg(F.sum("n").alias("s"))
    ),
    "a table's right join": Ported(lambda t, u, table: table.join(timely(t), "k", "right_outer").select("n", "label")),
    "union": Ported(
        lambda t, u, table: (
            timely(t).select("k", "ts", F.col("n").alias("v")).unionByName(timely(u).select("ts", F.col("m").alias("v"), "k"))
            .groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("v").alias("s"))
        )
    ),
    "a structure of many fields": Ported(
        lambda t, u, table: (
            timely(t).dropDuplicates(["k", "ts"])
            .select(F.to_json(F.struct("*", *map(F.lit, range(30)), F.expr("try_cast(k AS INT)"))).alias("v"))
        )
    ),
    "in Spark and here": Ported(
        lambda t, u, table: (
            t.withColumn("parts", F.split("k", "")).withColumn("part", F.explode("parts")).withWatermark("ts", "1 minute")
            .select(F.col("ts").alias("at"), "part", F.array_max("parts").alias("last"))
            .groupBy(F.window("at", "10 seconds"), "last").count()
        )
    ),
    "a time that is not selected": Ported(lambda t, u, table: timely(t).select("k").dropDuplicates()),
    "columns as rows": Ported(
        lambda t, u, table: (
            timely(t).unpivot(["ts", "k"], [F.col("n").cast("double").alias("n"), "x"], "what", "value")
            .groupBy(F.window("ts", "10 seconds"), "what").agg(F.sum("value").alias("s"))
        )
    ),
    "columns as rows, in Spark": Ported(
        lambda t, u, table: (
            timely(t.select("ts", "k", F.col("n").cast("double").alias("n"), "x").melt(["ts", "k"], ["n", "x"], "what", "value"))
            .groupBy(F.window("ts", "10 seconds"), "what").agg(F.sum("value").alias("s"))
        )
    ),
    "columns of a window as rows": Ported(
        lambda t, u, table: (
            timely(t).groupBy(F.window("ts", "10 seconds"), "k").agg(F.max("x").alias("most"), F.min("x").alias("least"))
            .select("window.start", "k", "most", "least").unpivot(["start", "k"], ["most", "least"], "what", "value")
        )
    ),
    "expressions": Ported(
        lambda t, u, table: (
            timely(t).where("k LIKE '%1' OR k IN ('k2', 'k3') AND NOT (n BETWEEN 3 AND 5)").where("ts >= TIMESTAMP '2023-11-14 22:13:30'")
            .selectExpr(
                "substr(k, 2) AS part", "CASE WHEN n > 10 THEN 'big' WHEN n IS NULL THEN 'none' ELSE concat('s', n) END AS size",
                "coalesce(n, -1L) + 1 AS next", "round(x, 2) AS r", "n <=> 7 AS seven", "hour(ts) * 60 + minute(ts) AS at",
                "CAST(n AS STRING) AS text", "rtrim('1', k) AS trimmed", "if(x > 0.5, x, 0.0D) AS half", "- n AS minus", "n % 4 AS rest",
                "CAST(ts AS DATE) AS day", "ts + INTERVAL 3 MINUTES AS later", "ts + make_interval(0, 1, 0, 2) AS next_month",
                "ts - make_interval(0, n) AS months_ago", "ts + make_dt_interval(n) AS days_on",
                "'it''s \\\\ ' || k AS quoted", "nvl(n, 0) AS z",
                "to_date(ts) AS at_day", "to_date('2026-01-0' || (n % 3 + 1), 'yyyy-MM-dd') AS read", "try_to_date(k) AS no_day",
                "to_timestamp('2026-01-02 03:04:05') AS stamp", "try_to_timestamp(k, 'yyyy') AS no_stamp", "to_timestamp_ntz(ts) AS plain",
                "nullif(n, 3L) AS not_three", "nullif(k, 'k1') AS not_k1", "array_size(array_compact(array(n, 1L))) AS some",
                "degrees(x) AS deg", "radians(n) AS rad", "bit_count(n) AS bits", "octet_length(k) AS bytes", "log(x + 1) AS ln",
                "+n AS plus",
                "try_element_at(array(n), 2) AS none_there", "try_url_decode(k) AS url", "cast(unbase64('YWI=') AS STRING) AS ab",
                "hex(unhex('4G')) AS no_hex", "hex(to_binary('4d', 'hex')) AS hexed", "is_valid_utf8(k) AS valid",
                "try_to_binary(k) AS no_bytes",
                "regexp_replace(k, '[0-9]', '#') AS masked", "1.5 * x AS more", "k RLIKE '1$' AS one", "left(k, 1) AS first",
            )
            .dropDuplicates()
        )
    ),
}  # fmt: skip


class AtOnce(analysed._Session):
    """Runs what stays in Spark as streams until their files are read, and hands out the rows."""

    def stream(self, plan: Plan, names: Sequence[str], kept: Sequence[str], above: Sequence[Plan], time: int | None) -> Source:
        source: Any = super().stream(plan, names, kept, above, time)
        name = f"rows_{uuid.uuid4().hex}"
        query = source.dataframe.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = self._spark.table(name).toArrow().cast(source.schema)
        return ef.sources.memory([rows.combine_chunks().to_batches()], schema=source.schema)


UTC = pa.timestamp("us", "UTC")


def retyped(table: pa.Table, old: pa.DataType, new: pa.DataType) -> pa.Table:
    """The same with columns of one type cast to another."""
    return table.cast(pa.schema([pa.field(f.name, new if f.type == old else f.type) for f in table.schema]))


@pytest.fixture
def frames(spark: Any, tmp_path: Path) -> Callable[[bool], list[Any]]:
    """t, u and a table: the first two streams, or as they are."""
    labels = spark.createDataFrame([("k1", "one"), ("k2", "two"), ("k9", "nine")], "k string, label string")

    def read(streaming: bool) -> list[Any]:
        made = []
        for name, rows in (("t", T), ("u", U)):
            folder = tmp_path / name
            if not folder.exists():
                folder.mkdir()
                pq.write_table(retyped(rows, pa.timestamp("us"), UTC), folder / "rows.parquet")
            batch = spark.read.parquet(str(folder))
            made.append(spark.readStream.schema(batch.schema).parquet(str(folder)) if streaming else batch)
        return [*made, labels]

    return read


def flattened(frame: Any) -> Any:
    """A batch frame whose windows are two columns."""
    columns: list[Any] = []
    for field in frame.schema.fields:
        columns += as_columns(field.name, field.dataType.names) if field.dataType.typeName() == "struct" else [F.col(f"`{field.name}`")]
    return frame.select(*columns)


QUICK = ("window", "running", "join", "expressions", "outer join on windows")
"""The others, which take some seconds each, are left to `make conformance`."""


@pytest.mark.parametrize(
    "asked",
    [pytest.param(asked, id=name, marks=() if name in QUICK else (pytest.mark.conformance,)) for name, asked in QUERIES.items()],
)
def test_a_ported_query_gives_what_spark_gives(asked: Ported, frames: Callable[[bool], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysed, "_Session", AtOnce)
    stream = ef.from_streaming(asked.query(*frames(True)), "complete" if asked.whole else "update" if asked.newest else "append")
    stream.to(ef.sinks.memory("out"), name="out")
    world = SimWorld(layout(stream.flow.network, sites=3, partitions=7), sites=3, options=FlowOptions(epoch_rows=1000, linger_ms=1))
    world.run_until_quiet()
    got = retyped(without_structures(world.output("out")), UTC, pa.timestamp("us"))
    assert got.num_rows > 0, "a query without rows proves nothing"
    wanted = flattened(asked.query(*frames(False)))
    if asked.whole:
        got = got.slice(got.num_rows - wanted.count())
    assert_same_rows(newest_per_key(got, asked.newest) if asked.newest else got, wanted)


REFUSED = {
    "Python function": (
        lambda t: timely(t).dropDuplicates(["n"]).where(F.udf(lambda n: n > 3, "boolean").asNondeterministic()("n")), "Filter", "n",
    ),
    "limit": (lambda t: timely(t).limit(3), "GlobalLimit", "3"),
    "an aggregate": (
        lambda t: timely(t).groupBy(F.window("ts", "10 seconds")).agg(F.histogram_numeric("x", F.lit(3))),
        "Aggregate", "histogramnumeric(x, 3)",
    ),
    "a function": (lambda t: timely(t).dropDuplicates(["n"]).where("size(sentences(k)) = 1"), "Filter", "sentences(k"),
    "twice the same name": (lambda t: timely(t).dropDuplicates(["k"]).select("k", F.col("n").alias("k")), "Project", "k"),
    "a state that is replaced": (lambda t: t.groupBy("k").count().dropDuplicates(["count"]), "Deduplicate", "count"),
    "a group of a window's time": (
        lambda t: timely(t).groupBy(F.window("ts", "10 seconds")).count().groupBy(F.window_time("window").alias("at")).count(),
        "Aggregate", "window_time",
    ),
    "append without a window": (lambda t: t.groupBy("k").count(), "Aggregate", "count"),
}  # fmt: skip


@pytest.mark.parametrize(("query", "node", "expression"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_ported_is_named(
    query: Callable[[Any], Any], node: str, expression: str, frames: Callable[[bool], list[Any]]
) -> None:
    with pytest.raises(NotPortable) as refused:
        ef.from_streaming(query(frames(True)[0]))
    assert refused.value.node == node
    assert expression in refused.value.expression
    assert refused.value.expression in str(refused.value) or node in str(refused.value)


def test_sessions_are_not_put_out_again_and_again(frames: Callable[[bool], list[Any]]) -> None:
    with pytest.raises(NotPortable, match="append"):
        ef.from_streaming(timely(frames(True)[0]).groupBy(F.session_window("ts", "10 seconds")).count(), "update")


def test_what_is_no_stream_is_refused(frames: Callable[[bool], list[Any]]) -> None:
    with pytest.raises(QueryError, match="from_spark"):
        ef.from_streaming(frames(False)[0])
    with pytest.raises(QueryError, match="complete"):
        ef.from_streaming(frames(True)[0], "complete")  # type: ignore[arg-type]


def test_another_time_zone_is_refused_where_it_matters(spark: Any, frames: Callable[[bool], list[Any]]) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = frames(True)[0]
        ef.from_streaming(timely(rows).groupBy(F.window("ts", "10 seconds")).agg(F.max(F.col("n") + 1)))
        with pytest.raises(NotPortable, match="Europe/Berlin"):
            ef.from_streaming(timely(rows).dropDuplicates(["n"]).where("hour(ts) > 3"))
        ef.from_streaming(timely(rows).where("hour(ts) > 3").dropDuplicates(["n"]))  # Spark computes this one itself.
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_session_without_ansi_mode_is_refused(spark: Any, frames: Callable[[bool], list[Any]]) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(QueryError, match=r"spark\.sql\.ansi\.enabled"):
            ef.from_streaming(frames(True)[0])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_bounds_with_minus_say_when_a_row_can_be_forgotten(frames: Callable[[bool], list[Any]]) -> None:
    """An inner join without them would be kept too, but for ever, and nobody would be told."""
    t, u, _ = frames(True)
    condition = F.expr("a.k = b.k AND a.ts >= b.ts - INTERVAL 2 SECONDS AND a.ts - b.ts <= INTERVAL 1 SECOND")
    stream = ef.from_streaming(timely(t).alias("a").join(timely(u).alias("b"), condition).select("a.k", "n", "m"))
    (box,) = stream.flow.network.of_kind("join")
    join = box.params["join"]
    assert (join.low_us, join.high_us, join.unbounded) == (-1_000_000, 2_000_000, False)
