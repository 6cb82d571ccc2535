"""The server as a process: bound to a port, fed by a thread, ended by a signal or with its parent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from evenflow.monitor.web.app import make_app
from evenflow.monitor.web.crowd import Crowded
from evenflow.monitor.web.server import Site

PORT: Final = 4141
TRIED: Final = 20
"""Ports that are tried, one after the other, where nobody has said which it shall be."""
STUCK_MS: Final = 60_000
"""Who takes nothing of what was sent for so long is gone: readers that stopped reading keep nobody's place, and no buffer."""


def bound(host: str, port: int | None) -> socket.socket:
    """A socket that listens. port: None: the first free one from PORT on. Raises OSError."""
    error: OSError | None = None
    for candidate in [port] if port is not None else [*range(PORT, PORT + TRIED), 0]:
        found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Of Linux. What it accepts has it, too.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MS)
        try:
            found.bind((host, candidate))
            found.listen(256)
        except OSError as failed:
            found.close()
            error = failed
        else:
            return found
    assert error is not None
    raise error


class Server(uvicorn.Server):
    """closing: is called in its loop when it is to end, and lets streams end, which never do so by themselves."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing()
        await super().shutdown(sockets)


def serve(site: Site, listening: socket.socket, begun: Callable[[Server], None]) -> None:
    """Serve until somebody sets `should_exit` of what `begun` is given. Returns when all is closed."""
    serve_app(make_app(site), listening, begun, site.feed.close)


def serve_app(app: ASGIApp, listening: socket.socket, begun: Callable[[Server], None], closing: Callable[[], None] = lambda: None) -> None:
    """The same, of any application."""
    config = uvicorn.Config(
        app, http=Crowded, ws="none", lifespan="on", loop="asyncio", log_level="warning", access_log=False, server_header=False,
        date_header=False, timeout_graceful_shutdown=1, timeout_keep_alive=30, h11_max_incomplete_event_size=32 * 1024,
    )  # fmt: skip
    server = Server(config, closing)
    begun(server)
    asyncio.run(server.serve(sockets=[listening]))
