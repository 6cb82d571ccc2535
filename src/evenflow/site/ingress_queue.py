"""The rows of one source partition that wait at its leader for an epoch (protocol E5).

With them goes what is known of each run of them: which task of Spark has pushed it, where it is stored, when it was due. When an epoch
takes them, `ingress` decides.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.exchange.section import WHOLE_BATCH, RowsObject, Share
from evenflow.stream.sampling import Positions
from evenflow.stream.weight import narrowed

EPOCH_BYTES_MAX: Final = 64 * 2**20
"""About the most that one ingress partition puts into an epoch, so that wide rows make neither messages nor columns too large."""


@dataclass(slots=True)
class IngressQueue:
    """Waiting rows of one source partition.

    row_bytes: of a row, if all its columns are of fixed width. rows, bytes: waiting now, bytes about. since: wall clock at which the
    first of them came, microseconds, None if there is none. ended: no more rows will come. announced: an epoch has said so. position:
    column that says where the source is, if it does not count rows. dated: it is noted when rows were due.
    """

    partition: int
    row_bytes: int | None
    position: str | None = None
    rows: int = 0
    bytes: int = 0
    since: int | None = None
    ended: bool = False
    announced: bool = False
    dated: bool = False
    _due: deque[tuple[int, int | None]] = field(default_factory=deque)
    _queue: deque[tuple[pa.RecordBatch | None, Share | None, RowsObject | None]] = field(default_factory=deque)

    def put(
        self,
        batch: pa.RecordBatch,
        since_us: int,
        share: Share | None = None,
        stored: RowsObject | None = None,
        due_us: int | None = None,
    ) -> None:
        """since_us: when the first of them was there. share: whose the rows are, if a task of Spark has pushed them. stored: where they
        are, if nobody gives them again. due_us: when the first of them was due, if the source can say."""
        if batch.num_rows:
            if self.dated:
                self._due.append((batch.num_rows, due_us))
            self._queue.append((batch, share, stored))
            self.rows += batch.num_rows
            self.bytes += batch.num_rows * self.row_bytes if self.row_bytes is not None else int(batch.nbytes)
            if self.since is None:
                self.since = since_us

    def narrowed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The columns that somebody reads."""
        return narrowed(batch, schema.names)

    def end_batch(self, batch: int) -> None:
        """All rows of a Spark batch have been put."""
        self._queue.append((None, Share(batch, WHOLE_BATCH, 0, True), None))

    def end_here(self) -> None:
        """No more rows are wanted. Those that were read ahead of what is replayed are not taken in, unless nobody else has them."""
        self.ended = True
        if all(share is None and stored is None for batch, share, stored in self._queue if batch is not None):
            self._queue.clear()
            self._due.clear()
            self.rows, self.bytes, self.since = 0, 0, None

    @property
    def due_us(self) -> int | None:
        """When the oldest row that waits was due, about; None if none waits, or the source cannot say."""
        return self._due[0][1] if self._due else None

    @property
    def over(self) -> bool:
        """Ended, and every row has been taken."""
        return self.ended and not self._queue

    @property
    def waiting(self) -> bool:
        """Something is here that an epoch should carry: rows, the end of a batch, or the news that the source has ended."""
        return bool(self._queue) or (self.ended and not self.announced)

    def full(self, limit: int) -> bool:
        """What waits is enough for an epoch of `limit` rows, or of as many bytes as an epoch may have."""
        return self.rows >= limit or self.bytes >= EPOCH_BYTES_MAX

    def room(self, limit: int) -> int:
        """Rows that may still come: two epochs' worth may wait, no more. Rows to come are thought as wide as those that wait."""
        room = 2 * limit - self.rows
        if self.bytes > EPOCH_BYTES_MAX // 8:
            room = min(room, (2 * EPOCH_BYTES_MAX - self.bytes) * self.rows // self.bytes)
        return max(0, room)

    def position_after(self, batch: pa.RecordBatch, before: int) -> int:
        """Where the source is when `batch` has been taken. before: where it was then."""
        if self.position is None:
            return before + int(batch.num_rows)
        return int(batch.column(self.position)[-1].as_py()) + 1

    def behind(self, before: int) -> int:
        """Where the source is behind all rows that wait. before: where it was before them."""
        if self.position is None:
            return before + self.rows
        return next((self.position_after(batch, before) for batch, _, _ in reversed(self._queue) if batch is not None), before)

    def positions(self, batch: pa.RecordBatch, before: int) -> Positions:
        """int64 (n,): where the source was at each of the next rows. before: where it was then."""
        if self.position is None:
            return np.arange(before, before + batch.num_rows, dtype=np.int64)
        found: Positions = batch.column(self.position).to_numpy(zero_copy_only=False).astype(np.int64)
        return found

    def rows_before(self, position: int, before: int) -> int | None:
        """How many of the waiting rows come before this position of the source; None: not all of them are here yet.

        before: where the source was when the first of them had not been read. Raises LookupError if one that was there is not any more.
        """
        if self.position is None:
            return position - before if position - before <= self.rows else None
        count = 0
        if position == before:
            return count
        for batch, _, _ in self._queue:
            if batch is not None:
                positions = batch.column(self.position).to_numpy(zero_copy_only=False)
                if positions[-1] >= position - 1:
                    at = int(np.searchsorted(positions, position - 1))
                    if positions[at] != position - 1:
                        raise LookupError(f"the row before {position} is not there any more: the next one is at {positions[at]}")
                    return count + at + 1
                count += batch.num_rows
        return None

    def take_rows(self, count: int, now_us: int) -> pa.RecordBatch | None:
        """The next `count` rows, which are here, however many or wide they are."""
        taken: list[pa.RecordBatch] = []
        missing = count
        while missing:
            head, share, stored = self._queue.popleft()
            if head is None:
                continue  # The end of a batch: the cuts that are replayed say where it was.
            if head.num_rows > missing:
                self._queue.appendleft((head.slice(missing), share, stored))
                head = head.slice(0, missing)
            taken.append(head)
            missing -= head.num_rows
        return self._taken(taken, count, now_us)

    def _taken(self, batches: list[pa.RecordBatch], count: int, now_us: int) -> pa.RecordBatch | None:
        """These rows are in an epoch now; as one batch."""
        self.bytes -= self.bytes * count // self.rows if count else 0
        self.rows -= count
        self.since = now_us if self.rows else None
        while count and self._due:
            rows, due_us = self._due.popleft()
            if rows > count:
                self._due.appendleft((rows - count, due_us))
            count -= min(rows, count)
        if not batches:
            return None
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def take(self, limit: int, now_us: int) -> tuple[pa.RecordBatch | None, tuple[Share, ...], tuple[RowsObject, ...]]:
        """At most `limit` rows in order of arrival, as one batch or None; whose they are, the end of a Spark batch last of all; and where.

        Fewer, but one at least, if they are so wide that they would take more than EPOCH_BYTES_MAX.
        """
        if self.bytes > EPOCH_BYTES_MAX:
            limit = min(limit, max(1, EPOCH_BYTES_MAX * self.rows // self.bytes))
        taken: list[pa.RecordBatch] = []
        shares: list[Share] = []
        objects: dict[RowsObject, None] = {}
        count = 0
        while self._queue:
            head, share, stored = self._queue[0]
            if head is not None and head.num_rows > limit - count:
                rest = limit - count
                if rest:
                    taken.append(head.slice(0, rest))
                    objects |= {} if stored is None else {stored: None}
                    if share is not None:
                        shares.append(share._replace(rows=rest, whole=False))
                        share = share._replace(rows=share.rows - rest)
                    self._queue[0] = (head.slice(rest), share, stored)
                    count = limit
                break
            if share is not None:
                shares.append(share)
            if head is None:
                self._queue.popleft()
                break
            taken.append(head)
            objects |= {} if stored is None else {stored: None}
            count += head.num_rows
            self._queue.popleft()
        return self._taken(taken, count, now_us), tuple(shares), tuple(objects)
