"""The same query over the same files by Spark's own stream and by Evenflow, in update and in append mode: each puts out the same rows.

Spark takes a file per micro-batch, and here a file is an epoch, so both watermarks move at the same places. Which rows are late Spark
judges by the watermark of the micro-batch before, one behind that by which it puts windows out; a file without rows behind each file lets
both be the same. Neither stream ends: what is open stays open in both.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenflow as ef
from evenflow.query.planner import layout
from evenflow.site.options import FlowOptions
from evenflow.world.sim.world import SimWorld

pytestmark = [pytest.mark.spark, pytest.mark.conformance, pytest.mark.timeout(300)]

START = datetime(2026, 1, 1, 12)
FILES, ROWS, SPAN_S = 6, 40, 20
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("n", pa.int64())])
TYPES = {pa.timestamp("us", "UTC"): pa.timestamp("us"), pa.int32(): pa.int64()}


def rows_of(seed: int, first_s: int) -> pa.Table:
    """Rows of SPAN_S seconds from first_s on, a quarter of them up to a minute older. Times are round, so that some are bounds of windows,
    but for the last and newest row's: no row has the time of a watermark."""
    random = Random(seed)
    seconds = [first_s + random.randrange(SPAN_S) for _ in range(ROWS)]
    seconds[::4] = [max(0, second - random.randrange(5, 60)) for second in seconds[::4]]
    times = [START + timedelta(seconds=second, milliseconds=random.choice((0, 500))) for second in seconds[:-1]]
    times.append(START + timedelta(seconds=first_s + SPAN_S, milliseconds=-250))
    numbers = [random.choice([None, *range(9)]) for _ in range(ROWS)]
    return pa.table({"ts": times, "k": [random.choice("abcdef") for _ in range(ROWS)], "n": numbers}, SCHEMA)


STREAMS = {name: [rows_of(100 * number + file, SPAN_S * file) for file in range(FILES)] for number, name in enumerate("tlr")}


@dataclass(frozen=True)
class Asked:
    """text: for both, unless Spark has its own. mode: of its output."""

    text: str
    mode: Literal["append", "update"] = "append"
    sparks: Callable[[Any], Any] | None = None


JOIN = "SELECT l.k, l.n, l.ts AS at, r.n AS other FROM l {} JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECONDS"
QUERIES = {
    "totals in update mode": Asked("SELECT k, count(*) AS c, sum(n) AS s, avg(n) AS m FROM t GROUP BY k", "update"),
    "windows in update mode": Asked(
        "SELECT k, window.start AS b, count(*) AS c, max(n) AS m FROM t GROUP BY k, window(ts, '20 seconds', '10 seconds')", "update"
    ),
    "windows": Asked("SELECT k, window.end AS e, count(*) AS c, sum(n) AS s FROM t GROUP BY k, window(ts, '20 seconds', '10 seconds')"),
    "windows over windows": Asked(
        "SELECT window.end AS e, max(c) AS m, count(*) AS ks FROM (SELECT window_time(window) AS at, k, count(*) AS c FROM t "
        "GROUP BY k, window(ts, '5 seconds')) GROUP BY window(at, '10 seconds')",
        sparks=lambda spark: spark.sql(
            "SELECT window.end AS e, max(c) AS m, count(*) AS ks FROM (SELECT window AS w, count(*) AS c FROM t "
            "GROUP BY k, window(ts, '5 seconds')) GROUP BY window(window_time(w), '10 seconds')"
        ),
    ),
    "sessions": Asked("SELECT k, session_window.end AS e, count(*) AS c FROM t GROUP BY k, session_window(ts, '3 seconds')"),
    "distinct": Asked("SELECT DISTINCT k, ts FROM t", sparks=lambda spark: spark.table("t").select("k", "ts").dropDuplicates()),
    "inner join": Asked(JOIN.format("")),
    "left join": Asked(JOIN.format("LEFT")),
    "full join": Asked(JOIN.format("FULL")),
    "semi join": Asked(JOIN.format("LEFT SEMI").replace(", r.n AS other", "")),
    "windows of a join": Asked(
        f"SELECT window.end AS e, count(*) AS c, sum(other) AS s FROM ({JOIN.format('')}) GROUP BY window(at, '10 seconds')"
    ),
}  # fmt: skip


Streams = Mapping[str, Sequence[pa.Table]]


