"""Where rows come from at a site: readers of sources that live here, asked when there is room and no more often than worth while."""

from __future__ import annotations

import queue
import select
import threading
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from evenflow.errors import SourceError
from evenflow.site.events import BatchDone, Event, RowsArrived, SourceEnded
from evenflow.site.given import EpochsGiven
from evenflow.sources.source import Reader
from evenflow.stream.waiting import Waiting
from evenflow.world.spark.net.reactor import READABLE, Clock, Reactor

READ_ROWS_MAX: Final = 65_536
"""Rows asked for at a time; several readers and the network share a tick."""
IDLE_FIRST_US: Final = 1_000
IDLE_LAST_US: Final = 16_000
"""A reader that says nothing about when to ask again is asked at intervals that double while it has nothing."""
NEVER_US: Final = 2**62


class Feed(Protocol):
    """One source partition. due_us: when `poll` is worth while. over: nothing will come any more.

    resting: it has rows earlier than due_us, but nobody needs them before the epoch closes.
    """

    segment: int
    partition: int
    due_us: int
    over: bool
    resting: bool

    def poll(self, now_us: int, room: int) -> list[Event]:
        """Events for the part. room: rows that may be delivered, > 0."""

    def rest(self, close_due_us: int | None) -> None:
        """The epoch that has rows already closes at `close_due_us`: there is no need to ask before."""

    def behind(self) -> tuple[str, int] | None:
        """See Reader.behind."""

    def waiting(self, now_us: int) -> Waiting | None:
        """See Reader.waiting."""

    def close(self) -> None: ...


