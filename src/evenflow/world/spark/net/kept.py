"""Messages that are kept for a while, in memory or in a temporary file."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Final

from evenflow.world.spark.net.framing import Piece

STAGED_BYTES_MAX: Final = 64 * 2**20
"""What one attempt of a task may hold in memory at the site that it pushes to."""


class Kept:
    """Pieces in the order in which they were added, `most_bytes` of them in memory and the others in `file`, if there are others.

    When all are there they are gone through, as often as one likes, or taken one by one. Where the file finds no room `add`, the first
    `rewind` and going through them raise OSError: what was added is not all there then.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pieces: deque[Piece] = deque()
        self._bytes = 0
        self.file: IO[bytes] | None = None
        self._lengths: deque[int] = deque()

    def add(self, piece: Piece) -> None:
        if self.file is None and self._bytes + len(piece) <= self._most_bytes:
            self._pieces.append(piece)
            self._bytes += len(piece)
            return
        if self.file is None:
            self.file = tempfile.TemporaryFile(prefix="evenflow-kept-")  # noqa: SIM115
        self.file.write(piece)
        self._lengths.append(len(piece))

    def __iter__(self) -> Iterator[Piece]:
        """All of them, not while some are added."""
        yield from self._pieces
        if self.file is not None:
            self.file.seek(0)
            for length in self._lengths:
                yield self.file.read(length)

    @property
    def empty(self) -> bool:
        """Everything has been taken."""
        return not self._pieces and not self._lengths

    def rewind(self) -> None:
        """Before the first `take`."""
        if self.file is not None:
            self.file.seek(0)

    def take(self) -> Piece:
        """The next one, which is not kept any longer. Not when it is empty."""
        if self._pieces:
            return self._pieces.popleft()
        assert self.file is not None
        return self.file.read(self._lengths.popleft())

    def close(self) -> None:
        """Forget them all."""
        self._pieces.clear()
        self._lengths.clear()
        if self.file is not None:
            with suppress(OSError):  # What is still in its buffer finds no room, and nobody wants it.
                self.file.close()
            self.file = None
