"""Aggregations in several stages, unions, and output modes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("several stages")
unions = Chapter("unions")
modes = Chapter("output modes")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def the_most_of_a_window(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "20 seconds"), "device").count().groupBy("window").agg(F.max("count").alias("most"))


@chapter
def windows_of_windows(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "10 seconds"), "device")
        .count()
        .groupBy(F.window("window", "40 seconds"), "device")
        .agg(F.sum("count").alias("sum"))
    )


@chapter
def windows_of_window_time(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "10 seconds"), "device").agg(F.avg("reading").alias("mean"))
    return made.groupBy(F.window(F.window_time("window"), "1 minute")).agg(F.max("mean").alias("most"))


@chapter
def three_stages(given: Inputs) -> Any:
    first = timely(given).groupBy(F.window("ts", "5 seconds"), "device", "kind").count()
    second = first.groupBy(F.window("window", "20 seconds"), "device").agg(F.max("count").alias("most"))
    return second.groupBy(F.window("window", "1 minute")).agg(F.sum("most").alias("sum"))


@chapter
def a_condition_between(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "20 seconds"), "device")
        .count()
        .where("count > 3")
        .groupBy("window")
        .agg(F.count("*").alias("busy"))
    )


@chapter
def an_expression_between(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "20 seconds"), "device", "kind").agg(F.sum("level").alias("s"))
    return made.withColumn("odd", F.col("s") % 2 == 1).groupBy("window", "odd").agg(F.count("*").alias("n"), F.max("s").alias("most"))


@chapter
def counts_of_sessions(given: Inputs) -> Any:
    made = timely(given).groupBy("device", F.session_window("ts", "4 seconds")).agg(F.count("*").alias("n"))
    return made.groupBy(F.window("session_window", "1 minute")).agg(F.count("*").alias("sessions"), F.max("n").alias("longest"))


@chapter
def duplicates_then_two_stages(given: Inputs) -> Any:
    made = timely(given).dropDuplicates(["id", "ts"]).groupBy(F.window("ts", "15 seconds"), "kind").agg(F.avg("reading").alias("m"))
    return made.groupBy(F.window("window", "30 seconds")).agg(F.max("m").alias("most"))


@chapter
def the_distinct_of_windows(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), "device").agg(F.count("*").alias("n")).select("window", "n").dropDuplicates()


@chapter
def joined_with_a_table_between(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "20 seconds"), "device").count().join(given.devices, "device")
    return made.groupBy("window", "owner").agg(F.sum("count").alias("n"))


@unions
def of_two_streams(given: Inputs) -> Any:
    return given.impressions.select("ad", F.col("shown").alias("at")).union(given.clicks.select("ad", "clicked"))


@unions
def by_name(given: Inputs) -> Any:
    a = given.impressions.withWatermark("shown", "10 seconds").select("ad", F.col("shown").alias("at"), F.lit("shown").alias("what"))
    b = given.clicks.withWatermark("clicked", "20 seconds").select(F.lit("clicked").alias("what"), F.col("clicked").alias("at"), "ad")
    return a.unionByName(b).groupBy(F.window("at", "30 seconds"), "what").count()


@unions
def with_missing_columns(given: Inputs) -> Any:
    a = given.impressions.withWatermark("shown", "10 seconds").select(F.col("shown").alias("at"), "ad", "site")
    b = given.clicks.withWatermark("clicked", "20 seconds").select(F.col("clicked").alias("at"), "ad", "person")
    return a.unionByName(b, allowMissingColumns=True).where("ad > 2")


@unions
def of_other_types(given: Inputs) -> Any:
    a = given.events.withWatermark("ts", "10 seconds").select("ts", F.col("level").alias("v"))
    return (
        a.union(given.events.withWatermark("ts", "10 seconds").select("ts", "total"))
        .groupBy(F.window("ts", "30 seconds"))
        .agg(F.sum("v").alias("sum"))
    )


@unions
def then_no_duplicates(given: Inputs) -> Any:
    return given.impressions.select("ad").union(given.clicks.select("ad")).distinct()


@unions
def of_branches(given: Inputs) -> Any:
    rows = timely(given)
    warm, open_ = (
        rows.where("reading > 20").select("id", F.lit("warm").alias("why")),
        rows.where("kind = 'door'").select("id", F.lit("door").alias("why")),
    )
    return warm.unionAll(open_)


@unions
def of_windows(given: Inputs) -> Any:
    a = given.impressions.withWatermark("shown", "10 seconds").groupBy(F.window("shown", "30 seconds"), "ad").count()
    return a.union(given.clicks.withWatermark("clicked", "20 seconds").groupBy(F.window("clicked", "30 seconds"), "ad").count())


@modes.update("device")
def running_counts(given: Inputs) -> Any:
    return given.events.groupBy("device").count()


@modes.update("k", "odd")
def running_by_expressions(given: Inputs) -> Any:
    return given.events.groupBy(F.upper("kind").alias("k"), (F.col("level") % 2).alias("odd")).agg(
        F.avg("reading").alias("m"), F.min("level").alias("least")
    )


@modes.update("device", "window")
def windows_updated(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), "device").agg(F.sum("level").alias("s"))


@modes.update("device", "ends")
def updated_windows_by_their_end(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "30 seconds", "10 seconds"), "device").agg(F.count("*").alias("n"))
    return made.select("device", F.col("window.end").alias("ends"), "n")


@modes.update("kind")
def running_without_nulls(given: Inputs) -> Any:
    return (
        given.events.where("reading IS NOT NULL")
        .groupBy("kind")
        .agg(F.max("reading").alias("most"), F.sum("total").alias("sum"), F.count("level").alias("n"))
    )


@modes.update("city")
def running_by_a_field(given: Inputs) -> Any:
    return given.events.groupBy("place.city").agg(F.count("*").alias("n"))


@modes.update("device")
def running_statistics(given: Inputs) -> Any:
    return given.events.groupBy("device").agg(F.stddev("reading").alias("s"), F.approx_count_distinct("level").alias("levels"))


@modes.update("ad")
def running_over_a_union(given: Inputs) -> Any:
    return given.impressions.select("ad").union(given.clicks.select("ad")).groupBy("ad").count()


@modes.complete
def the_whole_table(given: Inputs) -> Any:
    return given.events.groupBy("device", "kind").agg(F.count("*").alias("n"), F.max("id").alias("last"))


@modes.complete
def the_best_ten(given: Inputs) -> Any:
    return given.events.groupBy("device", "kind").count().orderBy(F.desc("count"), "device", "kind").limit(10)


@modes.complete
def all_windows(given: Inputs) -> Any:
    return given.events.groupBy(F.window("ts", "30 seconds"), "kind").agg(F.avg("reading").alias("m"))


@modes.complete
def sorted_windows(given: Inputs) -> Any:
    return given.events.groupBy(F.window("ts", "30 seconds")).agg(F.sum("level").alias("s")).orderBy("window")


@modes.complete
def in_total(given: Inputs) -> Any:
    return given.events.agg(F.count("*").alias("n"), F.sum("total").alias("sum"), F.avg("reading").alias("m"))


@modes.complete
def a_whole_table_of_tables(given: Inputs) -> Any:
    return given.orders.join(given.customers, "customer", "left").groupBy("country").agg(F.count("*").alias("n")).where("n > 1")


@modes.complete
def two_stages_in_complete_mode(given: Inputs) -> Any:
    return given.events.groupBy("device", "kind").count().groupBy("device").agg(F.sum("count").alias("n"), F.count("*").alias("kinds"))
