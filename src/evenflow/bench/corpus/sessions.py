"""Session windows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("sessions")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def by_device(given: Inputs) -> Any:
    return timely(given).groupBy(F.session_window("ts", "5 seconds"), "device").count()


@chapter
def of_all(given: Inputs) -> Any:
    return timely(given).groupBy(F.session_window("ts", "1 second")).agg(F.count("*").alias("n"), F.max("id").alias("last"))


@chapter
def how_long(given: Inputs) -> Any:
    made = timely(given).groupBy("device", F.session_window("ts", "6 seconds")).agg(F.sum("total").alias("bytes"))
    return made.select(
        "device", "bytes", (F.col("session_window.end").cast("long") - F.col("session_window.start").cast("long")).alias("seconds")
    )


@chapter
def long_ones(given: Inputs) -> Any:
    return timely(given).groupBy("kind", F.session_window("ts", "4 seconds")).agg(F.count("*").alias("n")).where("n >= 3")


@chapter
def of_a_condition(given: Inputs) -> Any:
    return (
        timely(given)
        .where("level > 3")
        .groupBy("device", F.session_window("ts", "8 seconds").alias("visit"))
        .agg(F.min("ts").alias("first"), F.max("ts").alias("last"))
    )


@chapter
def a_gap_by_row(given: Inputs) -> Any:
    gap = F.when(F.col("kind") == "door", "3 seconds").otherwise("6 seconds")
    return timely(given).groupBy("device", F.session_window("ts", gap)).count()


@chapter
def clicks_of_persons(given: Inputs) -> Any:
    made = given.clicks.withWatermark("clicked", "20 seconds").groupBy("person", F.session_window("clicked", "10 seconds"))
    return made.agg(F.count("*").alias("clicks"), F.countDistinct("ad").alias("ads"))


@chapter
def lists_of_a_session(given: Inputs) -> Any:
    return timely(given).groupBy("device", F.session_window("ts", "5 seconds")).agg(F.array_sort(F.collect_list("kind")).alias("kinds"))


@chapter
def start_only(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy("device", F.session_window("ts", "5 seconds").alias("s"))
        .agg(F.avg("reading").alias("m"))
        .select("device", "s.start", "m")
    )
