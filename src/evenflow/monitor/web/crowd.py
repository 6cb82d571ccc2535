"""Connections on which nothing is asked give way to those on which something is.

A connection is a file of this process, of which it may have so many and no more. Who opens many and says nothing needs no token for that,
and would keep everybody else out for as long as he likes.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS: Final = 768
"""At a time, where the system allows twice as many files."""
GRACE_S: Final = 1.0
"""For so long everybody may be silent: what was sent may not have been read yet, and what was answered not either."""
UNASKED: Final = (h11.IDLE, h11.SEND_BODY)
"""Of who has not said all of a request."""


def most() -> int:
    """Connections that this process may have at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft < 0 else max(8, min(CONNECTIONS, soft // 2))


class Crowded(H11Protocol):
    """A connection. If there are too many, the one that has been silent for longest is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since_s = self.loop.time()
        if len(self.connections) > most():
            self.loop.call_later(GRACE_S, self._make_room)

    def _make_room(self) -> None:
        if len(self.connections) <= most():
            return
        until_s = self.loop.time() - GRACE_S
        silent = [each for each in cast(set[Any], self.connections) if each.since_s <= until_s and each.conn.their_state in UNASKED]
        oldest = min(silent, key=lambda each: float(each.since_s), default=None)
        if oldest is not None:
            self.connections.discard(oldest)
            oldest.transport.close()

    def on_response_complete(self) -> None:
        self.since_s = self.loop.time()
        super().on_response_complete()


__all__ = ["CONNECTIONS", "Crowded"]
