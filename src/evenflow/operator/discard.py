"""Discard: the end of a stream whose rows nobody wants, only their number. Lets a query run at full speed in a benchmark."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.operator.operator import End, Stateless
from evenflow.stream.epoch import Tick
from evenflow.stream.rows import Rows


class Discard(End, Stateless):
    """Counts rows and drops them."""

    schemas: tuple[pa.Schema, ...] = ()

    def __init__(self, schema: pa.Schema) -> None:
        pass

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        self.ended = counted(rows.partition)
        self.stored = (tick.epoch,) if rows.count else ()
        return ()


def counted(partitions: npt.NDArray[np.int32]) -> tuple[tuple[int, int], ...]:
    """(partition, rows) of those that have any. partitions: int32 (n,), of each row."""
    if not partitions.size:
        return ()
    rows = np.bincount(partitions)
    found = rows.nonzero()[0]
    return tuple(zip(found.tolist(), rows[found].tolist(), strict=True))
