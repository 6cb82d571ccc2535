"""Gate: behind windows and sessions of whose rows some may have been left out, lets pass only those of which none were (D4).

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
from evenflow.operator.units import key_hashes, unit_hashes
from evenflow.plan.layout import Keys, Windows
from evenflow.stream.epoch import ALL_KEPT, Lost, Tick
from evenflow.stream.rows import Rows


class Gate(Stateless, Gated):
    """Rows of windows or sessions, in input order. columns: the group, of the rows that come here; whole: what never loses a part of its
    rows where they enter; around_us: where that is keys, how far before a result a row may be that would have been in it.

    Selectivity: 1 while nothing is left out. Cost: O(rows x what `tick.lost` has), and nothing without that.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], whole: Windows | Keys, around_us: int = 0) -> None:
        self.schemas: tuple[pa.Schema, ...] = (schema,)
        self.whole = whole
        self._columns, self.around_us = tuple(columns), around_us

    def process(self, rows: Rows, tick: Tick) -> tuple[Rows, ...]:
        if not tick.lost or not rows.count:
            return (rows,)
        starts = np.asarray(integers_of(rows.batch.column("window_start")), np.int64)
        if isinstance(self.whole, Windows):
            hashes = unit_hashes(self.whole, rows.batch, self._columns, starts)
            kept = kept_of(tick.lost, starts, starts + self.whole.size_us)
        else:
            ends = np.asarray(integers_of(rows.batch.column("window_end")), np.int64)
            hashes, kept = key_hashes(rows.batch, self._columns), kept_of(tick.lost, starts - self.around_us, ends)
        whole = hashes < kept
        return (rows,) if whole.all() else (rows.take(np.flatnonzero(whole)),)


def kept_of(lost: Sequence[Lost], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """uint64 (n,): the least that was kept of the epochs in which results could get rows that begin and end there."""
    kept = np.full(starts.size, ALL_KEPT, np.uint64)
    for each in lost:
        could = (ends > each.before) & (starts <= each.newest)
        np.minimum(kept, np.uint64(each.kept), out=kept, where=could)
    return kept
