"""The state of a box as a DataFrame: read by real executors, from a directory and a bucket, and compared with what Spark computes of the
rows that the sources had given by then."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import CheckpointCorrupt, LocationError, OperationRefused, OptionError, UnknownColumn
from evenflow.store.opening import open_store
from tests.golden import PARTITIONS, copied, golden, source
from tests.store.conftest import s3_bucket, s3_endpoint  # noqa: F401
from tests.store.s3_server import ACCESS
from tests.world.test_state import stopped_in_the_middle

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def given(spark: Any, location: str) -> Any:
    """The rows that the sources had given by the newest checkpoint."""
    rows: list[tuple[int, int]] = []
    for at in ef.checkpoints(location).inspect().sources:
        reader, mine = replace(source(), begin_us=1).open(at.partition, PARTITIONS), list[dict[str, Any]]()
        while len(mine) < at.position:
            batch = reader.read(2**60, at.position - len(mine))
            assert batch is not None
            mine += batch.to_pylist()
        rows += [(row["key"], row["value"]) for row in mine]
    return spark.createDataFrame(rows, "key bigint, value bigint")


def same(one: Any, other: Any) -> None:
    assert one.columns == other.columns
    found = Counter(map(tuple, one.collect()))
    assert found == Counter(map(tuple, other.collect())) and found


def test_state_is_what_spark_computes_of_the_same_rows(spark: Any) -> None:
    location = str(golden())
    made = given(spark, location)
    made.createOrReplaceTempView("made")
    same(ef.read_state(spark, location, "totals"), spark.sql("select key, count(*) n, sum(value) total from made group by key"))
    same(
        ef.read_state(spark, location, "hours").drop("window_start", "window_end"),
        spark.sql("select key, count(*) n, min(string(value)) least, max(string(value)) greatest from made group by key"),
    )
    same(ef.read_state(spark, location, "firsts"), spark.sql("select distinct value % 40000 bucket from made"))
    visits = ef.read_state(spark, location, "visits")
    same(visits.select("key", "n"), spark.sql("select key, count(*) n from made group by key"))
    types = dict(visits.dtypes)
    assert types == {"key": "bigint", "window_start": "timestamp_ntz", "window_end": "timestamp_ntz", "n": "bigint"}
    table = ef.checkpoints(location).state("visits").to_pylist()
    assert Counter(map(tuple, visits.collect())) == Counter(tuple(row.values()) for row in table)
    assert visits.rdd.getNumPartitions() == 2, "a task for each site that has written some"
    objects = [f"{location}/{name}" for each in ef.checkpoints(location).inspect().boxes for name in each.objects if each.box == "totals"]
    assert spark.read.parquet(*objects).count() == pq.read_table(objects).num_rows > 0, "objects are files for any reader"


@pytest.mark.conformance
def test_kinds_of_state_come_with_their_types(spark: Any, tmp_path: Path) -> None:
    """Goal: structs, maps, lists, and what has identities only. Method: a run without Spark writes it, executors read it."""
    location = stopped_in_the_middle(str(tmp_path / "location"))
    found = ef.checkpoints(location)
    for each in found.inspect().boxes:
        frame = ef.read_state(spark, found, each.box, kind=each.kind)
        table = found.state(each.box, kind=each.kind)
        assert frame.columns == table.column_names and frame.count() == table.num_rows, each
    types = dict(ef.read_state(spark, location, "remembered").dtypes)
    assert types == {"key": "bigint", "seen": "bigint", "name": "string", "last": "array<bigint>", "times": "map<boolean,bigint>"}
    row = ef.read_state(spark, location, "joined").where("_side = 'left'").first()
    assert row.right is None and row.left.value < 20
    pairs = found.state("pairs").num_rows
    keys = spark.range(50).selectExpr("id % 40 part", "0 more", "string(id) name").crossJoin(spark.range(50).selectExpr("id other"))
    named = ef.read_state(spark, location, "pairs", keys=keys.selectExpr("name", "other as part", "more"))
    assert named.columns == ["name", "part", "n"] and named.count() == pairs
    totals = {str(row["key"]): row["n"] for row in found.state("totals").to_pylist()}
    assert {row["name"]: row["n"] for row in named.groupBy("name").sum("n").withColumnRenamed("sum(n)", "n").collect()} == totals
    with pytest.raises(UnknownColumn, match="has no column 'part'"):
        ef.read_state(spark, location, "pairs", keys=keys.select("name"))
    with pytest.raises(OperationRefused, match="has its keys itself"):
        ef.read_state(spark, location, "totals", keys=keys)


@pytest.mark.conformance
def test_of_a_bucket_the_executors_read_it_too(spark: Any, s3_endpoint: str, s3_bucket: str) -> None:  # noqa: F811
    url, options = f"s3://{s3_bucket}/{uuid.uuid4().hex[:12]}/where", {**ACCESS, "endpoint_url": s3_endpoint}
    here, there = open_store(str(golden())), open_store(url, options)
    for name in here.names():
        there.put(name, here.get(name))
    for location, more in ((url, {"options": options}), (ef.checkpoints(url, options), {})):
        same(ef.read_state(spark, location, "totals", **more), ef.read_state(spark, str(golden()), "totals"))
    with pytest.raises(OptionError, match="options were given to ef.checkpoints"):
        ef.read_state(spark, ef.checkpoints(url, options), "totals", options=options)


def test_what_is_wrong_is_said_before_or_by_the_task(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="is no checkpoint location"):
        ef.read_state(spark, str(tmp_path / "none"), "totals")
    with pytest.raises(OperationRefused, match="Did you mean 'totals'"):
        ef.read_state(spark, str(golden()), "total")
    location = copied(tmp_path)
    newest = [each.name for each in ef.checkpoints(location).list() if each.complete][-1]
    name = next(each for each in ef.checkpoints(location).inspect().boxes if each.box == "totals").objects[-1]
    data = (Path(location) / name).read_bytes()
    (Path(location) / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    frame = ef.read_state(spark, location, "totals")
    with pytest.raises(Exception, match=f"CheckpointCorrupt: object '{name}' with the state of box 'totals', partitions"):
        frame.collect()
    (Path(location) / name).unlink()
    with pytest.raises(CheckpointCorrupt, match="is missing"):
        ef.read_state(spark, location, "totals", checkpoint=newest)
