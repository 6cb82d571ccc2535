"""Columns of PySpark where an expression may stand mean what they mean in Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import evenflow as ef
from evenflow.errors import NotPortable, QueryError, UnknownColumn
from evenflow.testing import run, source

pytestmark = pytest.mark.oracle

SCHEMA = "k string, n bigint, m int, x double, at timestamp, d date, `odd name` string"
ROWS = [
    ("a", 1, 3, 1.5, datetime(2026, 1, 1, 10, tzinfo=UTC), date(2026, 1, 1), "one"),
    ("a", 2, None, float("nan"), datetime(2026, 1, 2, tzinfo=UTC), None, "it's"),
    (None, None, -4, None, None, date(2025, 5, 5), None),
    ("b", 5, 7, -0.5, datetime(1969, 12, 31, 23, tzinfo=UTC), date(1960, 2, 29), "100%"),
]


def on_its_own(draw: Callable[[Any], Any]) -> list[dict[str, Any]]:
    flow = ef.Dataflow("columns")
    draw(flow.source(source(SCHEMA), name="t")).to(ef.sinks.discard(), name="out")
    return run(flow, {"t": ROWS}).rows()


def in_batch(spark: Any, draw: Callable[[Any], Any]) -> list[dict[str, Any]]:
    return [row.asDict() for row in draw(spark.createDataFrame(ROWS, SCHEMA)).collect()]


def as_text(rows: list[dict[str, Any]]) -> list[str]:
    def plain(value: Any) -> Any:
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value

    return sorted(repr({name: plain(value) for name, value in row.items()}) for row in rows)


def test_columns_of_a_stream_are_those_of_a_frame(spark: Any) -> None:
    def draw(t: Any) -> Any:
        return t.where((t.n > 1) | (t["k"] == "a")).select(t.k, (t["N"] * 2).alias("twice"), t["odd name"], t.x)

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))
    rows = ef.Dataflow("columns").source(source(SCHEMA), name="t")
    with pytest.raises(UnknownColumn, match="there is no column 'nope'; the input has k, n"):
        rows["nope"]
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        getattr(rows, "nope")  # noqa: B009
    with pytest.raises(TypeError, match="write the column as text"):
        rows[["k"]]
    assert rows.groupBy(rows["k"]).count().columns == ["k", "count"]


@pytest.mark.parametrize("star", ["*", "p.*"])
def test_stars_among_arguments(spark: Any, star: str) -> None:
    """Numbers and texts only: JSON of times and hashes of them go by the session's zone."""
    from pyspark.sql import functions as F

    def draw(t: Any) -> Any:
        rows = t.select("k", "n", "m", F.struct("n", F.col("odd name").alias("name")).alias("p"))
        return rows.select(F.to_json(F.struct(star)).alias("json"), F.hash(star).alias("hash"), F.expr(f"xxhash64({star})").alias("long"))

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))


def test_columns_of_a_row(spark: Any) -> None:
    from pyspark.sql import functions as F

    columns = [
        F.col("n") + 1,
        (F.col("n") * 2 - F.col("m")).alias("made"),
        F.col("odd name"),
        F.col("x").cast("string").alias("text"),
        F.when(F.col("n") > 1, "many").when(F.col("n") == 1, "one").otherwise(F.lit(None)).alias("how_many"),
        F.col("k").isNull().alias("none"),
        (~F.col("k").isin("a", "c")).alias("other"),
        F.col("odd name").like("%it%").alias("it"),
        F.coalesce("m", F.lit(0)).alias("m0"),
        F.lit(1.5).alias("half"),
        F.lit(Decimal("12.50")).alias("price"),
        F.lit(10**12).alias("long"),
        F.lit("it's").alias("said"),
        (F.col("at") > F.lit(datetime(2026, 1, 1, 12))).alias("later"),
        (F.col("d") < F.lit(date(2000, 1, 1))).alias("old"),
        F.col("n").between(1, 2).alias("between"),
        F.concat_ws("-", "k", "odd name").alias("both"),
        F.upper(F.substring("odd name", 1, 2)).alias("up"),
        F.expr("n % 2 as odd"),
        (-F.col("n")).alias("less"),
        F.col("n").eqNullSafe(F.lit(None)).alias("same"),
        F.date_trunc("day", "at").alias("day"),
        F.col("odd name").try_cast("int").alias("number"),
        F.year("d").alias("year"),
        F.lit(True).alias("yes"),
        F.col("k").startswith("a").alias("starts"),
    ]

    def draw(rows: Any) -> Any:
        return rows.select(*columns)

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))


