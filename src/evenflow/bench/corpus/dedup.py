"""Rows that come more than once."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("deduplication")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def by_id_without_a_watermark(given: Inputs) -> Any:
    return given.events.select("id").dropDuplicates(["id"])


@chapter
def by_id_and_time(given: Inputs) -> Any:
    return timely(given).select("id", "ts").dropDuplicates(["id", "ts"])


@chapter
def whole_rows(given: Inputs) -> Any:
    return timely(given).select("device", "kind").dropDuplicates()


@chapter
def distinct(given: Inputs) -> Any:
    return given.events.select("device", "level").distinct()


@chapter
def within_the_watermark(given: Inputs) -> Any:
    rows = given.events.withWatermark("ts", "10 minutes")
    made = (
        rows.dropDuplicatesWithinWatermark(["device"]) if rows.isStreaming else rows.dropDuplicates(["device"])
    )  # Batch has no such word.
    return made.select("device")


@chapter
def then_counted(given: Inputs) -> Any:
    return (
        timely(given)
        .select("device", "kind", "level", "ts")
        .dropDuplicates(["device", "level", "ts"])
        .groupBy(F.window("ts", "30 seconds"), "device")
        .count()
    )


@chapter
def of_a_computed_key(given: Inputs) -> Any:
    return timely(given).select(F.upper("kind").alias("k"), (F.col("level") % 3).alias("m")).dropDuplicates(["k", "m"])


@chapter
def filtered_after(given: Inputs) -> Any:
    return timely(given).select("id", "kind").dropDuplicates(["id", "kind"]).where("kind <> 'door'")


@chapter
def distinct_days(given: Inputs) -> Any:
    return timely(given).select(F.to_date("ts").alias("day"), "device").distinct()


@chapter
def of_nested_values(given: Inputs) -> Any:
    return timely(given).select("place.city", "device").dropDuplicates()


@chapter
def of_structs(given: Inputs) -> Any:
    return timely(given).select("place", "kind").dropDuplicates(["place", "kind"])
