"""Filter: keep the rows for which a condition is true. A null condition is not true, as in SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.errors import TypeMismatch
from evenflow.operator.operator import Stateless
from evenflow.operator.user.returned import as_array
from evenflow.query.expression import compile_expression
from evenflow.stream.arrays import bools_of
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Filter(Stateless):
    """Rows whose condition is true, in input order, with their partition and hash. Selectivity: rows kept / rows in.

    condition: a Spark SQL boolean expression, or a function of the batch that returns one boolean per row. Cost: O(rows).
    Raises TypeMismatch when the condition is not boolean (a string is checked here, a function when it runs).
    """

    def __init__(self, condition: str | Callable[[pa.RecordBatch], Any], schema: pa.Schema, box: str = "filter") -> None:
        self.schemas: tuple[pa.Schema, ...] = (schema,)
        self._what = f"box {box!r}: the condition"
        self._condition: Callable[[pa.RecordBatch], Any]
        if isinstance(condition, str):
            compiled = compile_expression(condition, schema)
            self._check(compiled.type, f"{condition!r} is")
            self._condition = compiled
        else:
            self._condition = condition

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if rows.count == 0:
            return (rows,)
        keep = self.true(rows)
        kept = int(np.count_nonzero(keep))
        if kept == rows.count:
            return (rows,)
        if kept == 0:
            return (rows.slice(0, 0),)
        return (rows.take(np.flatnonzero(keep)),)

    def true(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """bool (n,): for which rows the condition is true."""
        if rows.count == 0:
            return np.empty(0, np.bool_)
        mask = as_array(self._condition(rows.batch), rows.count, self._what)
        self._check(mask.type, "returned")
        return _true(mask)

    def _check(self, type_: pa.DataType, verb: str) -> None:
        if not pa.types.is_boolean(type_) and not pa.types.is_null(type_):
            raise TypeMismatch(f"{self._what} {verb} {type_}, not boolean: compare it with something, such as `x > 0`")


def _true(mask: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_null(mask.type):
        return np.zeros(len(mask), np.bool_)
    true = mask.fill_null(False) if mask.null_count else mask
    return bools_of(true)