class ReaderFeed:
    """A reader that never waits, on the event loop's own thread. dated: somebody wants to know when rows were due. linger_us: an epoch
    closes this long after its first row: a punctual reader is asked then, and not when that row comes."""

    def __init__(self, segment: int, partition: int, reader: Reader, reactor: Reactor, *, dated: bool = False, linger_us: int = 0) -> None:
        self._dated, self._linger_us = dated, linger_us
        self._expected_us: int | None = None
        self.segment, self.partition = segment, partition
        self.due_us = 0
        self.over = self.resting = False
        self._reader, self._reactor = reader, reactor
        self._idle_us = IDLE_FIRST_US
        self._fd: int | None = None

    def poll(self, now_us: int, room: int) -> list[Event]:
        reader = self._reader
        since_us, self._expected_us, self.resting = self._expected_us, None, False
        wanted = min(room, READ_ROWS_MAX)
        waiting = reader.waiting(now_us) if self._dated else None
        try:
            batch = reader.read(now_us, wanted)
        except (SystemExit, GeneratorExit) as error:
            raise SourceError(f"a source's reader stopped with {type(error).__name__}: {error}") from error
        events: list[Event] = []
        if batch is not None and batch.num_rows:
            due_us = None if waiting is None else waiting.since_us
            since_us = None if since_us is None or since_us >= now_us else since_us
            events.append(RowsArrived(self.segment, self.partition, batch, due_us=due_us, since_us=since_us))
            self._idle_us = IDLE_FIRST_US
            self.due_us = now_us
            if reader.wake_us is not None and batch.num_rows < wanted:
                self._expect(reader.wake_us)
        if reader.ended:
            events.append(SourceEnded(self.segment, self.partition))
            self.over = True
            self.close()
        elif not events:
            self._wait(now_us)
        return events

    def rest(self, close_due_us: int | None) -> None:
        """Only a reader that knows its own schedule rests: what others have may be more than an epoch takes."""
        if close_due_us is not None and self._reader.wake_us is not None and self.due_us < close_due_us:
            self.due_us, self.resting = close_due_us, True

    def behind(self) -> tuple[str, int] | None:
        return self._reader.behind()

    def waiting(self, now_us: int) -> Waiting | None:
        return self._reader.waiting(now_us)

    def meet(self, names: Sequence[str]) -> None:
        self._reader.meet(names)

    def _wait(self, now_us: int) -> None:
        reader = self._reader
        if reader.wake_us is not None:
            self._expect(max(reader.wake_us, now_us + 200))
            return
        fd = reader.fileno()
        if fd is not None:
            self._arm(fd)
            self.due_us = now_us + 1_000_000
            return
        self.due_us = now_us + self._idle_us
        self._idle_us = min(2 * self._idle_us, IDLE_LAST_US)

    def _expect(self, wake_us: int) -> None:
        """There is something to read at `wake_us`."""
        self.due_us = wake_us
        if self._reader.punctual and self._linger_us:
            self._expected_us, self.due_us, self.resting = wake_us, wake_us + self._linger_us, True

    def _arm(self, fd: int) -> None:
        """Be told once when the descriptor is readable; once, because there may be no room by then."""
        events = READABLE | select.EPOLLONESHOT
        if self._fd == fd:
            try:
                self._reactor.modify(fd, events)
                return
            except OSError:
                pass  # The reader has closed it and another one got the same number.
        self._disarm()
        self._reactor.register(fd, events, self._readable)
        self._fd = fd

    def _readable(self, events: int) -> None:
        self.due_us = 0

    def _disarm(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                self._reactor.unregister(fd, self._readable)
            except OSError:
                pass  # Closed by the reader: the system has forgotten it already.

    def close(self) -> None:
        self._disarm()
        self._reader.close()


class CutFeed(ReaderFeed):
    """A reader whose source is cut by content: it also says which epochs are whole."""

    _told = 0

    def poll(self, now_us: int, room: int) -> list[Event]:
        events = super().poll(now_us, room)
        complete = self._reader.complete
        if complete > self._told and not self.over:
            self._told = complete
            events.append(EpochsGiven(self.segment, self.partition, complete))
        return events


class BesideFeed:
    """A reader that may wait, on a thread of its own, two batches ahead at most. When its rows were due, nobody can say (dated)."""

    def __init__(self, segment: int, partition: int, reader: Reader, reactor: Reactor, *, dated: bool = False) -> None:
        self.segment, self.partition = segment, partition
        self.due_us = NEVER_US
        self.over = self.resting = False
        self._reader, self._reactor = reader, reactor
        self._ready: queue.Queue[pa.RecordBatch | EpochsGiven | BatchDone | BaseException | None] = queue.Queue(maxsize=2)
        self._head: pa.RecordBatch | None = None
        self._closing = False
        self._said: EpochsGiven | BatchDone | None = None
        self._thread = threading.Thread(target=self._read, name=f"evenflow-source-{segment}-{partition}", daemon=True)
        self._thread.start()

    def poll(self, now_us: int, room: int) -> list[Event]:
        if self._head is None and not self._next():
            return []
        if self._said is not None:
            said, self._said = self._said, None
            return [said]
        batch = self._head
        if batch is None:
            return [SourceEnded(self.segment, self.partition)]
        if batch.num_rows > room:
            self._head = batch.slice(room)
            batch = batch.slice(0, room)
        else:
            self._head = None
        self.due_us = 0
        return [RowsArrived(self.segment, self.partition, batch)]

    def _next(self) -> bool:
        """Take what the thread has read. False if there is nothing. Raises what the reader raised."""
        try:
            item = self._ready.get_nowait()
        except queue.Empty:
            self.due_us = NEVER_US
            return False
        if isinstance(item, Exception):
            raise item
        if isinstance(item, EpochsGiven | BatchDone):
            self._said = item
            return True
        if isinstance(item, BaseException):  # A source may call sys.exit, or panic in native code: that ends its dataflow, not the site.
            raise SourceError(f"a source's reader stopped with {type(item).__name__}: {item}") from item
        self._head = item
        self.over = item is None
        return True

    def meet(self, names: Sequence[str]) -> None:
        self._reader.meet(names)

    def rest(self, close_due_us: int | None) -> None:
        """Its thread reads ahead anyway."""

    def behind(self) -> tuple[str, int] | None:
        return self._reader.behind()

    def waiting(self, now_us: int) -> Waiting | None:
        return self._reader.waiting(now_us)

    def close(self) -> None:
        self._closing = True
        while True:  # A thread that waits for room in the queue must see that it is over.
            try:
                self._ready.get_nowait()
            except queue.Empty:
                return

    def _read(self) -> None:
        clock, reader, complete, whole = Clock(), self._reader, 0, -1
        pause = threading.Event()
        try:
            while not self._closing and not reader.ended:
                now_us = clock.now_us()
                batch = reader.read(now_us, READ_ROWS_MAX)
                rows = 0 if batch is None else batch.num_rows
                if rows:
                    self._hand_over(batch)
                if reader.complete > complete and not reader.ended:
                    complete = reader.complete
                    self._hand_over(EpochsGiven(self.segment, self.partition, complete))
                elif reader.batch > whole:
                    whole = reader.batch
                    self._hand_over(BatchDone(self.segment, self.partition, whole))
                elif not rows and not reader.ended:
                    wake_us = reader.wake_us
                    pause.wait(min(max(0.001, (wake_us - now_us) / 1e6), 0.1) if wake_us is not None else 0.005)
            self._hand_over(None)
        except BaseException as error:
            self._hand_over(error)
        finally:
            reader.close()

    def _hand_over(self, item: pa.RecordBatch | EpochsGiven | BatchDone | BaseException | None) -> None:
        if not self._closing:
            self._ready.put(item)
            self._reactor.call_soon(self._rouse)

    def _rouse(self) -> None:
        self.due_us = 0
