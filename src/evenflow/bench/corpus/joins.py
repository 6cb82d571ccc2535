"""Joins of streams: inner, outer, semi and anti, with and without bounds in time, and of windows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("joins")
windows = Chapter("window joins")


def ads(given: Inputs) -> tuple[Any, Any]:
    return given.impressions.withWatermark("shown", "10 seconds").alias("i"), given.clicks.withWatermark("clicked", "20 seconds").alias("c")


def sales(given: Inputs) -> tuple[Any, Any]:
    return given.orders.withWatermark("at", "10 seconds").alias("o"), given.payments.withWatermark("paid", "20 seconds").alias("p")


WITHIN = "i.ad = c.ad AND c.clicked >= i.shown AND c.clicked <= i.shown + INTERVAL 20 SECONDS"


@chapter
def inner_with_bounds(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN)).drop(F.col("c.ad"))


@chapter
def inner_without_watermarks(given: Inputs) -> Any:
    return given.orders.join(given.payments, "order_id").select("order_id", "customer", "method", "price")


@chapter
def inner_by_name_with_watermarks(given: Inputs) -> Any:
    o, p = sales(given)
    return o.join(p, "order_id").where("status <> 'void'").select("order_id", "paid", "at", "method")


@chapter
def left_outer(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN), "leftOuter").select("i.ad", "shown", "site", "person", "clicked")


@chapter
def right_outer(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN), "rightOuter").select("site", F.col("c.ad").alias("ad"), "clicked")


@chapter
def full_outer(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN), "fullOuter").select(F.coalesce("i.ad", "c.ad").alias("ad"), "shown", "clicked", "person")


@chapter
def left_semi(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN), "leftSemi")


@chapter
def left_semi_of_payments(given: Inputs) -> Any:
    o, p = sales(given)
    return o.join(
        p, F.expr("o.order_id = p.order_id AND p.paid BETWEEN o.at - INTERVAL 10 SECONDS AND o.at + INTERVAL 1 MINUTE"), "left_semi"
    ).select("order_id", "status")


@chapter
def never_clicked(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN), "leftOuter").where("person IS NULL").select("i.ad", "shown")


@chapter
def bounds_written_as_columns(given: Inputs) -> Any:
    i, c = ads(given)
    late = F.col("clicked") <= F.col("shown") + F.expr("INTERVAL 15 SECONDS")
    return i.join(c, (F.col("i.ad") == F.col("c.ad")) & (F.col("clicked") >= F.col("shown")) & late).select("i.ad", "person", "site")


@chapter
def another_condition(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr(WITHIN + " AND i.cost > 0.25 AND c.person <> 'p1'")).select("i.ad", "cost", "person")


@chapter
def computed_keys(given: Inputs) -> Any:
    o, p = sales(given)
    return o.join(
        p, F.expr("o.order_id + 1000 = p.payment_id AND p.paid >= o.at - INTERVAL 30 SECONDS AND p.paid <= o.at + INTERVAL 30 SECONDS")
    ).select(F.col("o.order_id").alias("order_id"), "payment_id", "customer")


@chapter
def two_keys(given: Inputs) -> Any:
    t = given.events.withWatermark("ts", "10 seconds").select("device", "kind", "ts", "id").alias("a")
    u = given.events.withWatermark("ts", "10 seconds").selectExpr("device AS d", "kind AS k", "ts AS at", "level").alias("b")
    return t.join(u, F.expr("device = d AND kind = k AND at BETWEEN ts AND ts + INTERVAL 3 SECONDS")).select(
        "device", "kind", "id", "level"
    )


@chapter
def joined_then_counted(given: Inputs) -> Any:
    i, c = ads(given)
    return (
        i.join(c, F.expr(WITHIN))
        .groupBy(F.window("shown", "30 seconds"), "site")
        .agg(F.count("*").alias("clicks"), F.sum("cost").alias("cost"))
    )


@chapter
def counted_then_joined(given: Inputs) -> Any:
    i, c = ads(given)
    n = i.groupBy(F.window("shown", "30 seconds"), "ad").count().select("ad", "count", F.window_time("window").alias("until")).alias("n")
    return n.join(c, F.expr("n.ad = c.ad AND c.clicked BETWEEN n.until AND n.until + INTERVAL 30 SECONDS")).select(
        "n.ad", "count", "person"
    )


@chapter
def expressions_above(given: Inputs) -> Any:
    o, p = sales(given)
    made = o.join(p, F.expr("o.order_id = p.order_id AND paid >= at - INTERVAL 10 SECONDS AND paid <= at + INTERVAL 30 SECONDS"))
    return made.select(
        F.col("o.order_id").alias("id"), (F.unix_timestamp("paid") - F.unix_timestamp("at")).alias("waited"), F.upper("method").alias("how")
    )


@chapter
def three_streams(given: Inputs) -> Any:
    o, p = sales(given)
    first = o.join(p, F.expr("o.order_id = p.order_id AND paid >= at - INTERVAL 10 SECONDS AND paid <= at + INTERVAL 30 SECONDS"))
    e = given.events.withWatermark("ts", "10 seconds").alias("e")
    return first.join(e, F.expr("customer = concat('c', substr(device, 2)) AND ts BETWEEN paid AND paid + INTERVAL 2 SECONDS")).select(
        "customer", "payment_id", "id"
    )


@chapter
def by_the_same_time(given: Inputs) -> Any:
    a = given.events.withWatermark("ts", "10 seconds").where("kind = 'temp'").select("ts", "device", "reading").alias("a")
    b = (
        given.events.withWatermark("ts", "10 seconds")
        .where("kind = 'hum'")
        .select("ts", "device", F.col("reading").alias("hum"))
        .alias("b")
    )
    return a.join(b, F.expr("a.device = b.device AND date_trunc('minute', a.ts) = date_trunc('minute', b.ts)")).select(
        "a.device", "reading", "hum"
    )


@chapter
def null_safe_keys(given: Inputs) -> Any:
    i, c = ads(given)
    return i.join(c, F.expr("i.ad <=> c.ad AND c.clicked BETWEEN i.shown AND i.shown + INTERVAL 10 SECONDS")).select("i.ad", "person")


@chapter
def deduplicated_then_joined(given: Inputs) -> Any:
    i, c = ads(given)
    return (
        i.dropDuplicates(["ad", "shown"])
        .join(c, F.expr("i.ad = c.ad AND c.clicked BETWEEN i.shown AND i.shown + INTERVAL 10 SECONDS"))
        .select("i.ad", "person", "shown")
    )


@windows
def of_two_counts(given: Inputs) -> Any:
    i, c = ads(given)
    shown = i.groupBy(F.window("shown", "30 seconds"), "ad").agg(F.count("*").alias("shown"))
    return shown.join(c.groupBy(F.window("clicked", "30 seconds"), "ad").agg(F.count("*").alias("clicks")), ["window", "ad"])


@windows
def of_windows_alone(given: Inputs) -> Any:
    i, c = ads(given)
    return (
        i.groupBy(F.window("shown", "20 seconds"))
        .count()
        .join(c.groupBy(F.window("clicked", "20 seconds")).agg(F.count("*").alias("clicks")), "window")
    )


@windows
def outer(given: Inputs) -> Any:
    i, c = ads(given)
    shown = i.groupBy(F.window("shown", "30 seconds"), "ad").agg(F.sum("cost").alias("cost"))
    return shown.join(c.groupBy(F.window("clicked", "30 seconds"), "ad").agg(F.count("*").alias("clicks")), ["window", "ad"], "left_outer")


@windows
def of_rows_with_their_window(given: Inputs) -> Any:
    i, c = ads(given)
    left = i.select("ad", "site", F.window("shown", "30 seconds").alias("w"))
    return left.join(c.select("ad", "person", F.window("clicked", "30 seconds").alias("w")), ["ad", "w"])


@windows
def rate_of_clicks(given: Inputs) -> Any:
    i, c = ads(given)
    shown = i.groupBy(F.window("shown", "30 seconds"), "ad").agg(F.count("*").alias("shown"))
    both = shown.join(c.groupBy(F.window("clicked", "30 seconds"), "ad").agg(F.count("*").alias("clicks")), ["window", "ad"])
    return both.select("ad", F.col("window.start").alias("at"), (F.col("clicks") / F.col("shown")).alias("rate"))


@windows
def joined_on_its_start(given: Inputs) -> Any:
    i, c = ads(given)
    shown = i.groupBy(F.window("shown", "30 seconds"), "ad").agg(F.count("*").alias("shown")).alias("s")
    clicked = c.groupBy(F.window("clicked", "30 seconds"), "ad").agg(F.count("*").alias("clicks")).alias("k")
    return shown.join(clicked, F.expr("s.window = k.window AND s.ad = k.ad")).select("s.window", "s.ad", "shown", "clicks")


@windows
def sliding(given: Inputs) -> Any:
    o, p = sales(given)
    sold = o.groupBy(F.window("at", "40 seconds", "20 seconds")).agg(F.count("*").alias("orders"))
    return sold.join(p.groupBy(F.window("paid", "40 seconds", "20 seconds")).agg(F.count("*").alias("payments")), "window")


@windows
def grouped_again(given: Inputs) -> Any:
    i, c = ads(given)
    shown = i.groupBy(F.window("shown", "30 seconds"), "ad").agg(F.count("*").alias("shown"))
    both = shown.join(c.groupBy(F.window("clicked", "30 seconds"), "ad").agg(F.count("*").alias("clicks")), ["window", "ad"])
    return both.groupBy("window").agg(F.sum("shown").alias("shown"), F.max("clicks").alias("most"))
