"""Functions of a batch that Evenflow itself puts into a select. They are no user code: they cannot fail and take no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.stream.schema import parse_type


@dataclass(frozen=True, slots=True)
class Nullable:
    """A column as it is, declared to have nulls perhaps."""

    column: str

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.column)


@dataclass(frozen=True, slots=True)
class Nulls:
    """A column of nulls. kind: its type, as DDL."""

    kind: str

    @property
    def type(self) -> pa.DataType:
        return parse_type(self.kind)

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.nulls(batch.num_rows, self.type)


@dataclass(frozen=True, slots=True)
class WindowTime:
    """The last microsecond of a window, from the column of its end: the time at which its result counts, as Spark's
    window_time."""

    column: str

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        end = batch.column(self.column)
        return pc.subtract(end.view(pa.int64()), 1).view(end.type)


def is_user_code(made: Any) -> bool:
    """Whether an expression of a box is a function that the user wrote."""
    return callable(made) and not isinstance(made, Nullable | Nulls | WindowTime)
