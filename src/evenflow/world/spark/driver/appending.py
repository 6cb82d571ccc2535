"""The driver's hand at the journal's store: a thread of one run that appends entries and reads them back, one at a time, beside the loop.

What becomes of an entry the coordinator's machine decides; here it is only found out. A store that does not answer holds this thread up and
nothing else: sites go on until their window is full, and the journal's age says for how long nothing new has been given out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Final

from evenflow.availability.alive import ALIVE
from evenflow.availability.entries import JOURNAL, Completed, Entry, entry_name, to_bytes
from evenflow.availability.reading import AT_ONCE, Listed
from evenflow.availability.retained import CHECKPOINTS, VERSIONS, garbage, garbage_programs, garbage_rows, is_over, place_of
from evenflow.coordinator.events import Append, Appended, AppendRefused, AppendUnknown, EntryRead, ReadEntry, ReadFailed, Sweep
from evenflow.errors import JournalCorrupt, LocationError
from evenflow.exchange.section import ROWS
from evenflow.statistics.progress import JournalProgress
from evenflow.store.journal import collect, is_near, read_entry
from evenflow.store.objects import Store
from evenflow.world.spark.executor.resting import Rests
from evenflow.world.spark.executor.storing import AFTER_ALL
from evenflow.world.spark.net.priority import weighed

log = logging.getLogger("evenflow")

Answer = Appended | AppendRefused | AppendUnknown | EntryRead | ReadFailed
RECENT: Final = 0.9
"""Weight of what was before in the running mean of an append's time."""
PAUSE_S: Final = 0.01
"""Between what is deleted in a directory and the next: an append that is forced to the disk meanwhile waits for it."""


class Appender:
    """answer: called in this thread with what came of each thing that was asked for, once for each. generation: of this driver."""

    def __init__(self, run_id: str, store: Store, generation: int, answer: Callable[[Answer], None]) -> None:
        self._store, self._generation, self._answer = store, generation, answer
        self._asked: SimpleQueue[tuple[Append | ReadEntry, Callable[[Answer], None]] | None] = SimpleQueue()
        self._lock, self._sweeping, self._closed = threading.Lock(), threading.Lock(), threading.Event()
        self._unswept: Sweep | None = None
        self._cleared = False
        self._appends = self._bytes = 0
        self._since_s: float | None = None
        self._last_ms: float | None = None
        self._mean_ms: float | None = None
        self._thread = threading.Thread(target=self._serve, name=f"evenflow-journal-{run_id}", daemon=True)
        self._thread.start()

    def ask(self, action: Append | ReadEntry) -> None:
        """From any thread. Since when the journal waits counts from here on."""
        with self._lock:
            if isinstance(action, Append) and self._since_s is None:
                self._since_s = time.monotonic()
        self._asked.put((action, self._answer))

    def sweep(self, order: Sweep) -> None:
        """Delete what nobody needs of the objects of checkpoints, of rows, and of the journal itself (K8), in a thread that ends then:
        nothing waits for it. There is one at a time: who is still at the one before goes on with the newest."""
        with self._lock:
            self._unswept = order if self._unswept is None else _with(order, self._unswept)
        threading.Thread(target=self._sweep, name=f"{self._thread.name}-sweep", daemon=True).start()

    def _sweep(self) -> None:
        with weighed(AFTER_ALL):
            # Looked at after it was let go, too: who could not have it in between has left an order behind.
            while self._unswept is not None and self._sweeping.acquire(blocking=False):
                try:
                    self._carry_out()
                finally:
                    self._sweeping.release()

    def _carry_out(self) -> None:
        with self._lock:
            order, self._unswept = self._unswept, None
        if order is not None:
            swept(self._store, order, self._rest())
            if order.retained:
                collected(self._store, order.retained[0], self._rest(), order.snapshot)
            if order.snapshot is not None and not self._cleared:  # Drivers that were killed have gone before: once is enough.
                self._cleared = cleared(self._store, order.snapshot, self._generation)

    def _rest(self) -> Callable[[], object]:
        if is_near(self._store):
            return partial(self._closed.wait, PAUSE_S)
        return Rests(self._closed.wait)

    def close(self, last: int | None = None, answer: Callable[[Answer], None] | None = None) -> None:
        """Ask for nothing more. What is under way ends when the store lets it. last: read this entry before, and tell `answer` of it."""
        if last is not None and answer is not None:
            self._asked.put((ReadEntry(last), answer))
        self._asked.put(None)
        self._closed.set()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def appends(self) -> int:
        """How many entries are in. From any thread."""
        with self._lock:
            return self._appends

    def progress(self, durable: int, clock_behind_us: int = 0) -> JournalProgress:
        """durable: the last epoch that ends may take. clock_behind_us: see `coordinator.clocks`. From any thread."""
        with self._lock:
            age_s = 0.0 if self._since_s is None else time.monotonic() - self._since_s
            last_ms, mean_ms = (None if ms is None else round(ms, 3) for ms in (self._last_ms, self._mean_ms))
            return JournalProgress(
                self._store.url, self._generation, durable, round(age_s, 3), last_ms, mean_ms, self._appends, self._bytes,
                round(clock_behind_us / 1e6, 3),
            )  # fmt: skip

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            action, answer = asked
            answer(self._append(action.entry) if isinstance(action, Append) else self._read(action.number))

    def _append(self, entry: Entry) -> Answer:
        began_s = time.monotonic()
        try:
            data = to_bytes(entry)
            self._store.create(entry_name(entry.number), data)
        except FileExistsError:
            return AppendRefused(entry.number)
        except Exception as error:  # A store's client may raise anything; what it has done by then, nobody knows.
            return AppendUnknown(entry.number, f"{type(error).__name__}: {error}")
        self._note(time.monotonic() - began_s, len(data))
        return Appended(entry.number)

    def _note(self, took_s: float, size: int) -> None:
        with self._lock:
            self._last_ms = 1000 * took_s
            self._mean_ms = self._last_ms if self._mean_ms is None else RECENT * self._mean_ms + (1 - RECENT) * self._last_ms
            self._appends, self._bytes, self._since_s = self._appends + 1, self._bytes + size, None

    def _read(self, number: int) -> Answer:
        try:
            entry = read_entry(self._store, number)
        except JournalCorrupt as error:
            return ReadFailed(number, error)
        except Exception as error:
            return ReadFailed(number, LocationError(f"entry {number} of the journal cannot be read: {type(error).__name__}: {error}"))
        if entry is not None:
            with self._lock:
                self._since_s = None
        return EntryRead(number, entry)


