"""A dataflow with a checkpoint location that is joined with a refreshed table, as a process that tests kill.

`python -m tests.restarting_refreshed SETTING`, as `tests.restarting`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession

import evenflow as ef
from evenflow.world.spark.driver.run import Run
from tests.restarting import WINDOW_US, Setting, main, micros, taken_in, wait_until, written


@dataclass(frozen=True)
class Refreshed(Setting):
    """refresh_to: the table is read again by hand when it has this; 0: it is not. refresh: its interval. replace: and then the driver goes
    on as a version of the dataflow. version: of the dataflow that is started."""

    MODULE: ClassVar[str] = "tests.restarting_refreshed"
    SLOTS: ClassVar[int] = 2
    refresh_to: int = 0
    refresh: str | None = None
    replace: bool = False
    version: int = 0

    @property
    def read(self) -> Path:
        """File with what the table has, a number."""
        return Path(self.home) / "content"

    def has(self, content: int) -> None:
        fresh = self.read.with_suffix(".new")
        fresh.write_text(str(content))
        fresh.replace(self.read)

    def dataflow(self) -> ef.Dataflow:
        return self.made(self.version)

    def made(self, version: int) -> ef.Dataflow:
        """All rows say which content they met. So do counts, whose state a restart makes again."""
        flow = ef.Dataflow("refreshed")

        def now() -> Any:
            met = int(self.read.read_text())
            if self.spark:
                return SparkSession.active().range(16).selectExpr("id as key", f"bigint({met}) as met")
            return pa.table({"key": list(range(16)), "met": [met] * 16})

        table = flow.table(now, "contents", key="key", refresh=self.refresh)
        made = flow.source(ef.sources.generator(rate=self.rate, keys=16, partitions=2), name="made")
        rows = made.with_watermark("ts", "50 milliseconds").where(f"key >= -{version}").name("kept").join(table, "key", name="joined")
        rows.select("key", "ts", "value", "met").to(ef.sinks.table(self.database, "rows"), name="rows")
        counts = rows.group_by("met").window(f"{WINDOW_US // 1000} milliseconds").agg(n="count(*)", total="sum(value)").name("counted")
        counts.to(ef.sinks.parquet(self.folder, commit_interval_ms=200), name="windows")
        return flow

    def begun(self, run: Run) -> None:
        Thread(target=self._says, args=(run,), daemon=True).start()

    def _says(self, run: Run) -> None:
        """In a thread of its own: the process is to be drained meanwhile."""
        (table,) = run.progress()["tables"]
        assert (table["version"] > 0) == (table["epoch"] > 0) == (Path(self.location) / "versions").exists(), table
        if self.refresh_to:
            rows = len(written(self))
            wait_until(lambda: len(written(self)) > rows, 60, "the run has begun")
            wait_until(lambda: int(self.read.read_text()) == self.refresh_to, 60, "the table has other rows")
            print(f"refreshed {run.refresh('contents')['version']}", flush=True)
            if self.replace:
                print(f"replaced {run.replace(self.made(self.version + 1))['version']}", flush=True)

    def met(self) -> dict[int, int]:
        """Rows by the content that they met."""
        with closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return dict(connection.execute("SELECT met, count(*) FROM rows GROUP BY met"))

    def compare(self) -> dict[int, int]:
        """Every row is there once, none has met an older content than those before it, and the windows have counted just these. Returns
        `met`."""
        with closing(sqlite3.connect(self.database, timeout=10)) as connection:
            rows = connection.execute("SELECT key, ts, value, met FROM rows").fetchall()
        met = {(key, micros(ts), value): content for key, ts, value, content in rows}
        taken = taken_in(self)
        assert len(rows) == len(met) and met.keys() == set(chain(*taken))
        for partition in taken:
            contents = [met[row] for row in partition]
            assert contents == sorted(contents)
        table: Any = ef.sinks.parquet(self.folder).read()
        counted: Counter[int] = Counter()
        summed: Counter[int] = Counter()
        for content, n, total in zip(*(table.column(name).to_pylist() for name in ("met", "n", "total"))):
            counted[content] += n
            summed[content] += total
        found = self.met()
        assert counted == found, "windows that were made again counted what the rows had met"
        whole = {content: sum(value for *_, value, of in rows if of == content) for content in found}
        assert {content: (total - whole[content]) % 2**64 for content, total in summed.items()} == dict.fromkeys(found, 0)
        return found


if __name__ == "__main__":
    main(Refreshed(**json.loads(sys.argv[1])))
