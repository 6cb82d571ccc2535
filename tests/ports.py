"""Ports of this machine for tests that have to name one before anybody listens there."""

from __future__ import annotations

import socket


def free_port() -> int:
    """One at which nobody listens, and which the system has just given out, so that it is not given to others at once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
