"""Finished epochs that wait at their egress site until a Spark streaming query has committed them (protocol O2)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class HeldEpoch:
    epoch: int
    rows: pa.RecordBatch
    opened: int
    last: bool


class HeldEpochs:
    """Epochs of one sink, in order. newest: last one that was released here, 0 before the first. ended: no other will come."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.newest = 0
        self.committed = 0
        self.ended = False
        self._epochs: deque[HeldEpoch] = deque()

    def hold(self, epoch: HeldEpoch) -> None:
        self._epochs.append(epoch)
        self.newest = epoch.epoch
        self.ended = epoch.last

    def between(self, after: int, through: int) -> list[pa.RecordBatch]:
        """Rows of the epochs in (after, through], without empty batches. Reading takes nothing away: Spark may read again."""
        return [e.rows for e in self._epochs if after < e.epoch <= through and e.rows.num_rows]

    def commit(self, through: int) -> list[HeldEpoch]:
        """Spark has stored everything up to `through`: forget it. Returns what was forgotten; a repeated commit forgets nothing."""
        gone = []
        while self._epochs and self._epochs[0].epoch <= through:
            gone.append(self._epochs.popleft())
        self.committed = max(self.committed, through)
        return gone
