"""A box of known cost, so that several sites on few cores behave like machines of their own."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from evenflow.processor import BatchProcessor, Groups

EMULATED_BY_SLEEP: Final = (
    "CPU is emulated: the operator sleeps for a fixed time per row in its site's one thread for user code, so that sites on few cores "
    "behave like machines of their own."
)


class SlowTotals(BatchProcessor):
    """Rows and their total by key. row_us: of the site's time for each row, slept, not burnt."""

    output: ClassVar[str] = "key bigint, rows bigint, total bigint"
    keeps_key: ClassVar[bool] = True

    def __init__(self, row_us: float) -> None:
        self.row_us = row_us

    def open(self, store: Any) -> None:
        store.value("rows", "bigint", default=0)
        store.value("total", "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        time.sleep(rows.num_rows * self.row_us / 1e6)
        count = state.rows.get() + groups.counts
        total = state.total.get() + np.add.reduceat(rows["value"].to_numpy(), groups.starts)
        state.rows.put(count)
        state.total.put(total)
        return {"key": groups.keys.column(0), "rows": count, "total": total}, groups.last
