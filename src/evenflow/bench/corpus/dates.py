"""Dates and timestamps."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("dates")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def parts(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.year("day").alias("y"),
            F.month("day").alias("m"),
            F.dayofmonth("day").alias("d"),
            F.hour("ts").alias("h"),
            F.minute("ts").alias("n"),
            F.second("ts").alias("s"),
            F.dayofweek("day").alias("w"),
        )
    )


@chapter
def formatted(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.date_format("ts", "yyyy-MM-dd HH:mm").alias("t"), F.date_format("day", "dd.MM.yy").alias("d"))
    )


@chapter
def names_of_days(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.date_format("day", "EEEE, d MMMM y").alias("l"),
            F.date_format("day", "E MMM").alias("s"),
            F.dayname("day").alias("n"),
            F.monthname("day").alias("m"),
        )
    )


@chapter
def grouped_by_a_format(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "1 minute"), F.date_format("day", "yyyy-MM").alias("month")).count()


@chapter
def parsed(given: Inputs) -> Any:
    return timely(given).where("made IS NOT NULL").select("id", F.to_timestamp("made", "dd/MM/yyyy HH:mm").alias("t"))


@chapter
def parsed_dates(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.to_date(F.substring("made", 1, 10), "dd/MM/yyyy").alias("d"))


@chapter
def parsed_by_default(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.to_timestamp(F.lit("2026-02-03 04:05:06")).alias("t"), F.to_date(F.col("day").cast("string")).alias("d"))
    )


@chapter
def arithmetic(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.date_add("day", 10).alias("a"),
            F.date_sub("day", 3).alias("s"),
            F.datediff(F.to_date("ts"), "day").alias("d"),
            F.add_months("day", 2).alias("m"),
            F.last_day("day").alias("l"),
        )
    )


@chapter
def months_between(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.months_between("ts", "day").alias("m"), F.next_day("day", "Mon").alias("n"))


@chapter
def truncated(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.date_trunc("hour", "ts").alias("h"), F.trunc("day", "month").alias("m"), F.date_trunc("week", "ts").alias("w"))
    )


@chapter
def intervals(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .selectExpr("id", "ts + INTERVAL 90 MINUTES AS later", "ts - INTERVAL '1 02' DAY TO HOUR AS before", "day + INTERVAL 3 DAYS AS d")
    )


@chapter
def months_as_intervals(given: Inputs) -> Any:
    return timely(given).where("id < 60").selectExpr("id", "day + INTERVAL 2 MONTHS AS m", "ts - INTERVAL 1 YEAR AS y")


@chapter
def of_the_epoch(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.unix_timestamp("ts").alias("u"),
            F.unix_millis("ts").alias("m"),
            F.timestamp_seconds(F.col("id") * 1000).alias("t"),
            F.from_unixtime(F.col("id") * 86400, "yyyy-MM-dd").alias("f"),
        )
    )


@chapter
def difference_of_times(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", (F.col("ts") - F.date_trunc("hour", "ts")).alias("since"))


@chapter
def seconds_of_a_difference(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "30 seconds"), "device").agg(F.min("ts").alias("first"), F.max("ts").alias("last"))
    return made.select(
        "device",
        F.timestamp_diff("SECOND", "first", "last").alias("seconds"),
        (F.col("last").cast("double") - F.col("first").cast("double")).alias("exact"),
    )


@chapter
def made_of_numbers(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.make_date(F.lit(2026), F.lit(3), (F.col("id") % 28 + 1).cast("int")).alias("d"),
            F.weekofyear("day").alias("w"),
            F.quarter("day").alias("q"),
            F.dayofyear("day").alias("y"),
        )
    )


@chapter
def extracted(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .selectExpr(
            "id", "extract(YEAR FROM day) AS y", "extract(HOUR FROM ts) AS h", "extract(SECOND FROM ts) AS s", "date_part('week', day) AS w"
        )
    )


@chapter
def other_zones(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.from_utc_timestamp("ts", "Europe/Berlin").alias("b"), F.to_utc_timestamp("ts", "America/New_York").alias("n"))
    )
