"""Virtual time: a queue of things to do, in order of their time and then of their being asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualClock:
    """now_us: virtual microseconds; it only moves when the next thing is done."""

    def __init__(self, start_us: int = 1_000_000) -> None:
        self.now_us = start_us
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, when_us: int, do: Callable[[], None]) -> None:
        """Do it at `when_us`, or now if that has passed."""
        self._asked += 1
        heapq.heappush(self._queue, (max(when_us, self.now_us), self._asked, do))

    def after(self, delay_us: int, do: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, do)

    def step(self) -> bool:
        """Do the next thing. False if there is none."""
        if not self._queue:
            return False
        self.now_us, _, do = heapq.heappop(self._queue)
        do()
        return True