def test_a_column_in_the_place_of_one_whose_name_has_other_letters(spark: Any) -> None:
    from pyspark.sql import functions as F

    def draw(rows: Any) -> Any:
        return rows.withColumn("N", F.col("n") + 1).withColumns({"K": F.upper("k"), "more": F.col("N") * 2})

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))


def test_functions_that_read_and_make_texts(spark: Any) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    schema = StructType(
        [StructField("a", IntegerType()), StructField("b", ArrayType(StringType())), StructField("_corrupt_record", StringType())]
    )
    said = F.concat(
        F.lit('{"a": '),
        F.coalesce(F.col("n").cast("string"), F.lit("null")),
        F.lit(', "b": ["x", '),
        F.col("m").cast("string"),
        F.lit("]}"),
    )
    columns = [
        F.from_json(said, schema).alias("read"),
        F.from_json(said, "a int, b array<string>", {"mode": "FAILFAST"}).alias("strictly"),
        F.from_json(said, F.schema_of_json(F.lit('{"a": 1}'))).alias("known"),
        F.from_csv(F.concat_ws(",", "k", "m"), "k string, m int").alias("line"),
        F.to_csv(F.struct("n", "odd name")).alias("csv"),
        F.hex("odd name").alias("hex"), F.levenshtein("k", "odd name").alias("far"), F.hash("n", "k").alias("h"),
        F.xxhash64("k").alias("x"),
        F.try_add("n", F.lit(2**63 - 1)).alias("tried"), F.months_between("at", "d").alias("months"),
        F.next_day("d", "Mon").alias("monday"),
        F.timestamp_add("MONTH", "n", "at").alias("later"), F.timestamp_diff("MONTH", "d", "at").alias("apart"),
        F.regexp_count("odd name", F.lit("[a-z]")).alias("letters"), F.url_encode("odd name").alias("url"),
        F.transform(F.array("n", "m"), lambda x: x + 1).alias("more"), F.filter(F.array("n", "m"), lambda x: x > 2).alias("few"),
        F.map_zip_with(F.create_map(F.lit("a"), "n"), F.create_map(F.lit("a"), "m"), lambda k, x, y: F.concat(k, x, y)).alias("zipped"),
        F.aggregate(F.array("n", "n"), F.lit(0).cast("bigint"), lambda a, x: a + x).alias("sum"),
        F.shiftrightunsigned("m", 1).alias("shifted"), F.format_string("%s has %d", "k", "n").alias("form"),
    ]  # fmt: skip

    def draw(rows: Any) -> Any:
        return rows.select(*columns)

    def plain(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(repr({name: _bare(value) for name, value in row.items()}) for row in rows)

    assert plain(on_its_own(draw)) == plain(in_batch(spark, draw))


def _bare(value: Any) -> Any:
    """Structures and maps as tuples, times without a zone."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return tuple(_bare(inner) for inner in value.items())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return tuple(value)
    if hasattr(value, "asDict"):
        return _bare(value.asDict())
    return tuple(map(_bare, value)) if isinstance(value, list | tuple) else value


def test_fields_of_structures_have_their_names(spark: Any) -> None:
    """Also in lists and in JSON; and all fields of a structure are no columns of its row."""
    from pyspark.sql import functions as F

    made = F.struct(F.col("k").alias("key"), (F.col("n") + 1).alias("odd `name"), "m", F.expr("x * 2 AS twice"))
    columns = [
        made.alias("made"),
        F.to_json(F.struct(F.col("n").alias("number"), F.struct(F.col("k").alias("key")).alias("in"))).alias("json"),
        F.transform(F.array("n", "m"), lambda each: F.struct(each.alias("each"), (each + 1).alias("next"))).alias("list"),
        F.col("k").isin([]).alias("nowhere"),
    ]

    def plain(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(repr([(name, _named(value)) for name, value in row.items()]) for row in rows)

    for draw in (lambda rows: rows.select(*columns), lambda rows: rows.select(made.alias("s")).select(F.col("s.*"))):
        assert plain(on_its_own(draw)) == plain(in_batch(spark, draw))


def _named(value: Any) -> Any:
    """Structures with the names of their fields."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return [(name, _named(inner)) for name, inner in value.items()]
    return [_named(inner) for inner in value] if isinstance(value, list | tuple) else value


def test_methods_have_the_names_that_pyspark_has(spark: Any) -> None:
    from pyspark.sql import functions as F

    def draw(rows: Any) -> Any:
        made = rows.where(F.col("n").isNotNull()).withColumn("twice", F.col("n") * 2).withColumns({"n": F.col("n") + 1, "e": F.lit("e")})
        return made.withColumnRenamed("m", "small").drop(F.col("x"), "at").selectExpr("k", "twice + n as s", "small", "e", "`odd name`")

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))


