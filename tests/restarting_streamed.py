"""A streaming DataFrame into a table and files of windows, with a checkpoint location, as a process that tests kill.

`python -m tests.restarting_streamed SETTING`, as `tests.restarting`. Its rows are files that the test makes: Spark reads one in each batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

import evenflow as ef
from tests.restarting import WINDOW_US, Setting, main, micros, written

BEGIN_US = 1_700_000_000_000_000
FILE_ROWS = 200
ROW_US = 2_000


@dataclass(frozen=True)
class Streamed(Setting):
    """files: of the input, each with FILE_ROWS rows."""

    MODULE: ClassVar[str] = "tests.restarting_streamed"
    SLOTS: ClassVar[int] = 2
    files: int = 40

    @property
    def input(self) -> str:
        return str(Path(self.home) / "input")

    def dataflow(self) -> ef.Dataflow:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        assert spark is not None
        reader = spark.readStream.schema("key bigint, ts timestamp, value bigint").option("maxFilesPerTrigger", 1)
        flow = ef.Dataflow("streamed")
        rows = flow.from_spark(reader.parquet(self.input).repartition(3), name="made").with_watermark("ts", "0 seconds")
        rows.select("key", "ts", "value").to(ef.sinks.table(self.database, "rows"), name="rows")
        counts = rows.group_by("key").window(f"{WINDOW_US // 1000} milliseconds").agg(n="count(*)", total="sum(value)")
        counts.to(ef.sinks.parquet(self.folder, commit_interval_ms=200), name="windows")
        return flow

    # ------------------------------------------------------------ the test's side

    def rows_of(self, file: int) -> list[tuple[int, int, int]]:
        """(key, ts, value) of its rows, in no order: a watermark without delay would leave out some if they came one by one."""
        first = file * FILE_ROWS
        rows = [(number % 16, BEGIN_US + number * ROW_US, number) for number in range(first, first + FILE_ROWS)]
        Random(file).shuffle(rows)
        return rows

    def give(self, file: int) -> None:
        """The next file; whole when it is there."""
        columns = zip(*self.rows_of(file), strict=True)
        types = (pa.int64(), pa.timestamp("us", "UTC"), pa.int64())
        table = pa.table([pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=["key", "ts", "value"])
        folder = Path(self.input)
        pq.write_table(table, folder / f".{file}.tmp")
        os.utime(folder / f".{file}.tmp", (file, file))  # In this order Spark reads them.
        (folder / f".{file}.tmp").rename(folder / f"{file:06d}.parquet")

    def compare(self) -> None:
        """Every row is there once, and every window."""
        rows = Counter(row for file in range(self.files) for row in self.rows_of(file))
        there = Counter((key, micros(ts.removesuffix("+00:00")), value) for key, ts, value in written(self))
        assert there == rows, f"lost {(rows - there).total()}, repeated or wrong {(there - rows).total()} of {rows.total()} rows"
        windows: dict[tuple[int, int], list[int]] = {}
        for key, ts, value in rows:
            windows.setdefault((key, ts - ts % WINDOW_US), []).append(value)
        table = ef.sinks.parquet(self.folder).read()
        columns = [table.column("key"), table.column("window_start").cast("int64"), table.column("n"), table.column("total")]
        found = Counter(zip(*(column.to_pylist() for column in columns)))
        assert found == Counter((key, start, len(own), sum(own)) for (key, start), own in windows.items())


if __name__ == "__main__":
    main(Streamed(**json.loads(sys.argv[1])))