def swept(store: Store, order: Sweep, rest: Callable[[], object] = lambda: None) -> int:
    """How many objects were deleted, oldest first. A store that fails keeps the rest for another time. rest: gives way to others, after
    each object with state, whose blocks take a disk a while to free, and now and then between those with rows, and between folders.

    What killed writers of older generations have left of objects that never became whole goes, too, and folders of checkpoints in which
    nothing is left: else each that was ever begun would be looked into each time.
    """
    deleted = 0
    try:
        rows = garbage_rows(store.names(ROWS), order.generation, order.needed, order.gone)
        state = garbage(store.names(CHECKPOINTS), order.retained)
        needed, gone = order.programs
        programs = garbage_programs(store.names(VERSIONS), order.generation, needed, gone) if any(needed) or gone else []
        for name in [*state, *rows, *programs]:
            store.delete(name)
            deleted += 1
            if deleted <= len(state) or deleted % AT_ONCE == 0:
                rest()
        looked = count(1)

        def may_go(name: str) -> bool:
            if not name.endswith("/"):
                return is_over(name, order.generation)
            if next(looked) % AT_ONCE == 0:
                rest()
            return _is_left(name, order)

        store.clear(CHECKPOINTS, may_go)
        store.clear(ROWS, lambda name: _is_older(name, order.generation))
    except Exception as error:
        log.warning("objects of old checkpoints stay at %s until the next one is whole: %r", store.url, error)
    return deleted


def _with(order: Sweep, before: Sweep) -> Sweep:
    """An order with what another before it has said: which rows have gone is said once (`coordinator.journal`)."""
    needed, gone = order.programs
    return replace(order, gone=order.gone | before.gone, programs=(needed, gone | before.programs[1]))


def _is_left(folder: str, order: Sweep) -> bool:
    """Whether a folder below `checkpoints/` can go if it is empty: no checkpoint will ever be made there that somebody needs. It is that of
    an older generation, or of one of its checkpoints, or of one before the oldest that is kept."""
    place = place_of(folder)
    return _is_older(folder, order.generation) or (place is not None and bool(order.retained) and place < order.retained[0].place)


def _is_older(name: str, generation: int) -> bool:
    """Whether what is below `checkpoints/` or `rows/` is of an older generation than this one."""
    found = name.split("/")[1]
    return found.isdecimal() and int(found) < generation


def collected(store: Store, oldest: Completed, rest: Callable[[], object] = lambda: None, made: Entry | None = None) -> int:
    """How many entries were deleted that came before the oldest checkpoint that is kept. If something is wrong they stay for another time.
    rest: gives way to others now and then. made: see `collecting`."""
    try:
        return collect(store, oldest, rest, made)
    except Exception as error:
        log.warning("old entries of the journal stay at %s until the next checkpoint is whole: %r", store.url, error)
        return 0


def cleared(store: Store, snapshot: Entry, generation: int) -> bool:
    """What killed drivers have left of entries that are in by now goes, and of snapshots that count no more; so does what those of older
    generations have left of versions and of their signs of life. False if the store fails: then it stays for another time. snapshot: of an
    entry that this driver has appended. generation: of this driver."""

    def is_older(name: str) -> bool:
        number = name.rpartition("/")[2].partition(".")[0].partition("-")[0]
        return number.isdecimal() and int(number) < generation

    try:
        store.clear(JOURNAL, lambda name: 0 < Listed.of((name,)).last <= snapshot.number)
        for folder in (VERSIONS, ALIVE):
            store.clear(folder, is_older)
    except Exception as error:
        log.warning("what killed drivers have left of objects stays at %s until the next checkpoint is whole: %r", store.url, error)
        return False
    return True


__all__ = ["Answer", "Appender", "cleared", "collected", "swept"]
