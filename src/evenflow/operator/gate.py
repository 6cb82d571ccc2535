"""Gate: behind windows of whose rows some may have been left out, lets pass only those of which none were (D4).

A result that is made of a part of its rows looks like any other one, and is wrong. Which are whole follows from what was kept of the
epochs in which a window could get rows, and all sites know that alike: so it holds no state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.kernels.columns import integers_of
from evenflow.operator.operator import Gated, Stateless
from evenflow.operator.units import unit_hashes
from evenflow.plan.layout import Windows
from evenflow.stream.epoch import ALL_KEPT, Lost, Tick
from evenflow.stream.rows import Rows


class Gate(Stateless, Gated):
    """Rows of windows, in input order. columns: the group, of the rows that come here; start: the column with where a window begins.

    Selectivity: 1 while nothing is left out. Cost: O(rows x what `tick.lost` has), and nothing without that.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], start: str, windows: Windows) -> None:
        self.schemas: tuple[pa.Schema, ...] = (schema,)
        self.windows = windows
        self._columns, self._start = tuple(columns), start

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if not tick.lost or not rows.count:
            return (rows,)
        starts = np.asarray(integers_of(rows.batch.column(self._start)), np.int64)
        whole = unit_hashes(self.windows, rows.batch, self._columns, starts) < kept_of(tick.lost, starts, self.windows.size_us)
        return (rows,) if whole.all() else (rows.take(np.flatnonzero(whole)),)


def kept_of(lost: Sequence[Lost], starts: npt.NDArray[np.int64], size_us: int) -> npt.NDArray[np.uint64]:
    """uint64 (n,): the least that was kept of the epochs in which windows that begin there could get rows."""
    kept = np.full(starts.size, ALL_KEPT, np.uint64)
    for each in lost:
        could = (starts + size_us > each.before) & (starts <= each.newest)
        np.minimum(kept, np.uint64(each.kept), out=kept, where=could)
    return kept
