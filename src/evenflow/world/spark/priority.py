"""How the system's scheduler weighs threads: those that serve epochs come before those that start and prepare.

A lost executor starts anew on cores that others work on, and to start is seconds of work. An epoch needs some ten turns of a millisecond
or two, one after the other on several sites: among equals each of them lasts as many times longer as there are others who want the core.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Final

SERVING: Final = -5
"""Added to the nice value of who serves epochs: three times the weight. With more a busy site would keep a new executor from starting."""


@contextlib.contextmanager
def weighed(nice: int) -> Iterator[None]:
    """Add this to the nice value of the calling thread meanwhile; threads that it starts then have the same.

    Less than nothing is for those whom the system lets (root, RLIMIT_NICE); for others everything stays as it is.
    """
    if sys.platform != "linux":  # Elsewhere it is one value for the whole process.
        yield
        return
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, before + nice)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, before)
