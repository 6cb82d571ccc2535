"""JSON and CSV in columns."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("JSON and CSV")
SCHEMA = "user string, n int, deep struct<x: array<int>, ok: boolean>"


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def parsed_below(given: Inputs) -> Any:
    rows = given.events.select("ts", F.from_json("body", SCHEMA).alias("v")).select("ts", "v.*").withWatermark("ts", "10 seconds")
    return rows.groupBy(F.window("ts", "30 seconds"), "user").agg(F.sum("n").alias("n"))


@chapter
def parsed_above(given: Inputs) -> Any:
    return timely(given).where("body IS NOT NULL").select("id", F.from_json("body", SCHEMA).alias("v")).select("id", "v.user", "v.n")


@chapter
def parsed_flat(given: Inputs) -> Any:
    rows = timely(given).select("ts", F.from_json("body", "user string, n bigint").alias("v"))
    return rows.groupBy(F.window("ts", "30 seconds"), "v.user").agg(F.max("v.n").alias("most"))


@chapter
def whole_value(given: Inputs) -> Any:
    return timely(given).where("id < 30").select("id", F.from_json("body", SCHEMA).alias("v"))


@chapter
def a_path(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.get_json_object("body", "$.user").alias("user"), F.get_json_object("body", "$.deep.x[1]").alias("x"))
    )


@chapter
def paths_as_keys(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"), F.get_json_object("body", "$.user").alias("user"))
        .agg(F.sum(F.get_json_object("body", "$.n").cast("int")).alias("n"))
    )


@chapter
def a_subtree(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.get_json_object("body", "$.deep").alias("deep"), F.get_json_object("body", "$.none").alias("none"))
    )


@chapter
def a_tuple(given: Inputs) -> Any:
    return (
        given.events.select("ts", F.json_tuple("body", "user", "n").alias("user", "n"))
        .withWatermark("ts", "10 seconds")
        .groupBy(F.window("ts", "30 seconds"), "user")
        .count()
    )


@chapter
def a_tuple_above(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.json_tuple("body", "user", "n").alias("user", "n"))


@chapter
def written(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.to_json(F.struct("device", "level", "reading", "ok")).alias("j"))


@chapter
def written_results(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "30 seconds"), "device").agg(F.count("*").alias("n"), F.max("level").alias("most"))
    return made.select(F.col("device").alias("key"), F.to_json(F.struct("device", "n", "most")).alias("value"))


@chapter
def written_with_the_window(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "30 seconds"), "device").agg(F.count("*").alias("n"))
    return made.select(F.to_json(F.struct("window", "device", "n")).alias("value"))


@chapter
def arrays_of_json(given: Inputs) -> Any:
    return (
        timely(given)
        .where("tags IS NOT NULL")
        .select("id", F.to_json("tags").alias("t"), F.json_array_length(F.to_json("marks")).alias("n"))
    )


@chapter
def keys_of_json(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.json_object_keys("body").alias("k"))


@chapter
def lines_of_csv(given: Inputs) -> Any:
    rows = timely(given).select("ts", F.from_csv("line", "key string, n int, x double").alias("v"))
    return rows.groupBy(F.window("ts", "30 seconds"), "v.key").agg(F.sum("v.n").alias("n"), F.max("v.x").alias("x"))


@chapter
def written_as_csv(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.to_csv(F.struct("device", "level", "reading")).alias("c"))
