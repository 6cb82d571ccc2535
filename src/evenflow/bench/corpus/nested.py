"""Structs, maps and arrays of structs."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("nested columns")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def fields_of_a_struct(given: Inputs) -> Any:
    return timely(given).where("place.lat > 0").select("id", "place.city", F.col("place.lat").alias("lat"))


@chapter
def all_fields(given: Inputs) -> Any:
    return timely(given).where("id > 10").select("id", "place.*")


@chapter
def whole_structs(given: Inputs) -> Any:
    return timely(given).where("place IS NOT NULL").select("id", "place")


@chapter
def grouped_by_a_field(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), "place.city").agg(F.avg("place.lat").alias("lat"), F.count("*").alias("n"))


@chapter
def grouped_by_a_struct(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "40 seconds"), F.struct("device", "kind").alias("who")).agg(F.count("*").alias("n"))


@chapter
def made_structs(given: Inputs) -> Any:
    return timely(given).where("id < 50").select("id", F.struct(F.col("device").alias("d"), (F.col("level") + 1).alias("l")).alias("s"))


@chapter
def structs_taken_apart(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 50")
        .select(F.struct("device", "level").alias("s"), "id")
        .select("id", "s.device", F.col("s.level").alias("l"))
    )


@chapter
def with_field(given: Inputs) -> Any:
    return timely(given).where("id < 50").select("id", F.col("place").withField("floor", F.col("level")).alias("p"))


@chapter
def values_of_a_map(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.col("attrs")["a"].alias("a"), F.col("attrs").getItem("zone").alias("z"))


@chapter
def condition_on_a_map(given: Inputs) -> Any:
    return timely(given).where("attrs['zone'] = 'on'").select("id", "attrs")


@chapter
def grouped_by_a_maps_value(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), F.col("attrs")["zone"].alias("zone")).count()


@chapter
def keys_and_values(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.map_keys("attrs").alias("k"), F.map_values("attrs").alias("v"), F.size("attrs").alias("n"))
    )


@chapter
def elements_of_arrays(given: Inputs) -> Any:
    return (
        timely(given)
        .where("size(tags) > 1")
        .select("id", F.col("tags")[0].alias("first"), F.element_at("tags", -1).alias("last"), F.size("tags").alias("n"))
    )


@chapter
def fields_of_an_array_of_structs(given: Inputs) -> Any:
    return timely(given).where("size(parts) > 0").select("id", F.col("parts.sku").alias("skus"), F.col("parts")[0]["qty"].alias("first"))


@chapter
def structs_in_state(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), "device").agg(F.max(F.struct("id", "label")).alias("newest"))


@chapter
def exploded_below(given: Inputs) -> Any:
    return (
        given.events.select("ts", "device", F.explode("parts").alias("part"))
        .withWatermark("ts", "10 seconds")
        .groupBy(F.window("ts", "30 seconds"), "part.sku")
        .agg(F.sum("part.qty").alias("qty"))
    )


@chapter
def exploded_above(given: Inputs) -> Any:
    return timely(given).select("ts", F.explode("tags").alias("tag")).groupBy(F.window("ts", "30 seconds"), "tag").count()


@chapter
def exploded_structs_above(given: Inputs) -> Any:
    return (
        timely(given)
        .select("ts", F.explode("parts").alias("part"))
        .groupBy(F.window("ts", "30 seconds"), "part.sku")
        .agg(F.sum("part.qty").alias("qty"))
    )


@chapter
def a_map_made(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.create_map(F.lit("device"), "device", F.lit("kind"), "kind").alias("m"))
