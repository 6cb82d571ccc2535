"""Virtual time: a queue of things to do, in order of their time and then of their being asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualClock:
    """now_us: virtual microseconds; it only moves when the next thing is done.

    of: the clock of a cluster of which this is one generation's: wall clocks of drivers differ, so it is `ahead_us` ahead of it. What is
    asked of it is not done any more once it has stopped: who asked is gone.
    """

    def __init__(self, start_us: int = 1_000_000, *, of: VirtualClock | None = None, ahead_us: int = 0) -> None:
        self._of, self._ahead_us = of, ahead_us
        self._now_us = start_us
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0
        self._stopped = False

    @property
    def now_us(self) -> int:
        return self._now_us if self._of is None else self._of.now_us + self._ahead_us

    def at(self, when_us: int, do: Callable[[], None]) -> None:
        """Do it at `when_us`, or now if that has passed."""
        if self._of is not None:
            self._of.at(when_us - self._ahead_us, lambda: None if self._stopped else do())
            return
        self._asked += 1
        heapq.heappush(self._queue, (max(when_us, self._now_us), self._asked, do))

    def after(self, delay_us: int, do: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, do)

    def stop(self) -> None:
        """Nothing that was asked of it is done any more."""
        self._stopped = True

    def step(self) -> bool:
        """Do the next thing. False if there is none."""
        if self._of is not None:
            return self._of.step()
        if not self._queue:
            return False
        self._now_us, _, do = heapq.heappop(self._queue)
        do()
        return True