def test_aggregates(spark: Any) -> None:
    from pyspark.sql import functions as F

    calls = [
        F.sum("n").alias("total"), F.avg(F.col("m") + 1).alias("mean"), F.count("*").alias("rows"), F.count(F.lit(1)).alias("ones"),
        (F.sum("n") / F.count("n")).alias("ratio"), F.max("d"), F.min(F.when(F.col("m") > 0, F.col("m"))).alias("least"),
        F.expr("count(*) FILTER (WHERE m > 0)").alias("some"), F.expr("sum(n) FILTER (WHERE x > 0) + count(*)").alias("both"),
        F.expr("avg(m) FILTER (WHERE n > 100)").alias("none"), F.countDistinct("m"), F.countDistinct("m", "x").alias("pairs"),
        F.expr("count(DISTINCT d) FILTER (WHERE n > 1)").alias("days"), (F.count_distinct("n") * 2).alias("twice"),
    ]  # fmt: skip

    def draw(rows: Any) -> Any:
        return rows.groupBy(F.col("k")).agg(*calls)

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))


def test_keys_may_be_computed(spark: Any) -> None:
    """With the names that they have in Spark, and the columns that they are made of as they were."""
    from pyspark.sql import functions as F

    total, counted = F.sum("n").alias("total"), F.approx_count_distinct("n", 0.05).alias("different")

    def draw(rows: Any) -> Any:
        return rows.groupBy(F.upper("k").alias("upper"), F.col("n") % 2, "m").agg(total, counted)

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))

    def fields(rows: Any) -> Any:
        return rows.select(F.struct("k", "n").alias("s")).groupBy("s.k").agg(F.sum("s.n").alias("total"))

    assert as_text(on_its_own(fields)) == as_text(in_batch(spark, fields))


def test_columns_that_make_rows(spark: Any) -> None:
    """Under the names that they are given, and those that Spark gives them."""
    from pyspark.sql import functions as F

    array = F.when(F.col("k") == "a", F.array("n", "m"))
    entries, pairs = F.create_map("odd name", "n"), F.array(F.struct("k", F.col("n").alias("number")))
    named = [F.posexplode(array).alias("at", "each"), F.explode_outer(array).alias("one")]
    named += [F.explode(entries).alias("name", "count"), F.inline(pairs).alias("key", "number"), F.posexplode_outer(array)]
    for maker in (*named, F.posexplode(array), F.explode(array), F.explode(entries), F.inline(pairs), F.inline_outer(pairs)):

        def draw(rows: Any, maker: Any = maker) -> Any:
            return rows.where("`odd name` IS NOT NULL").select("x", maker, "d")

        assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw)), maker


def test_literals_of_python_s_own_types(spark: Any) -> None:
    from pyspark.sql import functions as F

    later = (F.col("at") + F.lit(timedelta(days=400, microseconds=5))).alias("later")
    earlier = (F.col("at") - F.lit(timedelta(seconds=-1, microseconds=-500_000))).alias("earlier")

    def draw(rows: Any) -> Any:
        return rows.select(later, earlier, F.hex(F.lit(b"a\x00b")).alias("bytes"))

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))


