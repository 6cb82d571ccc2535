"""TPC-H's queries as maintained views are what batch Spark gives for what is left, after each tenth of inserts, updates and deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evenflow.bench.tpch.changes import Tenth, generated, tenths
from evenflow.bench.tpch.queries import QUERIES, TABLES, tables_of
from evenflow.bench.tpch.running import Batch, outcome, report

pytestmark = pytest.mark.oracle
FEW = ("q4", "q13", "q15")
"""A semi join, an outer join below an aggregate of an aggregate, and the greatest of totals."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Tenth]:
    return tenths(generated(0.001, Path(tmp_path_factory.mktemp("tpch"))))


def test_what_is_left_is_what_the_changes_leave(parts: list[Tenth]) -> None:
    rows = dict.fromkeys(TABLES, 0)
    for tenth in parts:
        for name in TABLES:
            kinds = tenth.changes[name]["_change"].to_pylist()
            assert kinds.count("update_before") == kinds.count("update_after")
            rows[name] += kinds.count("insert") - kinds.count("delete")
            assert tenth.left[name].num_rows == rows[name]
    assert sum(rows.values()) > 5000
    assert tables_of(QUERIES["q13"]) == ("customer", "orders")


def check(names: tuple[str, ...], parts: list[Tenth], spark: Any) -> None:
    arrow = spark.conf.get("spark.sql.execution.arrow.pyspark.enabled")
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    try:
        found = [outcome(name, parts, Batch(spark)) for name in names]
    finally:
        spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", arrow)
    said = report(found, 0.001)
    assert [(each["name"], each["refused"], each["different"]) for each in said["queries"]] == [(name, None, []) for name in names]
    assert said["equal"] == len(names)


def test_some_of_few_rows(parts: list[Tenth], spark: Any) -> None:
    check(FEW, parts[:2], spark)


@pytest.mark.conformance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", QUERIES)
def test_all_of_them(name: str, parts: list[Tenth], spark: Any) -> None:
    check((name,), parts, spark)


def test_rows_too_many_and_missing_are_told() -> None:
    from collections import Counter

    from evenflow.bench.tpch.running import _rows, differing

    one = Counter(_rows(pa.table({"a": [1, 2], "d": [0.1, 0.30000000000000004]})))
    assert differing(one, Counter({(1, 0.1): 1, (2, 0.3): 1})) is None
    assert "1 rows too many" in str(differing(one, Counter({(1, 0.1): 1})))
