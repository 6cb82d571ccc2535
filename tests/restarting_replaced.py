"""A dataflow that is replaced by a version of itself, with a checkpoint location, as a process that tests kill.

`python -m tests.restarting_replaced SETTING`, as `tests.restarting`.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import evenflow as ef
from evenflow.world.spark.driver.run import Run
from tests.restarting import WINDOW_US, Setting, main, wait_until, written
from tests.worlds.dataflows import Numbered


@dataclass(frozen=True)
class Replaced(Setting):
    """starts: the version that is started. replace_at: so many rows are in the table when the driver goes on as the one after it; 0: it
    does not. coded: a box has code. earlier: version 0 is given beside it."""

    MODULE: ClassVar[str] = "tests.restarting_replaced"
    starts: int = 0
    replace_at: int = 0
    coded: bool = False
    earlier: bool = False

    def dataflow(self) -> ef.Dataflow:
        return self.version(self.starts)

    def beside(self) -> dict[str, Any]:
        return {"earlier": [self.version(0)]} if self.earlier else {}

    def version(self, number: int) -> ef.Dataflow:
        """All of the same rows, which say by which version they were made."""
        flow = ef.Dataflow("replaced")
        made = flow.source(ef.sources.generator(rate=self.rate, keys=16, partitions=2), name="made")
        rows = made.with_watermark("ts", "50 milliseconds").where(self.condition).name("kept")
        marked = rows.select("key", "ts", "value", f"{number} as version").name("marked")
        marked.to(ef.sinks.table(self.database, "rows"), name="rows")
        counts = rows.group_by("key").window(f"{WINDOW_US // 1000} milliseconds").agg(n="count(*)", total="sum(value)").name("counted")
        counts.to(ef.sinks.parquet(self.folder, commit_interval_ms=200), name="windows")
        if self.coded:
            numbered = rows.select(k="key", v="value").key_by("k").process(Numbered(number), order="arrival", name="numbered")
            numbered.to(ef.sinks.memory("numbered"), name="numbers")
        return flow

    def begun(self, run: Run) -> None:
        if self.replace_at:
            wait_until(lambda: len(written(self)) > self.replace_at, 60, "rows are in the table")
            told = run.replace(self.version(self.starts + 1))
            print(f"replaced {told['version']}", flush=True)

    def count(self, version: int) -> int:
        """Rows that this version has made."""
        with closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return int(connection.execute("SELECT count(*) FROM rows WHERE version = ?", (version,)).fetchone()[0])


if __name__ == "__main__":
    main(Replaced(**json.loads(sys.argv[1])))
