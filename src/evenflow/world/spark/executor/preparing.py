"""Tasks that are not sites yet: their machine has no compiled kernels, and they compile them.

That takes a Python process half a minute of CPU in which it says nothing, so such a task connects to the driver before and lets go of the
connection when it is done, or dies.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from evenflow.world.spark.net.channel import Channel
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.handshake import Hello
from evenflow.world.spark.net.reactor import Reactor

PREPARES_MAX_S: Final = 600.0
"""Who takes longer hangs, or waits at the lock of its machine's kernels for one that hangs."""

log = logging.getLogger("evenflow")


class Preparations:
    """Those that are under way. The coordinator's thread changes them, any thread may look."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._channels: dict[Channel, tuple[float, str]] = {}
        self._hosts: set[str] = set()

    @property
    def under_way(self) -> bool:
        """And will come to an end, as far as can be known."""
        late_s = time.monotonic() - PREPARES_MAX_S
        return any(since_s > late_s for since_s, _ in list(self._channels.values()))

    @property
    def stuck(self) -> list[str]:
        """Whose preparations have been under way for much longer than they take."""
        late_s = time.monotonic() - PREPARES_MAX_S
        return [who for since_s, who in list(self._channels.values()) if since_s <= late_s]

    def begin(self, connection: Connection, hello: Hello) -> None:
        """The user is told once for each host, as nothing else is to be seen meanwhile."""
        host = str(hello.get("host"))
        if host not in self._hosts:
            self._hosts.add(host)
            log.warning(
                "compiling kernels on %s (executor %s), once per machine and version: takes half a minute of CPU. "
                "`python -m evenflow.kernels` does it when a machine is set up.",
                host,
                hello.get("executor"),
            )
        channel = Channel(connection, self._reactor, lambda channel, kind, body: None, self._end)
        self._channels[channel] = (time.monotonic(), f"executor {hello.get('executor')} on {host}")

    def _end(self, channel: Channel, reason: str) -> None:
        self._channels.pop(channel, None)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
