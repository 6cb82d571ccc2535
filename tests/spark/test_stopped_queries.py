"""What ends Spark's query of a streaming DataFrame while the run lives: with a checkpoint location it is started again, or else said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.errors import Fenced, SourceError
from evenflow.sources.spooled import FOLDER
from tests.restarting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_query_that_somebody_stops_goes_on_and_closes_no_window(spark: Any, engine: ef.Engine, tmp_path: Path, named: Any) -> None:
    """Goal: what tidies up all queries of a session neither ends the stream nor loses a row. Method: Evenflow's is among them, twice."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    (tmp_path / "in").mkdir()

    def give(file: int) -> None:
        rows = pa.table({"k": [file] * 10, "ts": [1_000_000 * (10 * file + each) for each in range(10)]}, schema=schema)
        pq.write_table(rows, tmp_path / "in" / f".{file}")
        (tmp_path / "in" / f".{file}").rename(tmp_path / "in" / f"{file:03d}.parquet")

    frame = spark.readStream.schema("k bigint, ts timestamp").parquet(str(tmp_path / "in"))
    flow, out, windows = ef.Dataflow(named("stopped")), ef.sinks.memory(named("rows")), ef.sinks.memory(named("windows"))
    rows = flow.from_spark(frame, name="made").with_watermark("ts", "0 seconds")
    rows.to(out, name="rows")
    rows.group_by().window("1 hour").agg(n="count(*)").to(windows, name="windows")
    run = engine.start(flow, checkpoint_location=str(tmp_path / "location"))
    try:
        for file in range(3):
            give(file)
            wait_until(lambda: out.rows().num_rows == 10 * (file + 1), 90, f"rows of file {file}")  # noqa: B023
            mine = [query for query in spark.streams.active if query.name.startswith(f"evenflow-{run.id}")]
            if file < 2:
                assert len(mine) == 1
                mine[0].stop()
        assert run.is_active and windows.rows().num_rows == 0, "the hour is not over"
        assert not any('"ended": true' in path.read_text() for path in (tmp_path / "location" / FOLDER).glob("*/batches/*.json"))
    finally:
        run.stop()


@pytest.mark.conformance
def test_without_a_location_a_query_that_somebody_stops_is_an_error_and_closes_no_window(spark: Any, engine: ef.Engine, named: Any) -> None:
    frame = spark.readStream.format("rate").options(rowsPerSecond=50, numPartitions=1).load()
    flow, out, windows = ef.Dataflow(named("nowhere")), ef.sinks.memory(named("rows")), ef.sinks.memory(named("windows"))
    rows = flow.from_spark(frame, name="made").with_watermark("timestamp", "0 seconds")
    rows.to(out, name="rows")
    rows.group_by().window("365 days").agg(n="count(*)").to(windows, name="windows")
    run = engine.start(flow)
    wait_until(lambda: out.rows().num_rows > 0, 90, "rows")
    for query in spark.streams.active:
        query.stop()
    with pytest.raises(SourceError, match="box 'made': somebody has stopped Spark's query"):
        run.await_termination(60)
    assert windows.rows().num_rows == 0


@pytest.mark.conformance
def test_a_driver_that_is_taken_over_in_the_same_session_ends_neither_the_stream_nor_its_successor(
    spark: Any, engine: ef.Engine, tmp_path: Path, named: Any
) -> None:
    """Goal: every row once; the first driver is fenced. Method: both queries use the same notes of Spark's, which stops the first one's."""
    (tmp_path / "in").mkdir()
    schema, names, flows = pa.schema([("k", pa.int64())]), named("taken"), list[ef.Dataflow]()
    out = ef.sinks.parquet(str(tmp_path / "out"), commit_interval_ms=100)
    for _ in range(2):
        flow = ef.Dataflow(names)
        flow.from_spark(spark.readStream.schema("k bigint").parquet(str(tmp_path / "in")), name="made").to(out, name="rows")
        flows.append(flow)

    def give(file: int) -> None:
        pq.write_table(pa.table({"k": [file] * 10}, schema=schema), tmp_path / "in" / f".{file}")
        (tmp_path / "in" / f".{file}").rename(tmp_path / "in" / f"{file:03d}.parquet")
        wait_until(lambda: rows() >= 10 * (file + 1), 90, f"rows of file {file}")

    def rows() -> int:
        return out.read().num_rows if (tmp_path / "out").exists() else 0

    location = str(tmp_path / "location")
    first = engine.start(flows[0], checkpoint_location=location)
    give(0)
    with ef.Engine(spark, sites=1) as other:
        second = other.start(flows[1], checkpoint_location=location, take_over=True)
        with pytest.raises(Fenced):
            first.await_termination(60)
        for file in (1, 2):
            give(file)
        assert second.is_active
        assert not any('"ended": true' in path.read_text() for path in (tmp_path / "location" / FOLDER).glob("*/batches/*.json"))
        second.stop()
    assert sorted(out.read().column("k").to_pylist()) == [0] * 10 + [1] * 10 + [2] * 10


@pytest.mark.conformance
def test_a_query_that_fails_again_and_again_ends_the_run_with_what_it_fails_of(
    spark: Any, engine: ef.Engine, tmp_path: Path, named: Any
) -> None:
    """Goal: an error of the user's own is said, and not tried for ever. Method: a column that Spark cannot compute."""
    frame = (
        spark.readStream.format("rate")
        .options(rowsPerSecond=5, numPartitions=1)
        .load()
        .selectExpr("CAST(raise_error('mine') AS BIGINT) AS k")
    )
    flow = ef.Dataflow(named("failing"))
    flow.from_spark(frame, name="made").to(ef.sinks.memory(named("rows")), name="rows")
    run = engine.start(flow, checkpoint_location=str(tmp_path / "location"))
    with pytest.raises(SourceError, match="mine"):
        run.await_termination(240)
