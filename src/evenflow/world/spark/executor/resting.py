"""Whoever works beside a site's event loop for long gives way now and then: the loop has the same interpreter, and its core."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

REST: Final = 3.0
"""For each second that a checkpoint or an image is worked at, so many are left to others before it goes on. Where it has to wait for a
core, the interpreter or the disk, others do as well, so these seconds count too: the busier the machine, the more it gives way."""
REST_SOON: Final = 1.0
"""The same where most of the state is in no checkpoint yet: a loss would have all of these rows made again."""
REST_AFTER_S: Final = 0.002
REST_MAX_S: Final = 0.5
"""At once. A store far away may have kept it for longer, which has cost nobody anything."""


class Rests:
    """Gives way now and then, for `rest` times as long as it has been at work since the last time. wait: for so many seconds, or until
    nobody wants it any more."""

    def __init__(self, wait: Callable[[float], bool], clock_s: Callable[[], float] = time.monotonic, rest: float = REST) -> None:
        self._wait, self._clock_s, self._last_s, self._rest = wait, clock_s, clock_s(), rest

    def __call__(self) -> None:
        now_s = self._clock_s()
        if now_s - self._last_s >= REST_AFTER_S:
            self._wait(min(self._rest * (now_s - self._last_s), REST_MAX_S))
            self._last_s = self._clock_s()
