"""Finished epochs that wait at their egress site until a Spark streaming query has committed them (protocol O2).

Every replica of the egress holds them. Spark's reader asks one and tells all of them what it has planned and what Spark has committed; one
that is behind, or has missed a word, learns the number from the next.

Spark commits a batch when it plans the next one, and it plans one only when there is something new. So epochs hold the ingress back until
Spark has planned to read them, not until it has committed them: else a batch that takes a whole window would wait for rows that wait for
it. When no rows come after a batch, an epoch without rows makes the next one; behind the last epoch the end of the stream does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

UNKNOWN: Final = -1
"""A reader does not know how far Spark has planned: it has planned nothing itself, and before version 4.2 Spark does not say."""


@dataclass(frozen=True, slots=True)
class HeldEpoch:
    epoch: int
    rows: pa.RecordBatch
    opened: int
    last: bool


class HeldEpochs:
    """Epochs of one sink that have rows, in order.

    since: epochs up to this one are not here: they have been committed and forgotten, or were finished before this
    replica joined. newest: last one that was released here, with or without rows; since, before the first. taken: last
    one that Spark has planned to read. committed: last one that Spark has stored. begun: the first one has come.
    ended: no other will come.
    """

    def __init__(self, schema: pa.Schema, since: int = 0) -> None:
        self.schema = schema
        self.since = self.newest = since
        self.committed = self.taken = 0
        self.ended = self.begun = False
        self._epochs: deque[HeldEpoch] = deque()

    def begin(self, epoch: int) -> None:
        """The first epoch of a replica that joined is about to come: all before it have been committed, or are not here."""
        if not self.begun:
            self.since = self.newest = epoch - 1
        self.begun = True

    def hold(self, epoch: HeldEpoch) -> list[HeldEpoch]:
        """Keep it. Returns what Spark has committed already, as `commit` does: this replica is behind the one that Spark has read."""
        if epoch.rows.num_rows:
            self._epochs.append(epoch)
        self.newest = epoch.epoch
        self.ended = epoch.last
        return self._forget()

    def take(self, through: int) -> None:
        """Spark has planned to read everything up to `through`, and may read it again until it commits that."""
        self.taken = max(self.taken, through)

    @property
    def taken_through(self) -> int:
        """Everything up to this epoch has been planned, or has no rows."""
        return next((held.epoch - 1 for held in self._epochs if held.epoch > self.taken), self.newest if self.begun else self.taken)

    @property
    def stored_through(self) -> int:
        """Everything up to this epoch has been committed, or has no rows."""
        return self._epochs[0].epoch - 1 if self._epochs else self.newest if self.begun else self.committed

    def offer(self, after: int) -> dict[str, Any] | None:
        """Where a batch that begins behind `after` shall end: behind all rows that are here, or, if there are no more, behind an epoch
        without rows, or at the end of the stream: then Spark commits what it has. None: there is nothing to do.
        """
        if not self._epochs or (self.newest <= after and not self.ended):
            return None
        return {"epoch": self.newest} if self.newest > after else {"epoch": self.newest, "end": True}

    def has(self, after: int, through: int) -> bool:
        """Whether all epochs in (after, through] are here."""
        return self.since <= after and through <= self.newest

    def between(self, after: int, through: int) -> list[HeldEpoch]:
        """The epochs in (after, through] that have rows. Reading takes nothing away: Spark may read again."""
        return [held for held in self._epochs if after < held.epoch <= through]

    def commit(self, through: int) -> list[HeldEpoch]:
        """Spark has stored everything up to `through`: forget it, and what is still to come of it. Returns what was forgotten; a repeated
        commit forgets nothing.
        """
        self.committed = max(self.committed, through)
        self.take(through)
        return self._forget()

    def _forget(self) -> list[HeldEpoch]:
        gone = []
        while self._epochs and self._epochs[0].epoch <= self.committed:
            gone.append(self._epochs.popleft())
            self.since = gone[-1].epoch
        return gone
