"""The driver says that it lives where its journal does not say so: see `availability.alive`.

In a thread of its own, since an append may hang in the store. What asks for it is the coordinator's thread, again and again, so a driver
whose coordinator hangs says nothing, and its sites end.

Where the journal is appended to seldom, it also looks there whether another driver has begun: one that was replaced would hear of it with
its next entry only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from evenflow.availability.alive import EVERY, Alive, alive_name, to_bytes
from evenflow.coordinator.appending import FENCED
from evenflow.errors import Fenced
from evenflow.store.journal import read_entry
from evenflow.store.objects import Store

log = logging.getLogger("evenflow")


class Living:
    """Of one generation. lease_s: for how long its sites live without the driver. now_s: wall clock, since 1970. replaced(error): called in
    this thread when another driver has begun; None: nobody looks, since entries are appended all the time."""

    def __init__(
        self, run_id: str, store: Store, generation: int, nonce: str, lease_s: float, now_s: Callable[[], float] = time.time,
        replaced: Callable[[Fenced], None] | None = None,
    ) -> None:  # fmt: skip
        self.every_s = EVERY * lease_s
        self._store, self._generation, self._nonce, self._lease_s, self._now_s = store, generation, nonce, lease_s, now_s
        self._replaced, self._last, self._count = replaced, 0, 0
        self._appends: int | None = None
        self._asked, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._serve, name=f"evenflow-alive-{run_id}", daemon=True)
        self._thread.start()

    def beat(self, appends: int, last: int = 0) -> None:
        """Called every `every_s`. appends: how many entries are in by now; if there are more than last time, they are the sign. last:
        number of the newest one."""
        self._last = last
        silent, self._appends = appends == self._appends, appends
        if silent or not self._count:
            self._count += 1
            self._asked.set()

    def close(self) -> None:
        """Nothing more is said. What is under way ends when the store lets it."""
        self._closed = True
        self._asked.set()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while self._asked.wait() and not self._closed:
            self._asked.clear()
            alive = Alive(self._generation, self._nonce, self._count, self._lease_s, self._now_s())
            try:
                self._store.put(alive_name(self._generation), to_bytes(alive))
            except Exception as error:  # A store's client may raise anything. It is only a word less; the next one comes.
                log.debug("the driver's sign of life could not be written to %s: %r", self._store.url, error)
            self._look()

    def _look(self) -> None:
        if self._replaced is None:
            return
        try:
            entry = read_entry(self._store, self._last + 1)
        except Exception as error:  # As above; and an entry that cannot be used says nothing here.
            log.debug("the next entry of the journal at %s could not be looked at: %r", self._store.url, error)
            return
        if entry is not None and (entry.generation, entry.nonce) != (self._generation, self._nonce):
            self._replaced(Fenced(FENCED.format(generation=entry.generation, own=self._generation)))
