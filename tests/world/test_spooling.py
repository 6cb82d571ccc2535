"""What was written of a batch DataFrame is read again without Spark; what is altered there, or cannot be kept there, is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import evenflow as ef
from evenflow.availability.entries import Completed, Piece
from evenflow.errors import EvenflowError, LocationError
from evenflow.query.kept import batches
from evenflow.query.planner import layout
from evenflow.sources.pushed import SparkSource
from evenflow.sources.spooled import Spool
from evenflow.store.directory import DirectoryStore
from evenflow.store.opening import open_store
from evenflow.stream.ids import SiteId
from evenflow.world.locations.streamed import position_in
from evenflow.world.sim.world import SimWorld
from evenflow.world.spark.bridge.spooling import _folder, _write, spooled
from evenflow.world.spark.bridge.streamed import Spooler, check_notes, notes_at

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("took", pa.duration("us"))])
NO_SPARK: Any = None


def network() -> Any:
    flow = ef.Dataflow("backfill")
    live = pa.Table.from_pylist([{"k": 7, "at": None, "took": None}], SCHEMA)
    flow.source(SparkSource(SCHEMA, False), name="a history").then(ef.sources.memory(live)).to(ef.sinks.memory("out"), name="out")
    return flow.network


def written(place: Path) -> Path:
    """As Spark's tasks leave it: three files, one without rows, and one of an attempt that does not count. Returns what names them."""
    for task, keys in enumerate(([1, 2], [], [3], [4, 5])):
        batch = pa.RecordBatch.from_pylist([{"k": k, "at": 1_000_000 * k, "took": k} for k in keys], SCHEMA)
        assert _write(str(place / "backfill" / "some"), f"{task}.parquet", SCHEMA, "a history", [batch]) == len(keys)
    (source,) = batches(network())
    said = place / "backfill" / f"{_folder(source)}.json"
    said.write_text(json.dumps({"version": 1, "files": [f"backfill/some/{task}.parquet" for task in range(3)], "rows": 3}))
    return said


@pytest.mark.parametrize("as_url", [str, lambda place: f"file://{place}"], ids=["path", "url"])
def test_what_was_written_is_read_without_spark(tmp_path: Path, as_url: Any) -> None:
    written(tmp_path)
    found = spooled(network(), as_url(tmp_path), NO_SPARK, 2)
    world = SimWorld(layout(found, sites=2, partitions=4), sites=2, seed=1)
    world.run_until_quiet(60.0)
    assert world.error is None
    assert sorted(row["k"] for row in world.output("out").to_pylist()) == [1, 2, 3, 7]


def test_what_names_the_files_is_needed_whole(tmp_path: Path) -> None:
    said = written(tmp_path)
    said.write_text(said.read_text()[:20])
    with pytest.raises(LocationError, match="does not say which files it means"):
        spooled(network(), str(tmp_path), NO_SPARK, 2)


def test_a_dataflow_without_its_dataframe_says_so(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="has no DataFrame; build it with from_spark"):
        spooled(network(), str(tmp_path), NO_SPARK, 2)


def test_spark_notes_that_are_gone_are_said(tmp_path: Path) -> None:
    """Spark would count its batches from 0 on again, and take what is there for what it has not read yet."""
    store = DirectoryStore(str(tmp_path))
    spool = Spool(store, "box")
    check_notes(store, spool, "spark/box")
    spool.name(0, ())
    (tmp_path / "spark" / "box" / "offsets").mkdir(parents=True)
    (tmp_path / "spark" / "box" / "offsets" / "0").write_text("v1")
    check_notes(store, spool, "spark/box")
    shutil.rmtree(tmp_path / "spark")
    with pytest.raises(LocationError, match="Spark's notes of how far it was, spark/box, are gone"):
        check_notes(store, spool, "spark/box")


def test_spark_notes_are_at_the_location_whatever_the_usual_file_system_is(tmp_path: Path) -> None:
    assert notes_at(DirectoryStore(f"{tmp_path}/a b/"), "spark/box") == f"file://{tmp_path}/a%20b/spark/box"
    assert notes_at(open_store("s3://bucket/runs/"), "spark/box") == "s3a://bucket/runs/spark/box"
    assert notes_at(open_store("webhdfs://host:9870/runs"), "spark/box") == "webhdfs://host:9870/runs/spark/box"


def test_rows_behind_the_end_of_a_stream_are_refused_and_not_taken_for_written(tmp_path: Path) -> None:
    """Nobody would read them, and Spark would not give them again. Locations may have an end of a query that was only stopped."""
    writes = Spooler.__new__(Spooler)
    writes._store = DirectoryStore(str(tmp_path))
    writes._spool = Spool(writes._store, "box")
    writes._spool.name(0, (), ended=True)
    with pytest.raises(LocationError, match="batch 0 of streamed/box is the stream's end"):
        writes._write(NO_SPARK, 0)


def test_a_checkpoint_says_how_many_rows_it_has_behind_it(tmp_path: Path) -> None:
    pieces = tuple(Piece(segment, SiteId(0), (0,), {"logs": {"0": [rows, 0, 0, 0]}}, ()) for segment, rows in ((0, 70), (1, 9)))
    assert [position_in(Completed(1, 5, pieces), segment) for segment in range(3)] == [70, 9, 0]


def test_a_streaming_dataframe_behind_another_source_is_refused(tmp_path: Path) -> None:
    flow = ef.Dataflow("two")
    live = flow.source(SparkSource(SCHEMA, True), name="live")
    flow.source(SparkSource(SCHEMA, False), name="a history").then(live).to(ef.sinks.memory("out"), name="out")
    with pytest.raises(EvenflowError, match="a streaming DataFrame is a source of its own there"):
        spooled(flow.network, str(tmp_path), NO_SPARK, 2)


def test_a_network_without_dataframes_is_as_it_was(tmp_path: Path) -> None:
    flow = ef.Dataflow("plain")
    flow.source(ef.sources.generator(rows=1)).to(ef.sinks.discard())
    given = flow.network
    assert spooled(given, "nowhere://at/all", NO_SPARK, 2) is given
