"""Freed memory that a site keeps, because it needs as much again a moment later.

NumPy's arrays of a batch have half a megabyte each. The C library gives what is freed back to the system from some hundred kilobytes
on, and the next batch waits for each page of it anew: of lists in Parquet files, that was a fifth of a site's processor time (decision
192). It stops when the process has once freed a block of many megabytes, as sites with state do; with these settings all are as those.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""From malloc.h of the GNU C library."""
MAPPED_BYTES: Final = 32 << 20
"""Blocks from this size on are mapped by themselves, and given back at once. It is the most that the
library takes, and what it comes to by itself."""
KEPT_BYTES: Final = 2 * MAPPED_BYTES
"""So much freed memory at the end of a heap is kept."""
SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def give_back() -> None:
    """What is free now goes back to the system, wherever it lies: 4 ms for 60 MB, in which nobody gets memory."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed() -> bool:
    """Returns whether it is so now: not with another C library than GNU's, nor where the environment says how memory is given back."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in SETTINGS):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
