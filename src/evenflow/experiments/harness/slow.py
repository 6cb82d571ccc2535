"""A box of known cost, so that several sites on few cores behave like machines of their own, some of which become slow while it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.bench.slowed import DEBT, executor_here
from evenflow.processor import BatchProcessor, Groups

EMULATED_BY_SLEEP: Final = (
    "CPU is emulated: the operator sleeps for a fixed time per row in its site's one thread for user code, so that sites on few cores "
    "behave like machines of their own."
)


class Slowness:
    """How many times as long a row takes in an executor: a file for each that is slow, in a directory that all of them see."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def set(self, executor: str, factor: float) -> None:
        """From now on; 1 ends it."""
        fresh = Path(self.directory, f"{executor}.new")
        fresh.write_text(str(factor), encoding="ascii")
        os.replace(fresh, Path(self.directory, executor))

    def of(self, executor: str) -> float:
        try:
            return float(Path(self.directory, executor).read_text(encoding="ascii"))
        except FileNotFoundError:
            return 1.0


class SlowTotals(BatchProcessor):
    """Answers each row with the rows of its key so far and their total. row_us: of the site's time for each row, slept, not burnt.

    slowness: None where no executor is slow.
    """

    output: ClassVar[str] = "key bigint, rows bigint, total bigint"
    keeps_key: ClassVar[bool] = True

    def __init__(self, row_us: float, slowness: Slowness | None = None) -> None:
        self.row_us, self.slowness = row_us, slowness

    def open(self, store: Any) -> None:
        store.value("rows", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        DEBT.add(rows.num_rows * self.row_us * (1.0 if self.slowness is None else self.slowness.of(executor_here())))
        every = np.arange(rows.num_rows)
        sums = np.cumsum(rows["value"].to_numpy())
        before_rows, before_total = state.rows.get(), state.total.get()
        count = (before_rows - groups.starts)[groups.ids] + every + 1
        total = (before_total - np.concatenate(([0], sums))[groups.starts])[groups.ids] + sums
        state.rows.put(before_rows + groups.counts)
        state.total.put(total[groups.last])
        return {"key": rows["key"], "rows": count, "total": total}, every
