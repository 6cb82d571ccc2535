"""Ingress: rows from sources wait here until an epoch takes them (protocol E5).

Which rows form an epoch is the one thing that is not a function of an address, so it is decided in one place, recorded in the frame,
and nowhere else. One `IngressQueue` per source partition at a site.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa


class _BatchEnd:
    """Marks in the queue where a Spark batch ends."""


@dataclass(slots=True)
class IngressQueue:
    """Waiting rows of one source partition.

    rows, bytes: waiting now. since: wall clock at which the first of them came, microseconds, None if there is none.
    ended: no more rows will come. announced: an epoch has said so.
    """

    partition: int
    rows: int = 0
    since: int | None = None
    ended: bool = False
    announced: bool = False
    _queue: deque[pa.RecordBatch | _BatchEnd] = field(default_factory=deque)

    def put(self, batch: pa.RecordBatch, now_us: int) -> None:
        if batch.num_rows:
            self._queue.append(batch)
            self.rows += batch.num_rows
            if self.since is None:
                self.since = now_us

    def end_batch(self) -> None:
        """All rows of a Spark batch have been put."""
        self._queue.append(_BatchEnd())

    @property
    def over(self) -> bool:
        """Ended, and every row has been taken."""
        return self.ended and not self._queue

    @property
    def waiting(self) -> bool:
        """Something is here that an epoch should carry: rows, the end of a batch, or the news that the source has ended."""
        return bool(self._queue) or (self.ended and not self.announced)

    def take(self, limit: int, now_us: int) -> tuple[pa.RecordBatch | None, bool]:
        """At most `limit` rows in order of arrival, as one batch or None, and whether a Spark batch ended within them."""
        taken: list[pa.RecordBatch] = []
        count, batch_done = 0, False
        while self._queue:
            head = self._queue[0]
            if isinstance(head, _BatchEnd):
                batch_done = True
                self._queue.popleft()
                break
            if count == limit:
                break
            if head.num_rows > limit - count:
                taken.append(head.slice(0, limit - count))
                self._queue[0] = head.slice(limit - count)
                count = limit
                break
            taken.append(head)
            count += head.num_rows
            self._queue.popleft()
        self.rows -= count
        self.since = now_us if self.rows else None
        if not taken:
            return None, batch_done
        return (taken[0] if len(taken) == 1 else pa.concat_batches(taken)), batch_done
