"""Ingress: rows from sources wait here until an epoch takes them (protocol E5).

Which rows form an epoch is the one thing that is not a function of an address, so it is decided in one place, by the partition's leader,
and recorded in the partition's log. All ingress partitions that a site leads close together, and follow the epoch that a peer has closed.

What a run replays has been decided before (`replaying`): those epochs are cut as the journal says, when their rows are here and there is
room, whatever time or peers want.

Where a source is late and that is asked for, an epoch leaves rows out (`reflex`). Its record says how much it keeps of what the source
gave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

import pyarrow as pa

from evenflow.availability.entries import Cut, Key
from evenflow.exchange.routing import row_bytes_of
from evenflow.exchange.section import WHOLE_BATCH, Record
from evenflow.plan.layout import Segment
from evenflow.site.ingress_queue import IngressQueue
from evenflow.site.log import PartitionLog
from evenflow.site.options import FlowOptions
from evenflow.site.reflex import Reflex
from evenflow.site.replaying import FROM_NOTHING, Beginning, CannotReplay
from evenflow.site.tally import Tallies
from evenflow.stream.ids import FIRST_TERM, SiteId


class Room(NamedTuple):
    """What an epoch may have. waiting: rows that wait at all partitions here of which some may be left out. thinned: partitions of which
    some are. shares: by ingress segment, see `Reflex.shares`."""

    waiting: int
    thinned: Collection[Key]
    shares: Mapping[int, float] | None


class Ingress:
    """The ingress partitions that this site leads, and the decision when the next epoch closes.

    queues: by (segment, partition). closed: last closed epoch. last_close_us: when. stamp: of that epoch, the monotone wall clock
    (E6), microseconds. hold_from: epochs from here on wait for a plan (V2). linger_due_us: when the next epoch wants to close, set
    by `may_close`. beginning: what is cut as it was before. draining: sources are over when what is replayed has been cut. reflex: what
    is left out of them.

    _demands: (epoch, when) that peers closed first, if rows may be left out. _logs: of the led partitions. _late: those whose former leader
    had not cut all replayed epochs that this site has closed. _left: up to where a former leader that has moved away had taken rows in.
    _owed: who has led it, lives, and has not said so yet. _unkept: partitions of whose rows nobody has those that are replayed: they are
    lost. _stamped_us: by the clock here, since when `stamp` is what it is; None: since
    somebody asks.
    """

    def __init__(self, options: FlowOptions, beginning: Beginning = FROM_NOTHING, reflex: Reflex | None = None) -> None:
        self.options, self.beginning = options, beginning
        self.reflex = Reflex({}, options.pipeline, Tallies(), active=False) if reflex is None else reflex
        self.queues: dict[Key, IngressQueue] = {}
        self.closed = beginning.epoch
        self.draining = False
        self._logs: dict[Key, PartitionLog] = {}
        self._late: list[Key] = []
        self._left: dict[Key, int] = {}
        self._owed: dict[Key, SiteId] = {}
        self._unkept: set[Key] = set()
        self.last_close_us = 0
        self.stamp = 0
        self._stamped_us: int | None = None
        self.hold_from: int | None = None
        self.linger_due_us: int | None = None
        self._demanded = 0
        self._demands: deque[tuple[int, int]] = deque()
        self._wanted = self._insisted = 0
        self._linger_us = int(options.linger_ms * 1000)

    def lead(
        self, segment: Segment, log: PartitionLog, position: str | None = None, former: SiteId | None = None, *, kept: bool = True
    ) -> list[Record]:
        """Lead this partition from here on. Returns empty records for the epochs that this site has closed and its log has not, unless
        these are replayed: then they follow when their rows are here (`catch_up`).

        position: column of the source's position, if it has one. former: who has led it, if it lives and will say how far it had read.
        kept: else nobody has rows that are replayed.
        """
        key = (segment.id, log.partition)
        if not kept:
            self._unkept.add(key)
        queue = IngressQueue(log.partition, row_bytes_of(segment.schema), position)
        queue.ended = log.ended
        queue.announced = log.ended
        queue.dated = self.reflex.covers(segment.id)
        self._logs[key] = log
        self._goes_behind(log.stamp)
        if not self.queues:
            self.closed = log.end
        self.queues[key] = queue
        if former is not None:
            self._owed[key] = former
        self._drain(key)
        self.demand(log.end)
        if log.end < min(self.closed, self.beginning.durable):
            self._late.append(key)
            return []
        return self._missing(key)

    def _missing(self, key: Key) -> list[Record]:
        """Empty records, for the epochs that this site has closed and the partition's log has not."""
        log = self._logs[key]
        missing = range(log.end + 1, self.closed + 1)
        return [Record(*key, epoch, FIRST_TERM, 0, self.stamp, self.stamp, log.taken, False, log.ended, None) for epoch in missing]

    def resign(self, segment: int, partition: int) -> int | None:
        """Lead this partition no more; rows that no epoch has taken are read again by its new leader. Returns the position up to which they
        had been taken in, also by those who led it before; None if it was not led here."""
        key = (segment, partition)
        self._late = [late for late in self._late if late != key]
        self._owed.pop(key, None)
        queue = self.queues.pop(key, None)
        return None if queue is None else max(queue.behind(self._logs[key].taken), self._left.get(key, 0))

    def drain(self) -> None:
        """No more rows are wanted but those that are replayed, or that who led a partition before it moved had taken in."""
        self.draining = True
        for key in self.queues:
            self._drain(key)

    def _drain(self, key: Key) -> None:
        """If the run is drained, the source partition ends where it had been taken in, as soon as that is known and has come."""
        log, queue = self._logs[key], self.queues[key]
        if self.draining and log.end >= self.beginning.durable and key not in self._owed:
            queue.ended = queue.ended or queue.behind(log.taken) >= self._left.get(key, 0)

    def hear_left(self, key: Key, taken: int) -> None:
        """Who has led this partition has moved away, and had taken in its rows up to this position."""
        self._owed.pop(key, None)
        self._left[key] = max(taken, self._left.get(key, 0))
        if key in self.queues:
            self._drain(key)

    def change(self, sites: Collection[SiteId]) -> None:
        """Who is not among these sites any more says nothing: what it had read counts as far as a log has it."""
        for key in [key for key, former in self._owed.items() if former not in sites]:
            del self._owed[key]
            self._drain(key)

    def replays(self, key: Key) -> bool:
        """Whether rows of this partition, which is led here, are still to be read as they were before, also when the run is drained."""
        queue = self.queues.get(key)
        return queue is not None and (self._next_cut(key) is not None or not queue.ended)

    def room(self, key: Key) -> int:
        """Rows that may still come for this partition: enough for what is replayed next, however much that is."""
        queue = self.queues.get(key)
        if queue is None or queue.ended:
            return 0
        limit = self.options.epoch_rows
        room = queue.room(limit)
        if room:
            return room
        cut = self._next_cut(key)
        if cut is None:
            return 0
        try:
            return limit if queue.rows_before(cut.taken, self._logs[key].taken) is None else 0
        except LookupError:
            return 0  # The next epoch cannot be cut, and that is said when it is tried.

    def demand(self, epoch: int, now_us: int | None = None) -> bool:
        """A peer has closed `epoch`: this ingress follows (E5). True if there is something to do."""
        if epoch > self._demanded:
            self._demanded = epoch
            if now_us is not None and self.reflex.active:
                self._demands.append((epoch, now_us))
        return self._demanded > self.closed

    def want(self, epoch: int, *, insist: bool = False) -> None:
        """Close up to `epoch` even without rows, when there is room: time must move on. insist: even if all sources have ended."""
        self._wanted, self._insisted = max(self._wanted, epoch), max(self._insisted, epoch if insist else 0)

    def may_close(self, granted: int, processed: int, now_us: int) -> bool:
        """Whether the next epoch closes now. granted: last epoch with room everywhere (A5). processed: last one processed everywhere."""
        epoch = self.closed + 1
        if self.draining and self._left:
            for key in self.queues:
                self._drain(key)
        if not self.queues or self._late or (self.hold_from is not None and epoch >= self.hold_from):
            return False
        if epoch <= self.beginning.durable:
            return epoch <= granted and not any(self._logs[key].end < epoch and self._lacks_rows(key) for key in self.queues)
        if epoch <= self._demanded:
            return True
        return epoch <= granted and self._wants_to_close(self.closed - processed, now_us)

    def _wants_to_close(self, lag: int, now_us: int) -> bool:
        """E5: `linger_ms` after the first row, or full, or to say that a source has ended; but not while the sites lag behind."""
        first, news, full, all_ended, over = None, False, False, True, True
        for queue in self.queues.values():
            since = queue.since
            if since is not None and (first is None or since < first):
                first = since
            news = news or queue.waiting
            full = full or queue.full(self.options.epoch_rows)
            all_ended = all_ended and queue.ended
            over = over and queue.announced
        wanted = self.closed < (self._insisted if over else self._wanted)  # After the last epoch there is none, plan or no plan.
        if not (news or wanted) or lag >= self.options.pipeline:
            return False
        due = first + self._linger_us if first is not None else now_us
        self.linger_due_us = due
        return now_us >= due or full or all_ended or wanted

    @property
    def at_rest(self) -> bool:
        """Nobody wants an epoch, nothing waits for one, and nothing is replayed: `may_close` would say no, and no timer is to be set."""
        closed = self.closed
        if self._demanded > closed or self._wanted > closed or self._insisted > closed or closed < self.beginning.durable or self._late:
            return False
        for queue in self.queues.values():
            if queue.waiting:
                return False
        return not self.reflex.active

    @property
    def pipeline(self) -> int:
        """So many epochs may be between the one that closes and what all sites have processed."""
        return self.options.pipeline

    def waits_us(self, now_us: int) -> int:
        """For how long rows have been waiting here beyond the linger; 0 if none are, or a plan that acts soon holds them."""
        epoch = self.closed + 1
        first = min([queue.since for queue in self.queues.values() if queue.since is not None], default=None)
        if first is None or self._late or (self.hold_from is not None and epoch >= self.hold_from):
            return 0
        return max(0, now_us - first - self._linger_us)

    def overdue(self, now_us: int) -> bool:
        """Rows have been waiting here for longer than they should."""
        for queue in self.queues.values():
            if queue.since is not None and now_us - queue.since > self._linger_us:
                return True
        return False

    def close(self, logs: Mapping[tuple[int, int], PartitionLog], now_us: int) -> list[Record]:
        """Close the next epoch: what waits at each partition goes into it, at most `epoch_rows` each. logs: of the led partitions.

        A partition whose former leader has closed that epoch keeps the record that is there.
        """
        self.closed += 1
        self.last_close_us = now_us
        self.linger_due_us = None
        if self.closed <= self.beginning.durable:
            return [self._cut_again(key, now_us) for key in self.queues if logs[key].end < self.closed]
        self.stamp = max(self.stamp + 1, self.time_us(now_us))
        self._stamped_us = now_us
        room = self._room(now_us) if self.reflex.active else None
        records = [self._cut(key, queue, logs[key], now_us, room) for key, queue in self.queues.items() if logs[key].end < self.closed]
        if self.reflex.active:
            rows = sum([each.rows.num_rows for each in records if each.rows is not None and self.reflex.covers(each.segment)])
            self.reflex.allowance.close(self.closed, rows, now_us)
        return records

    # ------------------------------------------------------------ time

    def time_us(self, now_us: int) -> int:
        """The stamp of an epoch that closes now: what the clock says. If that is behind the stamps of before (another driver's clock was
        ahead, or a dead leader's), time goes on from these, half as fast as the clock, until that has caught up: what waits for a
        stamp waits twice as long, and not for a day."""
        if self._stamped_us is None:
            self._stamped_us = now_us
        return max(now_us, self.stamp + (now_us - self._stamped_us) // 2)

    def clock_us(self, stamp: int, now_us: int) -> int:
        """What the clock says when it is time for this stamp, which is to come."""
        ahead_us = stamp - self.time_us(now_us)
        return now_us + min(stamp - now_us, 2 * ahead_us)

    def _goes_behind(self, stamp: int) -> None:
        """What is cut from here on is later than this."""
        if stamp > self.stamp:
            self.stamp, self._stamped_us = stamp, None

    # ------------------------------------------------------------ what is replayed

    def catch_up(self, now_us: int) -> list[Record]:
        """The next records of partitions that this site has begun to lead late, as far as their rows are here."""
        records = []
        for key in list(self._late):
            if self._logs[key].end < min(self.closed, self.beginning.durable):
                records += [] if self._lacks_rows(key) else [self._cut_again(key, now_us)]
            else:
                self._late.remove(key)
                records += self._missing(key)
        return records

    def _next_cut(self, key: Key) -> Cut | None:
        """How the partition's next epoch was cut, if that is replayed."""
        return self.beginning.cut(key, self._logs[key].end + 1)

    def _lacks_rows(self, key: Key) -> bool:
        """Rows of the partition's next epoch, which is replayed, are not here yet. Raises CannotReplay if they never will be."""
        cut, queue, log = self._next_cut(key), self.queues[key], self._logs[key]
        if cut is None or key in self._unkept:
            return False
        try:
            count = queue.rows_before(cut.taken, log.taken)
        except LookupError as error:
            raise CannotReplay(key, cut, log.taken, str(error)) from error
        if count is None and queue.ended:
            raise CannotReplay(key, cut, log.taken, f"the source has ended after {queue.rows} of its rows")
        if count is not None:
            self._compare(key, cut, count)
        return count is None

    def _compare(self, key: Key, cut: Cut, rows: int) -> None:
        """An epoch that was given out before has as many rows as it had. Raises CannotReplay if not: some are gone, or others have come."""
        if cut.rows not in (None, rows):
            raise CannotReplay(key, cut, self._logs[key].taken, f"the source has {rows} rows there, and gave {cut.rows} then")

    def _cut_again(self, key: Key, now_us: int) -> Record:
        """The partition's next epoch as it was. Its stamp is time that has passed: what is cut afterwards is later (E6)."""
        cut, queue, log = self._next_cut(key), self.queues[key], self._logs[key]
        assert cut is not None
        count = 0 if key in self._unkept else queue.rows_before(cut.taken, log.taken)
        assert count is not None, f"epoch {cut.epoch} of {key} is cut before its rows are here"
        batch = queue.take_rows(count, now_us)
        if batch is not None and cut.keep:
            batch = self._thinned_again(key, cut, batch)
        if queue.dated or cut.dropped:  # What is not dated has been counted as kept when it came.
            self.reflex.count(key, count if queue.dated else 0, cut.dropped)
        self._goes_behind(cut.stamp)
        if cut.ended:  # A drained source has more rows, some of which may be here.
            queue.end_here()
            queue.announced = True
        elif self.draining and cut.epoch >= self.beginning.durable:
            queue.end_here()
        flags = cut.batch_done, cut.ended
        left_out = cut.keep, cut.dropped
        return Record(*key, cut.epoch, FIRST_TERM, 0, cut.stamp, cut.opened, cut.taken, *flags, batch, cut.shares, cut.objects, *left_out)

    def _thinned_again(self, key: Key, cut: Cut, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """What stays of these rows, as then. Raises CannotReplay if it is not as many."""
        log = self._logs[key]
        try:
            thinned = self.reflex.thin_again(key, batch, self.queues[key].positions(batch, log.taken), cut.keep)
        except LookupError as error:
            raise CannotReplay(key, cut, log.taken, str(error)) from error
        if thinned.dropped != cut.dropped:
            said = f"{sum(thinned.dropped)} of its {batch.num_rows} rows would be left out, and {sum(cut.dropped)} were"
            raise CannotReplay(key, cut, log.taken, said)
        return thinned.rows if thinned.rows.num_rows else None

    # ------------------------------------------------------------ what is new

    def _room(self, now_us: int) -> Room:
        """For the epoch that is about to be cut."""
        self.reflex.allowance.open(now_us, self._behind_us(now_us))
        waiting: dict[int, int] = {}
        thinned = set[Key]()
        for key, queue in self.queues.items():
            if queue.dated and queue.rows:
                waiting[key[0]] = waiting.get(key[0], 0) + queue.rows
                if self.reflex.is_late(key[0], queue.due_us, now_us):
                    thinned.add(key)
        shares = self.reflex.shares(waiting)
        if shares is not None:
            thinned |= {key for key in self.queues if key[0] in shares and self.reflex.at_once(key[0], shares[key[0]])}
        return Room(sum(waiting.values()), thinned, shares)

    def _behind_us(self, now_us: int) -> int:
        """For how long a peer has already closed the epoch that is closed now."""
        while self._demands and self._demands[0][0] < self.closed:
            self._demands.popleft()
        return max(0, now_us - self._demands[0][1]) if self._demands else 0

    def _cut(self, key: tuple[int, int], queue: IngressQueue, log: PartitionLog, now_us: int, room: Room | None) -> Record:
        opened = self.stamp if queue.since is None else min(self.stamp, queue.since)
        limit, most = self.options.epoch_rows, None
        if room is not None and queue.dated and queue.rows:
            if room.shares is not None:
                most = min(queue.rows * room.shares[key[0]], float(limit))
                limit, most = (queue.rows, most) if key in room.thinned else (min(limit, max(1, int(most))), None)
            else:
                limit = int(min(limit, self.reflex.rows_ahead(queue.rows / room.waiting)))
        batch, shares, objects = queue.take(limit, now_us)
        batch_done = bool(shares) and shares[-1].task == WHOLE_BATCH
        if queue.over:
            queue.announced = True
        taken = log.taken if batch is None else queue.position_after(batch, log.taken)
        flags = batch_done, queue.announced
        keep: tuple[int, ...] = ()
        dropped: tuple[int, ...] = ()
        if batch is not None and queue.dated:
            offered = batch.num_rows
            if most is not None and offered > most:
                batch, keep, dropped = self.reflex.thin(key, batch, queue.positions(batch, log.taken), most)
                self.reflex.allowance.lack(now_us)
            self.reflex.count(key, offered, dropped)
            batch = batch if batch.num_rows else None
        return Record(*key, self.closed, FIRST_TERM, 0, self.stamp, opened, taken, *flags, batch, shares, objects, keep, dropped)
