"""The example that users see first: a streaming DataFrame of files in, sessions and their statistics out as Parquet."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from tests.sinks.dying import EPOCHS, Dying, rows_through

pytestmark = pytest.mark.spark

ROWS = 20_000


def write_packets(path: Path) -> pa.Table:
    """Two files of packets: 200 pairs of hosts, every tenth packet of a pair ends its session."""
    path.mkdir()
    number = pa.array(range(ROWS), pa.int64())
    table = pa.table(
        {
            "ts": pa.compute.multiply(number, 1000).cast(pa.timestamp("us")),
            "src": [f"10.0.0.{i % 20}" for i in range(ROWS)],
            "dst": [f"10.1.0.{i % 200 // 20}" for i in range(ROWS)],
            "flags": [1 if i // 200 % 10 == 9 else 16 for i in range(ROWS)],
        }
    )
    pq.write_table(table.slice(0, ROWS // 2), path / "a.parquet")
    pq.write_table(table.slice(ROWS // 2), path / "b.parquet")
    return table


class Sessions(ef.Processor):
    """One row per session, when it ends."""

    output = "src string, packets bigint, ts timestamp"

    def open(self, store: Any) -> None:
        store.value("packets", "bigint")

    def process(self, key: Any, rows: Any, state: Any) -> Any:
        for packet in rows.to_pylist():
            state.packets = (state.packets or 0) + 1
            if packet["flags"] & 1:
                yield (packet["src"], state.packets, packet["ts"])
                state.packets = None


def test_streaming_files_to_parquet_epoch_by_epoch(spark: Any, engine: ef.Engine, tmp_path: Path, named: Callable[[str], str]) -> None:
    write_packets(tmp_path / "in")
    frame = spark.readStream.schema("ts timestamp_ntz, src string, dst string, flags bigint").parquet(str(tmp_path / "in"))
    flow = ef.Dataflow(named("to parquet"))
    packets = flow.from_spark(frame).with_watermark("ts", "1 second")
    sessions = packets.key_by("src", "dst").process(Sessions())
    sink = ef.sinks.parquet(str(tmp_path / "out"), commit_interval_ms=200)
    sessions.group_by("src").agg(n="count(*)", packets="sum(packets)").to(sink)
    run = engine.start(flow)
    while run.progress()["rows_in"] < ROWS and run.is_active:
        run.await_termination(0.2)
    run.stop(drain=True)
    run.await_termination(60)

    newest = {row["src"]: row for row in sink.read().to_pylist()}
    assert len(newest) == 20
    assert sum(row["packets"] for row in newest.values()) == ROWS
    assert sum(row["n"] for row in newest.values()) == ROWS // 10
    plain = spark.read.parquet(str(tmp_path / "out"))
    assert plain.count() == sink.read().num_rows
    progress = run.progress()
    assert progress["rows_out"] == plain.count()
    assert progress["total_p50_ms"] is not None


def test_a_directory_that_cannot_be_written_is_an_error_before_anything_runs(
    engine: ef.Engine, tmp_path: Path, named: Callable[[str], str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    flow = ef.Dataflow(named("nowhere"))
    flow.source(ef.sources.generator(rows=10)).to(ef.sinks.parquet(str(tmp_path / "file" / "below")))
    with pytest.raises(ef.errors.SinkError, match="below"):
        engine.start(flow)


@pytest.mark.conformance
@pytest.mark.parametrize(("first", "every"), [(first, 4) for first in (1, 2, 3, 4)])
def test_wherever_a_committing_process_is_killed_spark_sees_whole_epochs(spark: Any, tmp_path: Path, first: int, every: int) -> None:
    """`spark.read.parquet(path)`, with no option: all the time, and of what each death has left."""
    over, failed, looks, deaths = threading.Event(), [], [], []

    def read_on() -> None:
        try:
            while not over.is_set():
                for path in sorted((tmp_path / "live").iterdir())[-1:]:
                    assert_whole([tuple(row) for row in read(spark, path).select("epoch", "partition").collect()])
                    looks.append(path)
        except BaseException as error:
            failed.append(error)

    (tmp_path / "live").mkdir()
    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        for path in Dying(tmp_path / "live", first, every):
            deaths.append(Path(shutil.copytree(path, tmp_path / "left" / path.name)))
    finally:
        over.set()
        reader.join()
    assert failed == []
    assert looks
    seen: dict[str, list[tuple[int, int]]] = {path.name: [] for path in deaths}
    for row in read(spark, *deaths).select("epoch", "partition", "_metadata.file_path").collect():
        seen[Path(row["file_path"]).parent.name].append((row["epoch"], row["partition"]))
    assert {assert_whole(rows) for rows in seen.values()} == {0, 1, 3, EPOCHS}
    assert len(seen) > 50 // every


def read(spark: Any, *paths: Path) -> Any:
    return spark.read.schema("epoch bigint, partition int").parquet(*map(str, paths))


def assert_whole(rows: list[tuple[int, int]]) -> int:
    """The last epoch of which there are rows, which must be all up to the end of that one."""
    last = max((epoch for epoch, _ in rows), default=0)
    assert sorted(rows) == rows_through(last)
    return last
