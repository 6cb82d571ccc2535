"""An operator of known cost per row on executors one of which is slow: what `evenflow bench skew` runs on every system.

The cost is slept, not burnt, so that executors that share a few cores behave like machines of their own with one core each. Whoever
calls `RowCost.spend` must therefore see to it that an executor has one caller at a time: a site has one thread for user code, and a
Spark executor one slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from evenflow.processor import BatchProcessor, Groups

if TYPE_CHECKING:
    import pyarrow as pa

EMULATED: Final = (
    "CPU is emulated: the operator sleeps for a fixed time per row, one row at a time in each executor, and for a multiple of it in the "
    "slow executor, so that executors on few cores behave like machines of their own. What the systems themselves cost is burnt beside it."
)
LEAST_US: Final = 2000.0
"""Less is not slept at once: the operating system's clock is too coarse for it."""


class Debt:
    """Time that is to be slept, in pieces that are worth it. What a sleep was too long is taken off the next one: in the long run it is
    exact, however busy the machine is. sleep: for so many seconds. clock: monotonic nanoseconds."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.owed_us = 0.0
        self._sleep, self._clock = sleep, clock

    def add(self, us: float) -> None:
        self.owed_us += us
        if self.owed_us >= LEAST_US:
            began = self._clock()
            self._sleep(self.owed_us / 1e6)
            self.owed_us -= (self._clock() - began) / 1000


DEBT: Final = Debt()
"""Of this process."""


@lru_cache(maxsize=1)
def executor_here() -> str:
    """Spark's id of the executor that this process belongs to."""
    from evenflow.world.spark.executor.site_task import find_executor

    return find_executor()[0]


@dataclass(frozen=True, slots=True)
class RowCost:
    """row_us: microseconds of an executor's time for a row. In executor `slow_executor` it is `slow_factor` times as much."""

    row_us: float = 500.0
    slow_factor: float = 2.0
    slow_executor: str = "0"

    def at_us(self, executor: str) -> float:
        return self.row_us * (self.slow_factor if executor == self.slow_executor else 1.0)

    def spend(self, rows: int) -> None:
        """Take as long as these rows cost here."""
        DEBT.add(rows * self.at_us(executor_here()))

    def capacity(self, executors: int) -> float:
        """Rows per second of so many executors, one of them slow, when each has as much to do as it can."""
        return (executors - 1) * 1e6 / self.row_us + 1e6 / (self.row_us * self.slow_factor)


class RunningCounts(BatchProcessor):
    """Answers each row with the number of rows of its key so far, at a cost. The answer depends on the rows alone, only the time it takes
    on where it is computed."""

    output: ClassVar[str] = "number bigint, key bigint, due_us bigint, rows bigint"
    keeps_key: ClassVar[bool] = True

    def __init__(self, cost: RowCost) -> None:
        self.cost = cost

    def open(self, store: Any) -> None:
        store.value("rows", "bigint", default=0)

    def process(self, rows: pa.RecordBatch, groups: Groups, state: Any) -> Any:  # type: ignore[override]
        self.cost.spend(rows.num_rows)
        before = state.rows.get()
        every = np.arange(rows.num_rows)
        counts = (before - groups.starts)[groups.ids] + every + 1
        state.rows.put(before + groups.counts)
        return {"number": rows["number"], "key": rows["key"], "due_us": rows["due_us"], "rows": counts}, every