def written(streams: Streams, folder: Path) -> None:
    """By stream, a folder with its files, oldest first, and behind each one without rows."""
    for name, tables in streams.items():
        (folder / name).mkdir()
        for number, table in enumerate(part for file in tables for part in (file, file.slice(0, 0))):
            path = folder / name / f"{number}.parquet"
            pq.write_table(table.cast(SCHEMA.set(0, pa.field("ts", pa.timestamp("us", "UTC")))), path)
            os.utime(path, (1_700_000_000 + number,) * 2)


def by_spark(spark: Any, asked: Asked, folder: Path, streams: Streams) -> pa.Table:
    """What Spark's stream has put out, in that order."""
    written(streams, folder)
    for name in streams:
        rows = spark.readStream.schema("ts timestamp, k string, n bigint").option("maxFilesPerTrigger", 1)
        stream = rows.parquet(str(folder / name))
        stream.withWatermark("ts", "10 seconds").createOrReplaceTempView(name)
    name = f"rows_{uuid.uuid4().hex}"
    frame = spark.sql(asked.text) if asked.sparks is None else asked.sparks(spark)
    writer = frame.writeStream.format("memory").queryName(name).outputMode(asked.mode)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    taken = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(rows > 0 for rows in taken) == len(streams["l"]), f"a file is a micro-batch: {taken}"
    return naive(spark.table(name).toArrow())


def naive(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([pa.field(field.name, TYPES.get(field.type, field.type)) for field in table.schema]))


def by_evenflow(asked: Asked, given: Streams) -> pa.Table:
    """What Evenflow has put out when all files are read, with an epoch for each."""
    flow = ef.Dataflow("streams")
    streams = {
        name: flow.source(ef.sources.memory([[batch for table in tables for batch in table.to_batches()]]), name=name)
        .with_watermark("ts", "10 seconds")
        for name, tables in given.items()
        if f" {name} " in f"{asked.text} "
    }  # fmt: skip
    ef.sql(asked.text, streams, output_mode=asked.mode).to(ef.sinks.memory("out"), name="out")
    planned = layout(flow.network, sites=3, partitions=7)
    world = SimWorld(planned, sites=3, options=FlowOptions(linger_ms=20, heartbeat_ms=200), read_rows=2**40)
    world.sources_may_end = False
    sources = [segment.id for segment in planned.segments if segment.source is not None]
    assert len(sources) == len(streams)
    for read in accumulate(table.num_rows for table in given["l"]):
        world.quotas = {(source, 0): read for source in sources}
        world.run_for(1.0)
    return naive(world.output("out"))


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_some_rows_are_late_and_some_windows_open() -> None:
    """Of the windows of twenty seconds that slide by ten a row that is in time is in two."""
    both = by_evenflow(QUERIES["windows"], STREAMS)
    assert sum(both.column("c").to_pylist()) < 2 * FILES * ROWS - 10
    assert max(both.column("e").to_pylist()) < START + timedelta(seconds=FILES * SPAN_S)


@pytest.mark.parametrize("asked", QUERIES.values(), ids=QUERIES)
def test_a_stream_gives_what_sparks_stream_gives(asked: Asked, spark: Any, tmp_path: Path) -> None:
    wanted = by_spark(spark, asked, tmp_path, STREAMS)
    got = by_evenflow(asked, STREAMS)
    assert wanted.num_rows > 5 and got.schema.names == wanted.schema.names
    mine, theirs = counted(got), counted(wanted)
    assert mine == theirs, f"here only {mine - theirs}; in Spark only {theirs - mine}"


@pytest.mark.parametrize(("behind_us", "here", "in_spark"), [(-1000, 1, 1), (0, 1, 0), (1000, 0, 0)])
def test_a_row_of_the_watermarks_own_time_is_late_in_spark_only(
    behind_us: int, here: int, in_spark: int, spark: Any, tmp_path: Path
) -> None:
    times = [START, START - timedelta(seconds=10, microseconds=behind_us)]
    tables = [pa.table({"ts": [time], "k": [str(file)], "n": [file]}, SCHEMA) for file, time in enumerate(times)]
    streams = {"l": tables, "r": [tables[0], pa.table({"ts": [START], "k": ["1"], "n": [2]}, SCHEMA)]}
    asked = QUERIES["inner join"]
    asked = replace(asked, text=asked.text.replace("2 SECONDS", "20 SECONDS"))
    assert by_evenflow(asked, streams).num_rows - 1 == here
    assert by_spark(spark, asked, tmp_path, streams).num_rows - 1 == in_spark
