"""A portion of an epoch: what some producer partitions have put on a stream to a sink that takes first come, first served (protocol O1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenflow.plan.layout import FROM_COLUMN


@dataclass(frozen=True, slots=True)
class Portion:
    """stream, producers: what these partitions have put there. Which row is whose is in its `_from`."""

    stream: int
    producers: tuple[int, ...]


def rows_of(rows: pa.RecordBatch, producers: tuple[int, ...]) -> pa.RecordBatch:
    """Those rows of a portion that these partitions have made."""
    of = rows.column(rows.schema.get_field_index(FROM_COLUMN)).to_numpy(zero_copy_only=True)
    return rows.filter(pa.array(np.isin(of, np.array(producers, np.int32))))


def without_producer(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A portion's rows as the sink gets them."""
    return rows.drop_columns([FROM_COLUMN])
