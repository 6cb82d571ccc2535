"""Selection, projection, conditions and casts. Behind a watermark they run in boxes, before it in Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("selection")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def columns_and_a_condition(given: Inputs) -> Any:
    return given.events.select("device", "kind", "reading").where("reading > 20")


@chapter
def computed_before_any_state(given: Inputs) -> Any:
    return given.events.withColumn("twice", F.col("level") * 2).filter(F.col("twice") > 4).drop("level").select("id", "twice", "device")


@chapter
def a_condition_behind_a_watermark(given: Inputs) -> Any:
    return timely(given).filter((F.col("reading") >= 20) & (F.col("kind") == "temp")).select("id", "device", "reading")


@chapter
def cases(given: Inputs) -> Any:
    size = F.when(F.col("level") > 8, "high").when(F.col("level") > 3, "middle").when(F.col("level").isNull(), "unknown").otherwise("low")
    return timely(given).where("id > 3").select("id", size.alias("size"))


@chapter
def nulls_filled(given: Inputs) -> Any:
    return timely(given).select("id", "level", "kind", "label").fillna({"level": 0, "label": "none"})


@chapter
def nulls_dropped(given: Inputs) -> Any:
    return timely(given).select("id", "level", "label").dropna(subset=["level", "label"])


@chapter
def casts(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id <> 5")
        .select(
            F.col("id").cast("string").alias("i"),
            F.col("reading").cast("int").alias("r"),
            F.col("level").cast("double").alias("l"),
            F.col("ok").cast("int").alias("o"),
            F.col("total").cast("string").alias("t"),
        )
    )


@chapter
def renamed(given: Inputs) -> Any:
    return timely(given).withColumnRenamed("device", "source").where("source in ('d1', 'd2')").selectExpr("source", "id AS number")


@chapter
def numbers(given: Inputs) -> Any:
    return (
        timely(given)
        .where("reading is not null")
        .select(
            "id",
            F.round("reading", 1).alias("r"),
            F.ceil("reading").alias("c"),
            F.floor("reading").alias("f"),
            F.abs("level").alias("a"),
            F.sqrt(F.abs("reading")).alias("s"),
            (F.col("level") % 3).alias("m"),
            F.pmod("level", F.lit(3)).alias("p"),
            F.pow("level", F.lit(2)).alias("q"),
        )
    )


@chapter
def greatest_and_least(given: Inputs) -> Any:
    return (
        timely(given).where("id < 40").select("id", F.greatest("level", F.lit(3)).alias("g"), F.least("level", "id", F.lit(7)).alias("l"))
    )


@chapter
def coalesced(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .selectExpr(
            "id", "coalesce(label, kind, 'x') AS c", "nvl2(level, 'y', 'n') AS n", "nullif(level, 3) AS z", "ifnull(level, -1) AS i"
        )
    )


@chapter
def in_a_list_and_like(given: Inputs) -> Any:
    return (
        timely(given)
        .where(F.col("kind").isin("temp", "hum") & (F.col("label").like("%a%") | F.col("label").rlike("^D")))
        .select("id", "label")
    )


@chapter
def bits_and_hashes(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id > 10")
        .select(
            "id",
            F.col("id").bitwiseAND(6).alias("b"),
            F.shiftleft("id", 2).alias("l"),
            F.md5("device").alias("m"),
            F.sha2("device", 256).alias("s"),
            F.crc32("device").alias("c"),
            F.hash("device", "id").alias("h"),
            F.xxhash64("device", "id").alias("x"),
        )
    )


@chapter
def text_of_numbers(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 50")
        .select(
            "id",
            F.hex("id").alias("h"),
            F.bin("id").alias("b"),
            F.conv(F.col("id").cast("string"), 10, 36).alias("c"),
            F.format_number("total", 2).alias("f"),
        )
    )


@chapter
def try_functions(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 50")
        .selectExpr("id", "try_divide(reading, level) AS d", "try_add(id, 1) AS a", "try_cast(label AS INT) AS c")
    )


@chapter
def a_function_of_python(given: Inputs) -> Any:
    tripled = F.udf(lambda n: None if n is None else n * 3, "int")
    return timely(given).where("id < 30").select("id", tripled("level").alias("t"))
