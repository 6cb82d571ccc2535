"""Finished epochs that wait at their egress site until a Spark streaming query has committed them (protocol O2).

Every replica of the egress holds them. Spark's reader asks one and tells all of them what has been committed; one that is behind, or has
missed a commit, learns the number from the next.
"""

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
    """Epochs of one sink, in order; empty ones are left out, except the last one.

    since: epochs up to this one are not here: they have been committed and forgotten, or were finished before this replica joined.
    newest: last one that was released here; since, before the first. ended: no other will come.
    """

    def __init__(self, schema: pa.Schema, since: int = 0) -> None:
        self.schema = schema
        self.since = self.newest = since
        self.committed = 0
        self.ended = False
        self._epochs: deque[HeldEpoch] = deque()

    def hold(self, epoch: HeldEpoch) -> list[HeldEpoch]:
        """Keep it. Returns what Spark has committed already, as `commit` does: this replica is behind the one that Spark has read."""
        self._epochs.append(epoch)
        self.newest = epoch.epoch
        self.ended = epoch.last
        return self._forget()

    def has(self, after: int, through: int) -> bool:
        """Whether all epochs in (after, through] are here."""
        return self.since <= after and through <= self.newest

    def between(self, after: int, through: int) -> list[HeldEpoch]:
        """The epochs in (after, through] that have rows. Reading takes nothing away: Spark may read again."""
        return [e for e in self._epochs if after < e.epoch <= through and e.rows.num_rows]

    def commit(self, through: int) -> list[HeldEpoch]:
        """Spark has stored everything up to `through`: forget it, and what is still to come of it. Returns what was forgotten; a repeated
        commit forgets nothing.
        """
        self.committed = max(self.committed, through)
        return self._forget()

    def _forget(self) -> list[HeldEpoch]:
        gone = []
        while self._epochs and self._epochs[0].epoch <= self.committed:
            gone.append(self._epochs.popleft())
            self.since = gone[-1].epoch
        return gone
