"""Higher-order functions, arrays and maps."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("higher-order functions")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds").where("id >= 2")


@chapter
def transformed(given: Inputs) -> Any:
    return timely(given).select(
        "id", F.transform("marks", lambda x: x * 2 + 1).alias("t"), F.transform("tags", lambda x: F.upper(x)).alias("u")
    )


@chapter
def transformed_with_an_index(given: Inputs) -> Any:
    return timely(given).select("id", F.transform("marks", lambda x, i: x + i).alias("t"))


@chapter
def transformed_with_another_column(given: Inputs) -> Any:
    return timely(given).select("id", F.transform("marks", lambda x: x + F.col("level")).alias("t"))


@chapter
def filtered(given: Inputs) -> Any:
    return timely(given).select(
        "id", F.filter("marks", lambda x: x > 2).alias("f"), F.size(F.filter("tags", lambda x: x.isNotNull())).alias("n")
    )


@chapter
def exists_and_forall(given: Inputs) -> Any:
    return timely(given).where(F.exists("tags", lambda x: x == "red")).select("id", F.forall("marks", lambda x: x >= 0).alias("all"))


@chapter
def aggregated(given: Inputs) -> Any:
    return timely(given).select("id", F.aggregate("marks", F.lit(0), lambda acc, x: acc + F.coalesce(x, F.lit(0))).alias("sum"))


@chapter
def aggregated_and_finished(given: Inputs) -> Any:
    return timely(given).select("id", F.aggregate("marks", F.lit(1.0), lambda acc, x: acc * x, lambda acc: acc / 2).alias("half"))


@chapter
def reduced(given: Inputs) -> Any:
    return timely(given).selectExpr("id", "reduce(tags, '', (acc, x) -> acc || coalesce(x, '-')) AS joined")


@chapter
def zipped(given: Inputs) -> Any:
    return timely(given).select("id", F.zip_with("marks", F.reverse("marks"), lambda a, b: a - b).alias("z"))


@chapter
def contained(given: Inputs) -> Any:
    return timely(given).select(
        "id",
        F.array_contains("tags", "blue").alias("c"),
        F.array_position("tags", "red").alias("p"),
        F.arrays_overlap("tags", F.array(F.lit("x y"), F.lit("red"))).alias("o"),
    )


@chapter
def as_sets(given: Inputs) -> Any:
    other = F.array(F.lit(1), F.lit(2), F.lit(2), F.lit(8))
    return timely(given).select(
        "id",
        F.array_distinct("marks").alias("d"),
        F.array_union("marks", other).alias("u"),
        F.array_intersect("marks", other).alias("i"),
        F.array_except("marks", other).alias("e"),
    )


@chapter
def sorted_arrays(given: Inputs) -> Any:
    return timely(given).select(
        "id",
        F.array_sort("marks").alias("a"),
        F.sort_array("marks", asc=False).alias("d"),
        F.array_min("marks").alias("n"),
        F.array_max("tags").alias("x"),
    )


@chapter
def sorted_by_a_function(given: Inputs) -> Any:
    return timely(given).select(
        "id", F.array_sort("tags", lambda a, b: F.coalesce(F.length(b), F.lit(0)) - F.coalesce(F.length(a), F.lit(0))).alias("s")
    )


@chapter
def changed_arrays(given: Inputs) -> Any:
    return timely(given).select(
        "id",
        F.array_remove("marks", 3).alias("r"),
        F.array_compact("tags").alias("c"),
        F.array_append("marks", 7).alias("a"),
        F.array_prepend("marks", 0).alias("p"),
        F.array_join("tags", "|", "?").alias("j"),
    )


@chapter
def cut_arrays(given: Inputs) -> Any:
    return timely(given).select(
        "id",
        F.slice("marks", 2, 2).alias("s"),
        F.array_repeat("kind", 2).alias("r"),
        F.reverse("tags").alias("v"),
        F.concat("marks", F.array(F.lit(1))).alias("c"),
    )


@chapter
def sequences(given: Inputs) -> Any:
    return (
        timely(given)
        .where("level > 0")
        .select(
            "id",
            F.sequence(F.lit(1), "level").alias("s"),
            F.flatten(F.array("marks", "marks")).alias("f"),
            F.array_size("marks").alias("n"),
        )
    )


@chapter
def zipped_structs(given: Inputs) -> Any:
    return timely(given).select("id", F.arrays_zip("marks", "tags").alias("z"))


@chapter
def of_structs(given: Inputs) -> Any:
    cost = F.aggregate("parts", F.lit(0.0), lambda acc, p: acc + p["price"] * F.coalesce(p["qty"], F.lit(0)))
    return timely(given).select("id", F.transform("parts", lambda p: p["sku"]).alias("skus"), cost.alias("cost"))


@chapter
def structs_filtered(given: Inputs) -> Any:
    return timely(given).select("id", F.filter("parts", lambda p: p["qty"] > 2).alias("many"))


@chapter
def maps_filtered(given: Inputs) -> Any:
    return timely(given).select("id", F.map_filter("attrs", lambda k, v: v.isNotNull() & (k != "zone")).alias("m"))


@chapter
def keys_and_values_transformed(given: Inputs) -> Any:
    return timely(given).select(
        "id",
        F.transform_keys("attrs", lambda k, v: F.upper(k)).alias("k"),
        F.transform_values("attrs", lambda k, v: F.concat(k, v)).alias("v"),
    )


@chapter
def maps_made_and_joined(given: Inputs) -> Any:
    made = F.map_from_arrays(F.array(F.lit("p"), F.lit("q")), F.array("kind", "device"))
    return (
        timely(given)
        .where("attrs IS NOT NULL")
        .select(
            "id",
            F.map_concat("attrs", made).alias("m"),
            F.map_contains_key("attrs", "a").alias("c"),
            F.element_at("attrs", "zone").alias("z"),
        )
    )


@chapter
def entries_of_maps(given: Inputs) -> Any:
    return timely(given).select("id", F.map_entries("attrs").alias("e"), F.map_from_entries(F.map_entries("attrs")).alias("m"))


@chapter
def in_a_window(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"))
        .agg(F.sum(F.aggregate("marks", F.lit(0), lambda acc, x: acc + F.coalesce(x, F.lit(0)))).alias("sum"))
    )


@chapter
def inside_each_other(given: Inputs) -> Any:
    return timely(given).select("id", F.transform("marks", lambda x: F.size(F.filter("marks", lambda y: y > x))).alias("above"))
