"""What a site knows about itself: how late its loop is, how long it has worked, and how much memory its process has."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import Final

LATELY_S: Final = 4.0
"""Over how long a site looks back at its own lateness."""
UNKNOWN_S: Final = 0.4
"""How late a site thinks that it may be before it has looked at itself for that long: a run that begins keeps the machine busy."""


class Lateness:
    """By how much beats have been late lately, whatever kept the loop: a kernel, user code that holds the interpreter, a busy machine."""

    def __init__(self) -> None:
        self._due_s: float | None = None
        self._began_s = time.monotonic()
        self._now_s = self._before_s = 0.0
        self.known = False

    def due(self, next_s: float) -> None:
        """A beat is being made; the next is due at `next_s` of the monotonic clock."""
        now_s = time.monotonic()
        if self._due_s is not None:
            self._now_s = max(self._now_s, now_s - self._due_s)
        self._due_s = next_s
        if now_s - self._began_s > LATELY_S:
            self._began_s, self.known = now_s, True
            self._before_s, self._now_s = self._now_s, 0.0

    @property
    def most_us(self) -> int:
        """Over the last `LATELY_S` to twice as much."""
        return int(max(self._now_s, self._before_s, 0.0 if self.known else UNKNOWN_S) * 1e6)


class Working:
    """How long a process has worked: time in which its loop or a thread of user code does counts, once if both do.

    By the wall clock, so that waiting for a processor that others hold is work: a site on a busy machine has that much less to give.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers, self._since_ns, self._total_ns = 1, time.monotonic_ns(), 0  # Who makes it works.

    def begin(self) -> None:
        """A thread works from now on."""
        with self._lock:
            if not self._workers:
                self._since_ns = time.monotonic_ns()
            self._workers += 1

    def end(self) -> None:
        """A thread waits from now on."""
        with self._lock:
            self._workers -= 1
            if not self._workers:
                self._total_ns += time.monotonic_ns() - self._since_ns

    def total_us(self) -> int:
        """So far."""
        with self._lock:
            current_ns = time.monotonic_ns() - self._since_ns if self._workers else 0
            return (self._total_ns + current_ns) // 1000


def rss_bytes() -> int:
    """Resident memory of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def pss_bytes() -> int:
    """Memory of this process with shared pages divided among those who share them; 0 where the system does not say."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


class Proportional:
    """`pss_bytes` of this process, as of the last look. To look costs the system the time of going over every page, a hundredth of a second
    for 400 MiB, so a thread that ends then does it: whoever asks is an event loop.

    bytes: 0 before the first look has ended, and where the system does not say.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._looking: threading.Thread | None = None

    def look(self) -> None:
        """Begin to, unless somebody does."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(target=self._look, name="evenflow-memory", daemon=True)
            self._looking.start()

    def _look(self) -> None:
        self.bytes = pss_bytes()
