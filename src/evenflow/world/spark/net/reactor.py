"""Waiting for sockets, timers and other threads in one place: the bottom of every event loop here.

One thread calls `poll` again and again; callbacks run in it. Only `wake` and `call_soon` may be called from other threads.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final

from evenflow.world.spark.net.vitals import Working

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT

Handler = Callable[[int], None]
"""Called with the epoll events of its file descriptor."""


class Clock:
    """Wall clock in microseconds since 1970 that never goes back: the monotonic clock, set once."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1000


class Reactor:
    """Level-triggered epoll with one-shot timers. working: for how long its thread has not waited, and others that say so."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waking = threading.Lock()
        self._closed = False
        self.working = Working()
        self.register(self._wake_fd, READABLE, self._woken)

    def register(self, fd: int, events: int, handler: Handler) -> None:
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int, handler: Handler | None = None) -> None:
        """Forget a descriptor; must come before it is closed. Unknown ones are ignored: closing may happen on two paths. handler: forget it
        only if this is still called for it. For who cannot say when it is closed: by then its number may be somebody else's."""
        if handler is not None and self._handlers.get(fd) != handler:
            return
        if self._handlers.pop(fd, None) is not None and not self._closed:
            self._epoll.unregister(fd)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call once, about `delay_s` from now. There is no cancelling: let the call find out that it is not needed."""
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), call))

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the polling thread. Safe from any thread."""
        self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Make `poll` return. Safe from any thread, also after `close`."""
        with self._waking:  # Once it is closed, the descriptor's number may be somebody else's.
            if self._wake_fd < 0:
                return
            try:
                os.eventfd_write(self._wake_fd, 1)
            except OSError:
                pass  # The counter is full: then it is awake anyway.

    def poll(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` (0: not at all) and carry out what is due."""
        if self._calls:
            timeout_s = 0.0
        elif self._timers:
            timeout_s = min(timeout_s, max(0.0, self._timers[0][0] - time.monotonic()))
        handlers = self._handlers
        if timeout_s > 0:
            self.working.end()
            ready = self._epoll.poll(timeout_s)
            self.working.begin()
        else:
            ready = self._epoll.poll(0)
        for fd, events in ready:
            handler = handlers.get(fd)  # an earlier handler of this round may have closed it
            if handler is not None:
                handler(events)
        while self._calls:
            self._calls.popleft()()
        if self._timers:
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        self._closed = True
        self._handlers.clear()
        self._timers.clear()
        self._epoll.close()
        with self._waking:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _woken(self, events: int) -> None:
        os.eventfd_read(self._wake_fd)
