"""Strings."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from evenflow.bench.corpus.query import Chapter, Inputs

chapter = Chapter("strings")


def timely(given: Inputs) -> Any:
    return given.events.withWatermark("ts", "10 seconds")


@chapter
def cases(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.upper("label").alias("u"), F.lower("label").alias("l"), F.initcap("label").alias("i"), F.length("label").alias("n"))
    )


@chapter
def trimmed_and_padded(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.trim("label").alias("t"),
            F.ltrim("label").alias("l"),
            F.lpad("device", 5, "0").alias("p"),
            F.rpad("device", 4, "x").alias("r"),
        )
    )


@chapter
def parts(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.substring("label", 2, 3).alias("s"),
            F.left("label", F.lit(2)).alias("l"),
            F.right("label", F.lit(2)).alias("r"),
            F.substring_index("label", " ", 1).alias("i"),
        )
    )


@chapter
def put_together(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.concat("device", F.lit(":"), "kind").alias("c"),
            F.concat_ws("-", "device", "label", "kind").alias("w"),
            F.format_string("%s has %d", "device", "id").alias("f"),
        )
    )


@chapter
def patterns(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.regexp_extract("label", r"([a-z]+)", 1).alias("e"),
            F.regexp_replace("label", "[aeiou]", "*").alias("r"),
            F.regexp_like("label", F.lit("a$")).alias("l"),
        )
    )


@chapter
def more_patterns(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.regexp_count("label", F.lit("a")).alias("c"),
            F.regexp_extract_all("label", F.lit("([a-z])"), F.lit(1)).alias("a"),
            F.regexp_instr("label", F.lit("[a-z]")).alias("i"),
            F.regexp_substr("label", F.lit("[a-z]+")).alias("s"),
        )
    )


@chapter
def split(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.split("label", " ").alias("words"), F.size(F.split("label", "a")).alias("n"))


@chapter
def the_second_word(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.split("body", ",")[0].alias("first"), F.split_part("device", F.lit("d"), F.lit(2)).alias("p"))
    )


@chapter
def found(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.instr("label", "a").alias("i"),
            F.locate("a", "label", 2).alias("l"),
            F.col("label").contains("et").alias("c"),
            F.col("label").startswith("A").alias("s"),
        )
    )


@chapter
def replaced(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.translate("label", "abc", "xy").alias("t"),
            F.replace("label", F.lit("a"), F.lit("AA")).alias("r"),
            F.reverse("label").alias("v"),
            F.repeat("device", 2).alias("d"),
            F.overlay("label", F.lit("__"), 2).alias("o"),
        )
    )


@chapter
def coded(given: Inputs) -> Any:
    return (
        timely(given)
        .where("id < 60")
        .select(
            "id",
            F.base64(F.encode("device", "utf-8")).alias("b"),
            F.hex(F.encode("label", "utf-8")).alias("h"),
            F.ascii("kind").alias("a"),
            F.char(F.col("id") + 65).alias("c"),
            F.unbase64(F.base64(F.encode("device", "utf-8"))).cast("string").alias("u"),
        )
    )


@chapter
def distances(given: Inputs) -> Any:
    return timely(given).where("id < 60").select("id", F.levenshtein("kind", "label").alias("l"), F.soundex("label").alias("s"))


@chapter
def addresses(given: Inputs) -> Any:
    url = F.concat(F.lit("https://a.example/p?user="), "device", F.lit("&n=1"))
    return (
        timely(given)
        .where("id < 60")
        .select("id", F.parse_url(url, F.lit("HOST")).alias("h"), F.parse_url(url, F.lit("QUERY"), F.lit("user")).alias("u"))
    )


@chapter
def grouped_by_a_part(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds"), F.substring("kind", 1, 1).alias("k"), F.length("label").alias("n")).count()


@chapter
def joined_texts(given: Inputs) -> Any:
    return timely(given).groupBy(F.window("ts", "30 seconds")).agg(F.concat_ws(",", F.array_sort(F.collect_list("kind"))).alias("kinds"))
