"""A larger index that takes the place of a table's, filled a bounded piece at a time while the table goes on.

Doubling an index in one step costs some 20 ns an entry, and more where memory has never been touched before; whoever knows beforehand that
many rows are to come (a partition is being installed) has it done in pieces. Rows are linked by slot: of those before `linked`, both
indexes know which are there, so whoever changes the one tells the other. The rest is in the old one only.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels import table
from evenflow.kernels.hash import Hashes

Slots = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

TOUCHED: Final = 1 << 15
"""Entries for which memory is taken in one piece: 256 KB, in pages of 4 KB. A large page is 2 MB at once, 6 ms where the system itself
has to get it from its host; so it may be made of small ones only when they are there."""
LINKED: Final = 1 << 13
"""Slots linked in one piece."""
SMALL: Final = 1 << 14
"""An index of so many entries is made in one step."""


class IndexGrowth:
    """index: uint64 (size,), a power of two. Usable when `step` has said so. linked: slots before this one are in it."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.index: Hashes = np.frombuffer(self._memory, np.uint64)
        self._touched = self.linked = 0

    def step(self, words: Rows, top: int) -> bool:
        """One more piece. words: the table's rows, of which those before slot `top` may be in use. Whether all are linked now."""
        if self._touched < self.index.size:
            self.index[self._touched : self._touched + TOUCHED : mmap.PAGESIZE // 8] = 0
            self._touched += TOUCHED
            if self._touched >= self.index.size:
                self._memory.madvise(mmap.MADV_HUGEPAGE)
            return False
        stop = min(self.linked + LINKED, top)
        table.link_slots(np.arange(self.linked, stop), self.index, words)
        self.linked = stop
        return stop == top

    def add(self, slots: Slots, words: Rows) -> None:
        """These slots have got rows."""
        table.link_slots(slots[slots < self.linked], self.index, words)

    def remove(self, slots: Slots, words: Rows) -> None:
        """These slots are about to lose theirs."""
        table.unlink_slots(slots[slots < self.linked], self.index, words)
