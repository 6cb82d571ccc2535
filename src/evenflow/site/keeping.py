"""Keeping: rows that nobody can give again are in the store before an epoch may have them (availability.md, J5).

Lines that have come over a connection are gone when they have been read. A restart makes epochs again from the rows of sources, so with a
journal such rows go to the store first, as objects of Arrow's own format, and then wait for their epoch as all rows do. An epoch's record
and its cut name the objects that its rows are in. So whoever leads next, and whoever goes on after a restart, knows where they are, and
an object that no cut names is garbage.

One object is under way for each partition. Rows that come meanwhile wait and go into the next one; they count as waiting at the ingress, so
a slow store makes objects larger first, and then the source waits. What was read and is in no record when its leader dies is lost, as it is
without a store: its peer believes that it has been taken.

After a restart the rows of what is replayed are read from there, and what lies behind them in the last object, too; only then the source is
opened. Nothing of an object is believed before its digest is that of the journal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from evenflow.availability.entries import Key
from evenflow.exchange.section import RowsObject
from evenflow.site.ground import Ground
from evenflow.site.kept_rows import ReadRows, RowsRead, RowsStored, StoreRows

OBJECT_ROWS: Final = 65_536
"""Rows of one object at most, but for one batch that has more."""
OBJECT_BYTES: Final = 16 * 2**20
"""About the most bytes of one object, but for one row that has more."""
WAITING_BYTES: Final = 4 * OBJECT_BYTES
"""With so many bytes on their way to the store a partition takes in no more."""


@dataclass(slots=True)
class Lane:
    """One ingress partition. next: position of the next row that comes from the source. waiting: rows that are not under way to the store.
    stored: those that are, as object `number` of this site. ended: no more will come. rereading: (object, from, to) of what is replayed, in
    order; asked: the first of them is being read. opened: the source is open.
    """

    next: int
    waiting: deque[pa.RecordBatch] = field(default_factory=deque)
    stored: pa.RecordBatch | None = None
    number: int = 0
    ended: bool = False
    rereading: deque[tuple[RowsObject, int, int]] = field(default_factory=deque)
    asked: bool = False
    opened: bool = False

    @property
    def full(self) -> bool:
        """No more should come before the store has taken some."""
        return len(self.waiting) > 1 and sum([int(batch.nbytes) for batch in self.waiting]) >= WAITING_BYTES

    @property
    def rows(self) -> int:
        under_way = [] if self.stored is None else [self.stored]
        return sum([int(batch.num_rows) for batch in [*under_way, *self.waiting]])


class Keeping:
    """_numbers: objects that were begun here, so that no name is used twice."""

    def __init__(self, part: Ground) -> None:
        self._part = part
        self._lanes: dict[Key, Lane] = {}
        self._numbers = 0

    def keeps(self, segment: int) -> bool:
        """Whether rows of this ingress segment go to the store first."""
        source = self._part.layout.sources[self._part.layout.segments[segment].source or ""]
        return self._part.journalled and not source.repeats and not source.pushed and source.kept

    def has(self, key: Key) -> bool:
        return key in self._lanes

    def room(self, key: Key, room: int) -> int:
        """Of so many rows for which there is room at the ingress, how many may come: those that have come and do not wait there yet take
        theirs."""
        lane = self._lanes.get(key)
        if lane is None:
            return room
        return 0 if lane.full else max(0, room - lane.rows)

    # ------------------------------------------------------------ leading

    def lead(self, key: Key, taken: int, end: int) -> None:
        """This site leads from now on. taken: position of the source after the log's last epoch, `end`."""
        self._lanes[key] = Lane(taken, rereading=deque(self._needed(key, taken, end)))
        self._go_on(key)

    def _needed(self, key: Key, taken: int, end: int) -> list[tuple[RowsObject, int, int]]:
        """What of which object is replayed after this epoch; and all that is behind it in the last one."""
        beginning, pieces = self._part.beginning, list[tuple[RowsObject, int, int]]()
        for epoch in range(end + 1, beginning.durable + 1):
            cut = beginning.cut(key, epoch)
            assert cut is not None
            for stored in cut.objects:
                behind = min(stored.first + stored.rows, cut.taken)
                if pieces and pieces[-1][0] == stored:
                    pieces[-1] = (stored, pieces[-1][1], behind)
                elif behind > taken:
                    pieces.append((stored, taken, behind))
                taken = max(taken, behind)
        if pieces:
            last, first, _ = pieces[-1]
            pieces[-1] = (last, first, last.first + last.rows)
        return pieces

    def _go_on(self, key: Key) -> None:
        """Read what is replayed, then open the source; bring to the store what has come."""
        part, lane = self._part, self._lanes[key]
        queue = part.ingress.queues[key]
        if lane.rereading:
            if not lane.asked and part.ingress.room(key) > 0:
                lane.asked = True
                part.act(ReadRows(*key, lane.rereading[0][0]))
            return
        if not lane.opened and not queue.ended:
            lane.opened = True
            part.open_source(*key, lane.next)
        if lane.stored is None and lane.waiting:
            self._store(key, lane)
        if lane.ended and not lane.rows:
            queue.ended = True

    def look(self) -> None:
        """There may be room for more of what is replayed."""
        for key, lane in self._lanes.items():
            if lane.rereading and key in self._part.ingress.queues:
                self._go_on(key)

    def drain(self) -> None:
        """No more rows are wanted; what has come still counts, and the source ends behind it."""
        for key, lane in self._lanes.items():
            lane.ended = True
            if lane.rows:
                self._part.ingress.queues[key].ended = False

    # ------------------------------------------------------------ rows that come

    def take(self, key: Key, batch: pa.RecordBatch) -> None:
        size = max(1, batch.num_rows * OBJECT_BYTES // max(batch.nbytes, 1))
        self._lanes[key].waiting.extend(batch.slice(first, size) for first in range(0, batch.num_rows, size))
        self._go_on(key)

    def end(self, key: Key) -> None:
        """The source has ended behind what has come."""
        self._lanes[key].ended = True
        self._go_on(key)

    def _store(self, key: Key, lane: Lane) -> None:
        taken = [lane.waiting.popleft()]
        rows, size = taken[0].num_rows, taken[0].nbytes
        while lane.waiting and rows + lane.waiting[0].num_rows <= OBJECT_ROWS and size + lane.waiting[0].nbytes <= OBJECT_BYTES:
            taken.append(lane.waiting.popleft())
            rows, size = rows + taken[-1].num_rows, size + taken[-1].nbytes
        lane.stored = taken[0] if len(taken) == 1 else pa.concat_batches(taken)
        self._numbers += 1
        lane.number = self._numbers
        made = RowsObject(self._part.beginning.generation, self._part.site, lane.number, lane.next, lane.stored.num_rows, "")
        self._part.act(StoreRows(*key, made, lane.stored))

    def note_stored(self, event: RowsStored) -> None:
        """Its rows may be in an epoch now."""
        key = (event.segment, event.partition)
        lane = self._lanes.get(key)
        if lane is None or lane.stored is None or event.stored.number != lane.number:
            return  # Another site has led meanwhile, and this one leads again.
        batch, lane.stored = lane.stored, None
        lane.next += batch.num_rows
        self._part.ingress.queues[key].put(batch, self._part.now_us, stored=event.stored)
        self._go_on(key)

    def note_read(self, event: RowsRead) -> None:
        """The rows of an object are here again."""
        key = (event.segment, event.partition)
        lane = self._lanes.get(key)
        if lane is None or not lane.rereading or lane.rereading[0][0] != event.stored:
            return
        stored, begin, behind = lane.rereading.popleft()
        lane.asked, lane.next = False, behind
        self._part.ingress.queues[key].put(event.batch.slice(begin - stored.first, behind - begin), self._part.now_us, stored=stored)
        self._go_on(key)
