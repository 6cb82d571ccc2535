"""Arena: the memory that the rows of a paged table lie in."""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from evenflow.kernels.table import PAGE

_HUGE: Final = 1 << 21


class Arena:
    """A growing two-dimensional array of words on its own pages of memory, so that rows begin on cache lines.

    Growing asks the kernel to remap it (nothing is copied) unless another thread looks at it just then. Memory never written to
    is not taken. What is, is taken in large pages where they can be had, or in small ones (`in_small_pages`).
    """

    def __init__(self, width: int, slots: int) -> None:
        self.width = width
        self.small = False
        self._map = self._new(slots)
        self.words: npt.NDArray[np.int64] = self._view()

    def _new(self, slots: int) -> mmap.mmap:
        size = slots * self.width * 8
        region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE:
            region.madvise(self._advice)
        return region

    def in_small_pages(self, small: bool) -> None:
        """How memory that is written to for the first time is taken from now on; what is taken already the system may make large later.

        A large page is 2 MB in one piece, which the system may have to get from its host first; small ones it has at hand more often
        (docs/decisions/0196-memory-of-what-comes-back.md).
        """
        self.small = small
        if len(self._map) >= _HUGE:
            self._map.madvise(self._advice)

    @property
    def _advice(self) -> int:
        return mmap.MADV_NOHUGEPAGE if self.small else mmap.MADV_HUGEPAGE

    def _view(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self._map, np.int64).reshape(-1, self.width)

    def look(self) -> npt.NDArray[np.int64]:
        """The words, for another thread: waits while the owner is in the middle of growing (a few bytecodes, then it has the GIL)."""
        words = self.words
        while words.shape[0] == 0:
            words = self.words
        return words

    def grow(self, slots: int) -> None:
        """Make room for `slots` rows. Existing rows keep their slots; new ones are zero."""
        old = self.words
        self.words = np.empty((0, self.width), np.int64)
        used = old.shape[0]
        try:
            del old
            self._map.resize(slots * self.width * 8)
            self._map.madvise(self._advice)
        except BufferError:
            before, self._map = self._map, self._new(slots)
            self._view()[:used] = np.frombuffer(before, np.int64).reshape(-1, self.width)
        self.words = self._view()

    def give_back(self, pages: npt.NDArray[np.int64]) -> None:
        """Let the system have the memory of these pages, all of whose rows are zero, and stay so. pages: ascending."""
        size = PAGE * self.width * 8
        if size % mmap.PAGESIZE:
            return  # Two of them share a page of this system.
        for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
            self._map.madvise(mmap.MADV_DONTNEED, int(run[0]) * size, run.size * size)
