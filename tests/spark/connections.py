"""Connections for tests: both ends of one, without a handshake."""

from __future__ import annotations

import socket

from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import Seals

KEYS = b"1" * 32, b"2" * 32


def connected() -> tuple[Connection, Connection]:
    """Both ends of a connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        one = socket.create_connection(port.getsockname())
        other, _ = port.accept()
    return Connection(one, Seals(*KEYS)), Connection(other, Seals(*reversed(KEYS)))
