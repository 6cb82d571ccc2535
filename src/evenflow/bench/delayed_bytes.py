"""Bytes on a long way, one direction of a connection: late, in order, and for a while not at all. What lives here knows no socket and no
clock: whoever carries it out says what time it is.

A way that is cut loses packets and not connections, as between real machines: what was sent waits, and comes in order when the way is
whole.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

MOST_BYTES: Final = 1 << 22
"""Under way at once. A sender beyond it has to wait, as with a full window."""


@dataclass(slots=True)
class Way:
    """delay_us: of what is sent from now on. cut: nothing arrives. ended: no more bytes will be sent."""

    delay_us: int
    cut: bool = False
    ended: bool = False
    under_way: int = 0
    _queue: deque[tuple[int, bytes]] = field(default_factory=deque)
    _last_us: int = 0

    @property
    def has_room(self) -> bool:
        return self.under_way < MOST_BYTES

    @property
    def is_empty(self) -> bool:
        """All that was sent has arrived, the end too."""
        return self.ended and not self._queue

    def send(self, data: bytes, now_us: int) -> None:
        """No bytes are the end of them. What comes behind the end is a fault of the caller's."""
        assert not self.ended, "nothing is sent behind the end"
        self._last_us = max(self._last_us, now_us + self.delay_us)
        self._queue.append((self._last_us, data))
        self.under_way += len(data)
        self.ended = not data

    def due_us(self) -> int | None:
        """When `arrive` gives something next; None if not by time alone."""
        return None if self.cut or not self._queue else self._queue[0][0]

    def arrive(self, now_us: int) -> list[bytes]:
        """What has arrived by now, in order; the end as no bytes."""
        found = []
        while not self.cut and self._queue and self._queue[0][0] <= now_us:
            data = self._queue.popleft()[1]
            self.under_way -= len(data)
            found.append(data)
        return found

    def heal(self, now_us: int) -> None:
        """The way is whole again: what has waited is sent once more, so it needs the delay from now on."""
        if self.cut:
            self.cut = False
            again_us = now_us + self.delay_us
            self._queue = deque((max(at, again_us), data) for at, data in self._queue)
            self._last_us = max(self._last_us, again_us) if self._queue else self._last_us