def test_functions_over_rows(spark: Any) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_k = Window.partitionBy("k", F.col("n") > 9).orderBy("at", F.col("m").asc_nulls_first())
    last, every = by_k.rowsBetween(-1, Window.currentRow), Window.orderBy(F.col("at"))
    columns = [
        "n", F.row_number().over(by_k).alias("place"), F.sum("m").over(last).alias("sum"), (F.max("m").over(last) + 1).alias("more"),
        F.lag("odd name", 1, "none").over(by_k).alias("before"), F.lead("m").over(by_k).alias("behind"),
        F.lag("m", 2).over(every).alias("second"), F.first("m", ignorenulls=True).over(by_k).alias("first"),
        F.last("m").over(by_k.rowsBetween(0, 2)).alias("last"), F.nth_value("n", 2).over(by_k).alias("nth"),
        F.count("*").over(every.rangeBetween(Window.unboundedPreceding, Window.currentRow)).alias("so_far"),
        F.rank().over(Window.partitionBy("k").orderBy("at")).alias("rank"),
    ]  # fmt: skip

    def draw(rows: Any) -> Any:
        return rows.withWatermark("at", "1 second").select(*columns)

    assert as_text(on_its_own(draw)) == as_text(in_batch(spark, draw))

    def place(rows: Any) -> Any:
        return rows.withWatermark("at", "1 second").withColumn("m", F.avg("m").over(by_k)).select("k", "m", "n")

    assert as_text(on_its_own(place)) == as_text(in_batch(spark, place))


def test_windows_stand_among_the_keys(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = ef.Dataflow("windows").source(source(SCHEMA), name="t").with_watermark("at", "1 second")
    gap = F.when(F.col("n") > 3, "5 seconds").otherwise("1 second")
    for column, behind in (
        (F.window("at", "1 minute"), rows.groupBy("k").window("1 minute")),
        (F.window("at", "1 minute", "20 seconds").alias("w"), rows.groupBy("k").window("1 minute", "20 seconds")),
        (F.window(F.col("at"), "1 hour", startTime="15 minutes"), rows.groupBy("k").window("1 hour", start="15 minutes")),
        (F.session_window("at", "5 minutes"), rows.groupBy("k").session("5 minutes")),
        (F.session_window("at", gap), rows.groupBy("k").session(gap)),
    ):
        assert rows.groupBy(column, "k").count().box.params["window"] == behind.count().box.params["window"]


def test_what_has_no_sql_here_is_named_with_what_to_do(spark: Any) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    stream = ef.Dataflow("wrong").source(source(SCHEMA), name="t")
    with pytest.raises(NotPortable, match=r"update_field.*give all of them, F\.struct"):
        stream.select(F.struct("n").withField("more", F.lit(1)).alias("r"))
    longer = F.udf(lambda n, by: n + by, "bigint")
    with pytest.raises(NotPortable, match=r"Python function '<lambda>'.*ef\.expr\(\"f\(`n`, 1\)\", f=f\)") as refused:
        stream.select((longer("n", F.lit(1)) + 1).alias("r"))
    assert "columnnode" not in str(refused.value).lower()
    with pytest.raises(QueryError, match="order of event time"):
        stream.with_watermark("at", "1 second").select(F.sum("n").over(Window.partitionBy("k").orderBy("n")).alias("r"))
    with pytest.raises(QueryError, match="the key 'm' is computed, and there is a column of that name"):
        stream.groupBy((F.col("n") + 1).alias("m"))
    with pytest.raises(QueryError, match="posexplode makes 2 columns, and 1 names are given"):
        stream.select(F.posexplode(F.array("n")).alias("one"))
    with pytest.raises(UnknownColumn, match="nowhere"):
        stream.where(F.col("nowhere") > 1)
    with pytest.raises(QueryError, match="names of columns"):
        stream.drop(F.col("n") + 1)
