"""Decimals: sums, averages, arithmetic and casts with the precision that Spark gives them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("decimals")


def timely(given: Inputs) -> Any:
    return given.orders.withWatermark("at", "10 seconds")


@chapter
def sums(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("at", "30 seconds")).agg(F.sum("price").alias("sum"))


@chapter
def averages(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("at", "30 seconds"), "status").agg(F.avg("price").alias("mean"))


@chapter
def least_and_most(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("at", "30 seconds"))
        .agg(F.min("price").alias("least"), F.max("price").alias("most"), F.count("price").alias("n"))
    )


@chapter
def products(given: Inputs) -> Any:
    return timely(given).where("status = 'new'").select("order_id", (F.col("price") * F.col("count")).alias("cost"))


@chapter
def taxes(given: Inputs) -> Any:
    return (
        timely(given).where("status = 'new'").selectExpr("order_id", "price * 0.19 AS tax", "price + 1.5 AS more", "price - count AS less")
    )


@chapter
def divided(given: Inputs) -> Any:
    return timely(given).where("status = 'sent'").selectExpr("order_id", "price / count AS each", "price % 7 AS rest")


@chapter
def compared(given: Inputs) -> Any:
    return timely(given).where("price >= 250.50 AND price < 800").select("order_id", "price")


@chapter
def cast_and_rounded(given: Inputs) -> Any:
    return (
        timely(given)
        .where("count > 2")
        .selectExpr(
            "order_id",
            "CAST(price AS DECIMAL(10,1)) AS tenth",
            "round(price) AS whole",
            "CAST(price AS STRING) AS text",
            "CAST(price AS DOUBLE) AS d",
            "CAST(price AS INT) AS i",
        )
    )


@chapter
def sum_of_products(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("at", "40 seconds"), "customer").agg(F.sum(F.col("price") * F.col("count")).alias("sum"))


@chapter
def summed_by_condition(given: Inputs) -> Any:
    return (
        timely(given)
        .groupBy(F.window("at", "40 seconds"))
        .agg(F.sum(F.when(F.col("status") == "void", -F.col("price")).otherwise(F.col("price"))).alias("net"))
    )


@chapter.update("customer")
def running_sums(given: Inputs) -> Any:
    return given.orders.groupBy("customer").agg(F.sum("price").alias("sum"), F.avg("price").alias("mean"))


@chapter
def sums_of_sums(given: Inputs) -> Any:
    made = timely(given).groupBy(F.window("at", "20 seconds"), "customer").agg(F.sum("price").alias("sum"))
    return made.groupBy("window").agg(F.max("sum").alias("most"), F.sum("sum").alias("all"))


@chapter
def absolute_and_negative(given: Inputs) -> Any:
    return (
        given.events.withWatermark("ts", "10 seconds")
        .where("id < 60")
        .selectExpr("id", "abs(amount) AS a", "-amount AS n", "ceil(amount) AS c", "floor(amount) AS f", "coalesce(amount, 0) AS z")
    )


@chapter
def joined_amounts(given: Inputs) -> Any:
    o, p = timely(given).alias("o"), given.payments.withWatermark("paid", "20 seconds").alias("p")
    return o.join(p, F.expr("o.order_id = p.order_id AND paid BETWEEN at - INTERVAL 10 SECONDS AND at + INTERVAL 40 SECONDS")).select(
        F.col("o.order_id").alias("id"), (F.col("price") - F.col("sum")).alias("owed")
    )
