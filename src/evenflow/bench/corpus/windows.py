"""Windows of event time: tumbling, sliding, with a start, with conditions, with every aggregate."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("windows")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def counts(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "20 seconds")).count()


@chapter
def counts_by_device(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), "device").count()


@chapter
def sliding(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds", "10 seconds"), "kind")
        .agg(F.sum("level").alias("sum"), F.avg("reading").alias("mean"))
    )


@chapter
def with_a_start(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds", "30 seconds", "7 seconds")).agg(F.max("reading").alias("most"))


@chapter
def start_and_end(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("ts", "20 seconds"), "device").agg(F.min("level").alias("least"))
    return made.select(F.col("window.start").alias("begins"), F.col("window.end").alias("ends"), "device", "least")


@chapter
def having(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "20 seconds"), "device").agg(F.count("*").alias("n")).where("n > 2")


@chapter
def statistics(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "40 seconds"), "kind")
        .agg(
            F.stddev("reading").alias("s"),
            F.variance("reading").alias("v"),
            F.stddev_pop("reading").alias("sp"),
            F.var_pop("reading").alias("vp"),
        )
    )


@chapter
def skew_and_correlation(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "60 seconds"))
        .agg(
            F.skewness("reading").alias("s"),
            F.kurtosis("reading").alias("k"),
            F.corr("reading", "level").alias("c"),
            F.covar_pop("reading", "level").alias("p"),
        )
    )


@chapter
def conditions_inside(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"))
        .agg(
            F.sum(F.when(F.col("kind") == "door", 1).otherwise(0)).alias("doors"),
            F.count_if(F.col("level") > 4).alias("high"),
            F.expr("count(*) FILTER (WHERE reading > 20)").alias("warm"),
        )
    )


@chapter
def every_and_some(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), "kind").agg(F.bool_and("ok").alias("all"), F.bool_or("ok").alias("some"))


@chapter
def the_newest_by_time(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"), "device")
        .agg(F.max_by("total", "id").alias("newest"), F.min_by("label", "id").alias("oldest"))
    )


@chapter
def distinct_values(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "40 seconds"))
        .agg(F.countDistinct("device").alias("devices"), F.countDistinct("kind", "level").alias("pairs"))
    )


@chapter
def about_distinct_values(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "40 seconds")).agg(F.approx_count_distinct("device").alias("devices"))


@chapter
def lists_sorted(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "20 seconds"), "kind").agg(F.sort_array(F.collect_list("level")).alias("levels"))


@chapter
def sets_sorted(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "40 seconds")).agg(F.sort_array(F.collect_set("device")).alias("devices"))


@chapter
def a_median(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "40 seconds"), "kind")
        .agg(F.median("reading").alias("m"), F.percentile("level", 0.9).alias("p"))
    )


@chapter
def an_expression_of_aggregates(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"), "device")
        .agg(
            (F.sum("reading") / F.count("reading")).alias("mean"),
            (F.max("level") - F.min("level")).alias("range"),
        )
    )


@chapter
def an_expression_as_key(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "30 seconds"), (F.col("level") % 2).alias("odd"), F.upper("kind").alias("K"))
        .agg(F.count("*").alias("n"))
    )


@chapter
def of_an_hour(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "1 hour", "30 minutes"), "device").agg(F.sum("total").alias("sum"))


@chapter
def filtered_before_and_after(given: Inputs) -> Any:
    made = timely(given).where("kind = 'temp'").groupBy(F.window("ts", "20 seconds"), "device").agg(F.avg("reading").alias("mean"))
    return made.where("mean > 10").select("device", F.round("mean", 3).alias("mean"), F.col("window.end").alias("at"))


@chapter
def the_whole_window_selected(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "20 seconds").alias("w"), "kind")
        .count()
        .select("w", "kind", (F.col("count") * 10).alias("ten"))
    )


@chapter
def time_of_the_window(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "20 seconds"), "kind").count().select(F.window_time("window").alias("at"), "kind", "count")


@chapter
def without_keys_and_many(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("ts", "15 seconds"))
        .agg(*[f("reading").alias(f.__name__) for f in (F.min, F.max, F.sum, F.avg, F.count)])
    )


@chapter
def rolled_up(given: Inputs) -> Any:
    return timely(given).rollup(F.window("ts", "30 seconds"), "kind").agg(F.count("*").alias("n")).where("window is not null")


@chapter
def products_and_modes(given: Inputs) -> Any:
    return (
        timely(given).where("level > 0").groupBy(F.window("ts", "20 seconds")).agg(F.product("level").alias("p"), F.bit_or("id").alias("b"))
    )
