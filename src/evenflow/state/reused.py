"""Memory for states that are made one after the other, and are soon let go.

Memory that a process has never touched costs more than what is done with it: the system clears it, and may have to get it from its host
first. So a state that is made in place of one that was let go takes the memory of that one.
"""

from __future__ import annotations

import weakref
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SPARE: Final = 8
"""A block is larger than what it is made for by one part in so many, since states of one step are about as large as each other."""


class Reused:
    """Blocks of memory, each of which serves again when nobody has what lies in it any more. May be let go from any thread.

    No more of them are kept than were in use at once.
    """

    def __init__(self) -> None:
        self._free: list[Bytes] = []

    def take(self, size: int) -> Bytes:
        """uint8 (size,), of any content. Who has it, or whatever array or memoryview was made of it, keeps its block from serving again."""
        block = self._block(size)
        # By way of the buffer: an array's views have what lies below them as their base, if that is an array.
        given = np.frombuffer(block.data[:size], np.uint8)
        weakref.finalize(given, self._free.append, block).atexit = False
        return given

    def _block(self, size: int) -> Bytes:
        free = self._free
        for at in range(len(free)):
            if free[at].size >= size:
                return free.pop(at)
        if free:
            free.pop()  # It is too small, as all of them are.
        return np.empty(size + size // SPARE, np.uint8)
