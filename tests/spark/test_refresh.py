"""Tables that are refreshed while rows flow, on real executors: files that are written anew, and a view that is defined anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.errors import OperationRefused, TableError
from tests.worlds.dataflows import PARTITIONS, Gated, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
ROWS = 40_000
NAMES, LEFT_OUT = 500, 3


def write(spark: Any, path: Path, version: int) -> None:
    """A name for each key but one."""
    names = spark.range(0, NAMES).selectExpr("id as key", f"concat('name {version} of ', id) as name").where(f"key <> {LEFT_OUT}")
    names.write.mode("overwrite").parquet(str(path))


def define(spark: Any, version: int) -> None:
    spark.range(0, 10).selectExpr("id as part", f"{version} as version").createOrReplaceTempView("refreshed_parts")


@pytest.mark.conformance
def test_rows_meet_what_files_and_views_have(engine: ef.Engine, spark: Any, named: Callable[[str], str], tmp_path: Path) -> None:
    """Goal: rows are joined with what is there, which is read anew: each row once, with one content, and never an older one than before."""
    gate, path, sink = tmp_path / "gate", tmp_path / "names", ef.sinks.memory(named("out"))
    write(spark, path, 1)
    define(spark, 1)
    flow = ef.Dataflow(named("refreshed"))
    names = flow.table(spark.read.parquet(str(path)), "names", key="key", refresh=None)
    parts = flow.table(lambda: spark.table("refreshed_parts"), "parts", key="part", refresh="50 milliseconds")
    rows = flow.source(Gated(str(gate), ROWS, 8_000), name="in").where("value % 2 = 0")
    rows.join(names, "key", "left", name="named").join(parts, "part", "inner", name="parted").to(sink, name="out")

    run = engine.start(flow)

    def wait(ready: Callable[[], bool]) -> None:
        while not ready():
            assert not run.await_termination(0.05)

    def events(kind: str) -> list[dict[str, Any]]:
        return [event for event in run.events() if event["kind"] == kind]

    wait(lambda: sink.rows().num_rows >= 500)
    assert not run.refresh("names")["changed"]
    write(spark, path, 2)
    found = run.refresh("names")
    assert (found["changed"], found["rows"]) == (True, 499)
    define(spark, 2)
    wait(lambda: any(event["table"] == "parts" for event in events("table_refreshed")))

    spark.range(0, 10).selectExpr("id as other").write.mode("overwrite").parquet(str(path))
    with pytest.raises(TableError, match=r"table 'names' has 10 rows with the key key = None"):  # Spark reads what is not there as null.
        run.refresh("names")
    assert [event["table"] for event in events("refresh_failed")] == ["names"]
    told = {each["table"]: each for each in run.progress()["tables"]}
    assert told["names"]["failures"] == 1 and told["names"]["rows"] == 499 and told["parts"]["failures"] == 0
    gate.touch()
    assert run.await_termination(120)
    with pytest.raises(OperationRefused, match="has ended"):
        run.refresh("names")

    out = sink.rows().to_pylist()
    given = pa.Table.from_batches([rows_of(part, 0, ROWS // PARTITIONS) for part in range(PARTITIONS)]).to_pylist()
    assert Counter(triple(row) for row in out) == Counter(triple(row) for row in given if row["value"] % 2 == 0)
    for part in range(PARTITIONS):
        mine = [row for row in out if row["part"] == part]
        met = [row["name"].split()[1] for row in mine if row["name"] is not None]
        assert set(met) == {"1", "2"} and met == sorted(met), "no row meets what was there before"
        versions = [row["version"] for row in mine]
        assert set(versions) == {1, 2} and versions == sorted(versions)
        for row in mine:
            known = row["key"] < NAMES and row["key"] != LEFT_OUT
            assert row["name"] in ([f"name {version} of {row['key']}" for version in (1, 2)] if known else [None])


def triple(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["part"], row["key"], row["value"]


def test_a_table_that_cannot_be_read_is_an_error_at_the_start(engine: ef.Engine, spark: Any, tmp_path: Path) -> None:
    path, flow = tmp_path / "names", ef.Dataflow("never")
    write(spark, path, 1)
    twice = flow.table(lambda: spark.read.parquet(str(path)).selectExpr("key % 2 as key", "name"), "names", key="key")
    flow.source(Gated(str(tmp_path / "gate"), 10), name="in").join(twice, "key").to(ef.sinks.discard())
    with pytest.raises(TableError, match=r"table 'names' has \d+ rows with the key key = "):
        engine.start(flow)


def test_a_run_without_such_a_table_says_so(engine: ef.Engine) -> None:
    flow = ef.Dataflow("plain")
    flow.source(ef.sources.generator(10), name="in").to(ef.sinks.discard())
    run = engine.start(flow)
    with pytest.raises(OperationRefused, match=r"has no refreshed table: join with one made by flow.table"):
        run.refresh()
    run.stop()
