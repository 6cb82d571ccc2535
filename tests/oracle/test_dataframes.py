"""Methods that streams have from PySpark's DataFrames give what these give."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.running import sort_key
from tests.query.test_cleaned import GIVEN, OTHERS, ROWS, TAGS, drawn

pytestmark = pytest.mark.oracle

SCHEMAS = ("id bigint, who string, qty int, x double, ok boolean", "id bigint, tags array<string>", "name string, town string")


def test_streams_are_cleaned_as_dataframes_are(spark: Any) -> None:
    frames = [
        spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)
        for table, schema in zip((ROWS, TAGS, OTHERS), SCHEMAS, strict=True)
    ]
    for name, (draw, wanted) in GIVEN.items():
        found = draw(*frames)
        assert sorted(map(tuple, found.collect()), key=sort_key) == sorted(wanted, key=sort_key), name
        assert drawn(draw)[0] == found.columns, name


def test_joins_by_columns(spark: Any) -> None:
    from pyspark.sql import functions as F

    def draw(t: Any, _: Any, o: Any) -> Any:
        if hasattr(t, "flow"):
            o = o.group_by("name", "town").agg(n="count(*)", mode="changelog")
        else:
            o = o.groupBy("name", "town").agg(F.count("*").alias("n"))
        return t.select("id", "who").join(o, [F.col("who") == F.col("name"), F.col("id") > F.col("n") + 1], "left")

    frames = [
        spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)
        for table, schema in zip((ROWS, TAGS, OTHERS), SCHEMAS, strict=True)
    ]
    columns, rows = drawn(draw)
    wanted = draw(*frames)
    assert (columns, rows) == (wanted.columns, sorted(map(tuple, wanted.collect()), key=str))


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_joins_by_a_name_in_other_letters(spark: Any, how: str) -> None:
    from pyspark.sql import functions as F

    def draw(t: Any, _: Any, o: Any) -> Any:
        if hasattr(t, "flow"):
            o = o.group_by("name").agg(n="count(*)", mode="changelog")
        else:
            o = o.groupBy("name").agg(F.count("*").alias("n"))
        return t.select("id", "who").join(o.withColumnRenamed("NAME", "WHO"), "Who", how)

    frames = [
        spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)
        for table, schema in zip((ROWS, TAGS, OTHERS), SCHEMAS, strict=True)
    ]
    columns, rows = drawn(draw)
    wanted = draw(*frames)
    assert (columns, rows) == (wanted.columns, sorted(map(tuple, wanted.collect()), key=str))
