"""Joins of streams with tables."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("stream-static joins")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def inner(given: Inputs) -> Any:
    return given.events.join(given.devices, "device").select("id", "device", "owner")


@chapter
def inner_behind_a_watermark(given: Inputs) -> Any:
    return timely(given).join(given.devices, "device").select("id", "owner", "top")


@chapter
def left(given: Inputs) -> Any:
    return timely(given).join(given.devices, "device", "left").select("id", "device", "owner")


@chapter
def semi(given: Inputs) -> Any:
    return timely(given).join(given.devices, "device", "left_semi").select("id", "device")


@chapter
def anti(given: Inputs) -> Any:
    return timely(given).join(given.devices, "device", "left_anti").select("id", "device")


@chapter
def table_on_the_left(given: Inputs) -> Any:
    return given.devices.join(timely(given), "device", "right_outer").select("id", "owner", "device")


@chapter
def broadcast(given: Inputs) -> Any:
    return timely(given).join(F.broadcast(given.devices), "device").where(F.col("reading") > F.col("top")).select("id", "reading", "top")


@chapter
def then_windows(given: Inputs) -> Any:
    return timely(given).join(given.devices, "device").groupBy(F.window("ts", "30 seconds"), "owner").agg(F.avg("reading").alias("mean"))


@chapter
def with_a_condition(given: Inputs) -> Any:
    e, d = timely(given).alias("e"), given.devices.alias("d")
    return e.join(d, F.expr("e.device = d.device AND e.reading > d.top")).select("id", "e.device", "owner", "reading")


@chapter
def two_tables(given: Inputs) -> Any:
    o = given.orders.withWatermark("at", "10 seconds")
    return (
        o.join(given.customers, "customer", "left")
        .join(given.devices.select(F.concat(F.lit("c"), F.substring("device", 2, 9)).alias("customer"), "owner"), "customer", "left")
        .select("order_id", "country", "owner")
    )


@chapter
def aggregated_table(given: Inputs) -> Any:
    by = given.customers.groupBy("country").agg(F.max("tier").alias("best"), F.min("customer").alias("customer"))
    return given.orders.withWatermark("at", "10 seconds").join(by, "customer").select("order_id", "country", "best")


@chapter
def after_windows(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"), "device")
        .count()
        .join(given.devices, "device")
        .select("owner", "count", F.col("window.end").alias("at"))
    )


@chapter.update("country")
def running_by_the_tables_column(given: Inputs) -> Any:
    return given.orders.join(given.customers, "customer").groupBy("country").agg(F.count("*").alias("n"), F.max("count").alias("most"))
