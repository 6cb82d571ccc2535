"""Ingress of a dataflow whose sources are cut by content: what decides an epoch's rows is in the rows (protocol E9 to E11, I4, A6).

Every replica of an ingress partition reads the source and leads itself: there are no followers, and no records go anywhere. Rows wait by
epoch, and an epoch closes here when all partitions that this site reads are known to have no more rows for it, and there is room for it
everywhere (A5). Nobody waits for what the sites have processed: that makes epochs grow, and these cannot (A6).

A partition that has come with a copy, and is behind the others here, catches up by itself; they do not wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from evenflow.availability.entries import Key
from evenflow.errors import SourceError
from evenflow.exchange.routing import row_bytes_of
from evenflow.exchange.section import Record, RowsObject, Share
from evenflow.plan.layout import Layout, Segment
from evenflow.site.ingress import Ingress
from evenflow.site.ingress_queue import IngressQueue
from evenflow.site.leading import Leading, Role
from evenflow.site.log import PartitionLog
from evenflow.site.options import FlowOptions
from evenflow.site.replaying import FROM_NOTHING, Beginning, CannotReplay
from evenflow.stream.cut import WHOLE, Grid, Numbers, runs_of
from evenflow.stream.ids import FIRST_TERM, SiteId, Term
from evenflow.stream.weight import narrowed

NOBODY_WAITS: Final = 2**62
"""Epochs that may be between close and the slowest site, where the window alone counts."""


def grid_of(layout: Layout) -> Grid | None:
    """The stamps of the epochs of a layout, whose sources all have the same, if they are cut by content; None: they have leaders."""
    return next((grid for grid in [source.grid(0) for source in layout.sources.values()] if grid is not None), None)


class BrokenPromise(SourceError):
    """A row came for an epoch that was known to be whole."""


@dataclass(slots=True)
class Waiting:
    """Rows of one epoch, in the order of the source. since: wall clock at which the first of them came, microseconds."""

    epoch: int
    since: int
    batches: list[pa.RecordBatch]


@dataclass(slots=True)
class ContentQueue(IngressQueue):
    """Waiting rows of one source partition, by epoch. complete: all rows of the epochs up to this one have come. taken_in: the last epoch
    that was closed here. anew: the partition has begun anew behind this one (B4): what comes of epochs before was closed nowhere, and is of
    the first one here. ended_by: the last epoch that may have rows; those of later ones are not taken in. by_plan: that is what it has
    ended by, so it is over in that epoch at every reader, and not as soon as nothing waits."""

    complete: int = 0
    taken_in: int = 0
    anew: int = -1
    ended_by: int = WHOLE
    by_plan: bool = False
    _epochs: deque[Waiting] = field(default_factory=deque)
    _numbers: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def narrowed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        self._numbers = batch.column(batch.num_columns - 1).to_numpy()
        return narrowed(batch, schema.names)

    def put(
        self,
        batch: pa.RecordBatch,
        since_us: int,
        share: Share | None = None,
        stored: RowsObject | None = None,
        due_us: int | None = None,
    ) -> None:
        for of, first, rows in runs_of(self._numbers) if batch.num_rows else ():
            epoch = max(of, self.anew + 1)
            if epoch <= self.taken_in:
                raise BrokenPromise(
                    f"partition {self.partition}: a row of epoch {epoch} has come, and epoch {self.taken_in} was said to be whole. The "
                    "reader's promise was wrong: the source cannot be cut by content"
                )
            if epoch > self.ended_by:
                self.end_here(by_plan=True)
                return
            part = batch if rows == batch.num_rows else batch.slice(first, rows)
            if self._epochs and self._epochs[-1].epoch == epoch:
                self._epochs[-1].batches.append(part)
            else:
                self._epochs.append(Waiting(epoch, since_us, [part]))
            self.complete = max(self.complete, epoch - 1)
            self.rows += rows
            self.bytes += rows * self.row_bytes if self.row_bytes is not None else int(part.nbytes)
            if self.since is None:
                self.since = since_us

    def reached(self, epoch: int) -> bool:
        """All rows of the epochs up to this one have come. True if that is news."""
        if epoch >= self.ended_by:
            self.end_here(by_plan=True)
        if epoch <= self.complete:
            return False
        self.complete = epoch
        return True

    def end_here(self, *, by_plan: bool = False) -> None:
        """No row comes any more; those that have come are of epochs that are closed in their turn."""
        self.by_plan = self.by_plan or (by_plan and not self.ended)
        self.ended = True

    def end_by(self, epoch: int) -> None:
        """Epochs behind this one have no rows, whatever the source gives."""
        self.ended_by = min(self.ended_by, epoch)
        while self._epochs and self._epochs[-1].epoch > self.ended_by:
            self._forget(self._epochs.pop())
        if self.complete >= self.ended_by:
            self.end_here(by_plan=True)

    @property
    def over(self) -> bool:
        return self.ended and not self._epochs and (not self.by_plan or self.taken_in >= self.ended_by)

    @property
    def waiting(self) -> bool:
        return bool(self._epochs) or (self.ended and not self.announced)

    def lacks(self, epoch: int) -> bool:
        """Some rows of this epoch may still come."""
        return self.complete < epoch and not self.ended

    def room(self, limit: int) -> int:
        """As ever; and while the next epoch is not whole there is always some, however many rows it has."""
        room = IngressQueue.room(self, limit)
        return room if room or not self.lacks(self.taken_in + 1) else limit

    def take_epoch(self, epoch: int) -> tuple[pa.RecordBatch | None, int | None]:
        """The rows of the next epoch as one batch, or None, and when the first of them came."""
        self.taken_in = epoch
        if not self._epochs or self._epochs[0].epoch > epoch:
            return None, None
        found = self._epochs.popleft()
        self._forget(found)
        batches = found.batches
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches), found.since

    def _forget(self, taken: Waiting) -> None:
        rows = sum([batch.num_rows for batch in taken.batches])
        self.bytes -= self.bytes * rows // self.rows
        self.rows -= rows
        self.since = self._epochs[0].since if self._epochs else None


class ContentIngress(Ingress):
    """See the module. grid: where epochs begin and end. _ends: the last epoch that has rows, if the run is drained. _by_grid: an epoch's
    first row counts as having come when the epoch began: rows are due no earlier where the grid is one of times."""

    queues: dict[Key, ContentQueue]  # type: ignore[assignment]

    def __init__(self, options: FlowOptions, grid: Grid, beginning: Beginning = FROM_NOTHING, *, journalled: bool = False) -> None:
        """journalled: all that records say is written down, so it is the same at all replicas."""
        super().__init__(options, beginning)
        self.grid, self._by_grid = grid, journalled or grid.origin == grid.begin_us
        self._linger_us, self._ends = grid.step_us, WHOLE
        self.stamp = grid.stamp(self.closed)

    def lead(
        self,
        segment: Segment,
        log: PartitionLog,
        position: str | None = None,
        former: SiteId | None = None,
        *,
        kept: bool = True,
    ) -> list[Record]:
        """Read this partition from here on, from behind what its log has."""
        key = (segment.id, log.partition)
        queue = ContentQueue(log.partition, row_bytes_of(segment.schema), position)
        queue.complete = queue.taken_in = log.end
        queue.anew = log.anew
        queue.announced = log.ended
        if log.ended:
            queue.end_here()
        else:
            ended = [cut.epoch for cut in self.beginning.cuts.get(key, ()) if cut.ended]
            queue.end_by(min([self._ends, *ended]))
        self._logs[key] = log
        if not self.queues:
            self.closed = log.end
            self.stamp = self.grid.stamp(self.closed)
        self.queues[key] = queue
        self.demand(log.end)
        if log.end < self.closed:
            self._late.append(key)
        return []

    def reach(self, key: Key, epoch: int) -> bool:
        """All rows of these epochs of a partition are here. True if that is news."""
        return self.queues[key].reached(epoch)

    def end_by(self, epoch: int) -> None:
        """No rows are wanted behind this epoch, by a plan."""
        self._ends = min(self._ends, epoch)
        for queue in self.queues.values():
            queue.end_by(epoch)

    def drain(self) -> None:
        """Where replicas read for themselves they end where a plan says (`end_by`): each would stop somewhere else."""

    def replays(self, key: Key) -> bool:
        return False

    def room(self, key: Key) -> int:
        queue = self.queues.get(key)
        return 0 if queue is None or queue.ended else queue.room(self.options.epoch_rows)

    @property
    def at_rest(self) -> bool:
        """Never: epochs come by the time of what is read."""
        return False

    def may_close(self, granted: int, processed: int, now_us: int) -> bool:
        epoch = self.closed + 1
        if epoch > granted or not self.queues or (self.hold_from is not None and epoch >= self.hold_from):
            return False
        over = True
        for key, queue in self.queues.items():
            if key in self._late:  # It has epochs behind to read first: what it gives then does not open one here.
                continue
            if queue.lacks(epoch):
                return False
            over = over and queue.announced
        return not over or epoch <= max(self._demanded, self._insisted)

    @property
    def known(self) -> int:
        """The last epoch that anybody is known to have closed."""
        return max(self.closed, self._demanded)

    @property
    def pipeline(self) -> int:
        return NOBODY_WAITS

    def close(self, logs: Mapping[Key, PartitionLog], now_us: int) -> list[Record]:
        self.closed += 1
        self.last_close_us = now_us
        self.stamp = self.grid.stamp(self.closed)
        return [self._cut_epoch(key, self.closed) for key in self.queues if logs[key].end == self.closed - 1]

    def catch_up(self, now_us: int) -> list[Record]:
        records = []
        for key in list(self._late):
            epoch = self._logs[key].end + 1
            if epoch > self.closed:
                self._late.remove(key)
            elif not self.queues[key].lacks(epoch):
                records.append(self._cut_epoch(key, epoch))
        return records

    def _cut_epoch(self, key: Key, epoch: int) -> Record:
        queue, log, stamp = self.queues[key], self._logs[key], self.grid.stamp(epoch)
        batch, since = queue.take_epoch(epoch)
        if (cut := self._next_cut(key)) is not None:
            self._compare(key, cut, 0 if batch is None else batch.num_rows)
        opened = stamp if since is None else stamp - self.grid.step_us if self._by_grid else since
        taken = log.taken if batch is None else queue.position_after(batch, log.taken)
        if queue.over:
            queue.announced = True
            self._check_end(key, epoch, taken)
        return Record(*key, epoch, FIRST_TERM, 0, stamp, opened, taken, False, queue.announced, batch)

    def _check_end(self, key: Key, epoch: int, taken: int) -> None:
        """The source has ended with this epoch: nothing that was given out before is behind it. Raises CannotReplay if some is."""
        for cut in self.beginning.cuts.get(key, ()):
            if cut.epoch > epoch and cut.taken > taken:
                raise CannotReplay(key, cut, taken, "the source has ended there")

    def time_us(self, now_us: int) -> int:
        """Stamps come by the grid, whatever anybody's clock says."""
        return self.stamp


class OwnLeading(Leading):
    """Each replica of an ingress partition leads itself (I4)."""

    def change(self) -> list[PartitionLog]:
        site, promoted = self._view.site, []
        for key, log in self.logs.items():
            if key not in self._roles and log.known:
                self._roles[key] = Role(site, FIRST_TERM, (site,), (), True)
                log.lead()
                promoted.append(log)
                segment = self._layout.segments[log.segment]
                self.publish(self.ingress.lead(segment, log, self._layout.sources[segment.source or ""].position))
        return promoted

    def journalled(self) -> Iterator[tuple[Key, Term]]:
        """All replicas have the same; one tells of it."""
        for key, _ in self.led():
            leader = self._view.leader(*key)
            if leader.site == self._view.site:
                yield key, leader.since

    def enrolled(self, key: Key) -> bool:
        return key in self._roles
