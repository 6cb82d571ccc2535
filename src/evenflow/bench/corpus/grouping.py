"""Queries with several sets of keys, windows as columns, keys that may be null, and functions above what keeps state."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs
from evenflow.bench.corpus.written import timely

chapter = Chapter("grouping sets")


@chapter
def rollup_in_windows(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT window.start AS at, device, kind, count(*) AS n, sum(level) AS s FROM timely "
        "GROUP BY window(ts, '30 seconds'), ROLLUP (device, kind)",
    )


@chapter.update("device", "kind", "g")
def rollup(given: Inputs) -> Any:
    grouped = given.events.rollup("device", "kind")
    return grouped.agg(F.sum("level").alias("s"), F.count("*").alias("n"), F.grouping_id().alias("g"))


@chapter.update("device", "kind", "gd", "gk")
def cube(given: Inputs) -> Any:
    grouped = given.events.cube("device", "kind")
    return grouped.agg(F.max("reading").alias("most"), F.grouping("device").alias("gd"), F.grouping("kind").alias("gk"))


@chapter
def grouping_sets_in_windows(given: Inputs) -> Any:
    return timely(
        given,
        "SELECT window.end AS at, device, kind, grouping_id() AS g, avg(reading) AS m FROM timely "
        "GROUP BY GROUPING SETS ((window(ts, '20 seconds'), device), (window(ts, '20 seconds'), kind))",
    )


@chapter.complete
def rollup_of_all(given: Inputs) -> Any:
    return given.events.rollup("kind").agg(F.count("*").alias("n")).orderBy(F.desc("n"), "kind")


@chapter.complete
def sorted_by_the_window(given: Inputs) -> Any:
    timed = given.events.withWatermark("ts", "10 seconds")
    return timed.groupBy(F.window("ts", "30 seconds")).agg(F.count("*").alias("n")).orderBy("window")


@chapter
def a_null_safe_key(given: Inputs) -> Any:
    left = given.events.withWatermark("ts", "10 seconds").select("id", "level", "ts")
    right = given.impressions.withWatermark("shown", "10 seconds").select(F.when(F.col("ad") < 6, F.col("ad")).alias("ad"), "shown")
    near = F.expr("shown BETWEEN ts - INTERVAL 5 SECONDS AND ts + INTERVAL 5 SECONDS")
    return left.join(right, left.level.eqNullSafe(right.ad) & near)


@chapter
def sliding_windows_as_a_column(given: Inputs) -> Any:
    firsts = given.events.withWatermark("ts", "10 seconds").dropDuplicates(["id", "ts"])
    return firsts.select("id", F.window("ts", "20 seconds", "10 seconds").alias("w")).select("id", "w.start", "w.end")


@chapter
def functions_above_state(given: Inputs) -> Any:
    firsts = given.events.withWatermark("ts", "10 seconds").dropDuplicates(["id", "ts"])
    return firsts.select(
        F.hex("label").alias("hex"), F.levenshtein("label", "kind").alias("apart"), F.hash("id", "kind").alias("h"),
        F.xxhash64("label").alias("x"), F.months_between("ts", "day").alias("months"),
        F.make_date(F.lit(2026), F.lit(1), F.lit(2)).alias("made"),
        F.arrays_zip("tags", "marks").alias("zipped"), F.try_add("total", "total").alias("sum"), F.soundex("label").alias("sound"),
        F.next_day("day", "mon").alias("monday"), F.base64(F.col("label").cast("binary")).alias("b64"),
        F.translate("label", "ae", "43").alias("t"),
        F.array_insert("marks", 1, F.lit(7)).alias("ins"), F.expr("timestampdiff(MONTH, timestamp '2025-01-31', ts)").alias("diff"),
        F.expr("timestampadd(MONTH, 1, ts)").alias("later"),
    )  # fmt: skip


@chapter
def json_above_state(given: Inputs) -> Any:
    firsts = given.events.withWatermark("ts", "10 seconds").dropDuplicates(["id", "ts"])
    read = F.from_json("body", "user string, n int, deep struct<x: array<int>, ok: boolean>")
    return firsts.select("id", read.alias("b")).select("id", "b.user", "b.deep.x")
