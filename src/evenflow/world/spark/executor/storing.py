"""A site's hand on the checkpoint location: a thread that brings captured state there, and reads what a run begins with.

One thing at a time, beside the event loop: objects are made and written one by one, so that no more than one of them is in memory. A store
that does not answer holds this thread up and nothing else; what it fails at is tried again a few times, then said.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from evenflow.errors import LocationError
from evenflow.site.capturing import write
from evenflow.site.events import Event, PartTaken, RestoreState, StatePartRead, StateUnread, StoreState, TransferFailed, WriteFailed
from evenflow.site.kept_rows import ReadRows, RowsUnread, StoreRows, read_rows, write_rows
from evenflow.site.restoring import read, read_for_copy
from evenflow.state.page_snapshot import State
from evenflow.store.location import HEAD, MOST_HEAD_BYTES
from evenflow.store.objects import MOST_BYTES, Store
from evenflow.store.opening import open_store
from evenflow.stream.ids import SiteId
from evenflow.world.spark.executor.beside import Beside
from evenflow.world.spark.executor.resting import REST, REST_SOON, Rests
from evenflow.world.spark.executor.spill_store import put_aside, spill_directories
from evenflow.world.spark.net.priority import aside
from evenflow.world.spark.net.reactor import Reactor

log = logging.getLogger("evenflow")

AFTER_ALL: Final = 5
"""Added to its nice value while it writes a checkpoint. It would weigh what the loop does that has started it: four sites that write at the
same time would keep each other's loops waiting."""
TRIES: Final = 3
PAUSE_S: Final = 0.2
"""Between two tries; it doubles."""
PAUSE_MAX_S: Final = 2.0
PARTS: Final = 2
"""Parts of a state that are read and not yet taken in: one is made while the other is installed."""
LOOK_S: Final = 0.1
RESTORED: Final = "state of partitions that were lost is read first"
Order = StoreState | RestoreState | StoreRows | ReadRows


class _Unwanted(Exception):
    """Nobody needs the checkpoint any more. Its text says why."""


