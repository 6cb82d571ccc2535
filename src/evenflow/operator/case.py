"""Case: each row goes to the output of the first condition that is true for it, or to the last output (Aurora's case filter)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.operator.filter import Filter
from evenflow.operator.operator import Stateless
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Case(Stateless):
    """One output port per condition, in their order, and one for the rows for which none is true. Every row comes out once.

    A condition is what a filter's is (null is not true); it is asked for the rows only that no condition before it has taken. Cost:
    O(rows x conditions).
    """

    def __init__(self, schema: pa.Schema, conditions: Sequence[str | Callable[[pa.RecordBatch], Any]], box: str = "case") -> None:
        self._filters = [Filter(condition, schema, box) for condition in conditions]
        self.schemas: tuple[pa.Schema, ...] = (schema,) * (len(conditions) + 1)

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        ports = []
        for each in self._filters:
            keep = each.true(rows)
            ports.append(rows.take(np.flatnonzero(keep)))
            rows = rows.take(np.flatnonzero(~keep))
        return (*ports, rows)