class Storing(Beside[Order]):
    """answer: is called on the event loop. url: of the location. site: this one's index. spare: state has a budget, so the objects
    that it is read from, which may be as large as all of it, are put aside on the site's disk until it is there.

    _restores: how many were asked for, which the loop counts; _begun: how many of them have been begun, which the thread does. _hurried:
    somebody waits for the thread, so it does not rest.
    """

    def __init__(
        self, name: str, url: str, site: SiteId, reactor: Reactor, answer: Callable[[Event], None], *, spare: bool = False
    ) -> None:
        self._url, self._site, self._spare = url, site, spare
        self._store: Store | None = None
        self._newest = self._restores = self._begun = 0
        self._hurried = threading.Event()
        self._room = threading.Semaphore(PARTS)
        super().__init__(name, reactor, answer)

    def ask(self, order: Order) -> None:
        """As `Beside.ask`. There is one checkpoint at a time: who orders the next has dropped those before. What they still have to write
        would hold it up until it is dropped as well, and keeps their state in memory.

        A run waits for what is restored. Whatever checkpoint was under way when that was lost is dropped, which nobody tells a site; so it
        is given up here.
        """
        if isinstance(order, StoreState) and order.number > self._newest:
            self._newest = number = order.number
            self.withdraw(lambda other: isinstance(other, StoreState) and other.number < number)
        elif isinstance(order, RestoreState):
            self._restores += 1
            self._hurried.set()
            for other in self.withdraw(lambda other: isinstance(other, StoreState)):
                assert isinstance(other, StoreState)
                self._say_failed(WriteFailed(other.number, other.segment, RESTORED))
        super().ask(order)

    def _say_failed(self, event: WriteFailed) -> None:
        self._reactor.call_soon(lambda: self._tell(event))

    def close(self) -> None:
        """As `Beside.close`. Of a checkpoint nothing more is written: it would have to be told of to be one."""
        super().close()
        self._hurried.set()

    def let_go(self, action: PartTaken) -> None:
        """From the loop."""
        self._room.release()

    def _done(self, order: Order) -> Event:
        match order:
            case StoreState():
                return self._store_state(order)
            case RestoreState():
                self._begun += 1
                if self._begun == self._restores:
                    self._hurried.clear()
                return self._restore_state(order)
            case StoreRows():
                return self._store_rows(order)
            case ReadRows():
                return self._read_rows(order)
            case _:
                assert_never(order)

    def _store_rows(self, order: StoreRows) -> Event:
        """Until the store has them, or nobody waits any more: the source waits meanwhile."""
        pause_s = PAUSE_S
        while True:
            try:
                return write_rows(order, self._put)
            except Exception as error:
                log.warning("rows of partition %d were not stored, and wait: %r", order.partition, error)
                if self._closed.wait(pause_s):
                    return RowsUnread(order.segment, order.partition, order.stored, "was never stored")
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _read_rows(self, order: ReadRows) -> Event:
        event: Event = RowsUnread(order.segment, order.partition, order.stored, "was not read")
        for tried in range(TRIES):
            if tried:
                self._closed.wait(PAUSE_S * 2**tried)
            event = read_rows(order, self._get)
            if not isinstance(event, RowsUnread):
                break  # Else it may have been on its way only.
        return event

    def _opened(self) -> Store:
        """Raises OSError, and LocationError if this machine does not see the location that the driver has opened: a directory would be made
        here, and what is written there would be missing when it is needed."""
        if self._store is None:
            store = open_store(self._url)
            try:
                store.get(HEAD, MOST_HEAD_BYTES)
            except FileNotFoundError:
                raise LocationError(
                    f"checkpoint location {store.url} has no {HEAD} on {os.uname().nodename}, so it is not the driver's there: use a "
                    "directory that all machines of the cluster share, or another store, and see that it is mounted"
                ) from None
            self._store = store
        return self._store

    def _demand_wanted(self, action: StoreState) -> None:
        if action.number < self._newest:
            raise _Unwanted("a newer checkpoint has been ordered")
        if self._begun < self._restores:
            raise _Unwanted(RESTORED)
        if self._closed.is_set():
            raise _Unwanted("the run has ended here")

    def _store_state(self, action: StoreState) -> Event:
        try:
            rests = Rests(self._hurried.wait, rest=REST_SOON if action.soon else REST)

            def rest() -> None:
                self._demand_wanted(action)
                rests()
                self._demand_wanted(action)

            def put(name: str, data: bytes) -> None:
                rest()
                self._put(name, data)

            return aside(AFTER_ALL, lambda: write(action, self._site, put, rest))  # What is read later weighs as much as ever.
        except _Unwanted as unwanted:
            return WriteFailed(action.number, action.segment, str(unwanted))
        except Exception as error:  # A store's client may raise anything: it costs the checkpoint, and not the site.
            log.warning("state of segment %d was not stored: %r", action.segment, error)
            return WriteFailed(action.number, action.segment, f"{type(error).__name__}: {error}")

    def _put(self, name: str, data: bytes) -> None:
        """Names are never used again, so to put the same once more is harmless."""
        self._patiently(lambda: self._opened().put(name, data))

    def _restore_state(self, action: RestoreState) -> Event:
        if action.copy:
            return self._restore_copy(action)
        event: Event = StateUnread(action.segment, "it was not read")
        said, sizes = 0, _sizes(action)

        def say(part: StatePartRead) -> None:
            nonlocal said
            said += 1
            self._say(part)

        for tried in range(TRIES):
            if tried:
                self._closed.wait(PAUSE_S * 2**tried)
            try:
                event = read(action, lambda name: self._get_state(name, sizes[name]), say)
            except Exception as error:
                event = StateUnread(action.segment, f"{type(error).__name__}: {error}")
            if said or not isinstance(event, StateUnread):
                break  # Else it may have been on its way only: some stores show an object before it is whole.
        return event

    def _restore_copy(self, action: RestoreState) -> Event:
        event: Event = TransferFailed(action.copy, "it was not read")
        sizes = _sizes(action)
        for tried in range(TRIES):
            if tried:
                self._closed.wait(PAUSE_S * 2**tried)
            try:
                event = read_for_copy(action, lambda name: self._get(name, sizes[name]))
            except Exception as error:
                event = TransferFailed(action.copy, f"{type(error).__name__}: {error}")
            if not isinstance(event, TransferFailed):
                break
        return event

    def _say(self, part: StatePartRead) -> None:
        """As soon as there is room for it."""
        while not self._room.acquire(timeout=LOOK_S):
            if self._closed.is_set():
                raise LocationError("nobody wants it any more")
        self._reactor.call_soon(lambda: self._tell(part))

    def _get_state(self, name: str, most: int) -> State:
        data = self._get(name, most)
        return put_aside(data, spill_directories()) if self._spare else data

    def _get(self, name: str, most: int = MOST_BYTES) -> bytes:
        found: list[bytes] = []
        self._patiently(lambda: found.append(self._opened().get(name, most)))
        return found[0]

    def _patiently(self, do: Callable[[], None]) -> None:
        """Raises OSError when the store has failed TRIES times, at once if there is nothing of that name."""
        for tried in range(1, TRIES + 1):
            try:
                do()
                return
            except FileNotFoundError:
                raise
            except LocationError as error:
                raise OSError(str(error)) from error
            except OSError:
                if tried == TRIES or self._closed.wait(PAUSE_S * 2**tried):
                    raise


def _sizes(order: RestoreState) -> Mapping[str, int]:
    """Bytes of each object, as the journal has them: a step's part of a checkpoint may be of any size."""
    return {stored.name: stored.bytes for stored, _ in order.objects}
