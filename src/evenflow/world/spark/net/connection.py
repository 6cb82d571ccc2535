"""A connection on which both ends have proved themselves: its socket, and the seals of its messages.

Whoever serves many of them does so with a `Channel`; here are the blocking ways, for Spark's tasks and threads.
"""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any

from evenflow.errors import UnreadableMessage
from evenflow.world.spark.net.framing import CONTROL, HEADER, Piece, Seals, body_length


class Connection:
    """sock: nothing is to be said or heard on it but by `send` and `receive`, or by one `Channel`. One thread at a time."""

    def __init__(self, sock: socket.socket, seals: Seals) -> None:
        self.sock, self.seals = sock, seals

    def send(self, kind: int, pieces: list[Piece]) -> None:
        """Send a message. Raises OSError."""
        for piece in self.seals.seal(kind, pieces):
            self.sock.sendall(piece)

    def receive(self) -> tuple[int, memoryview]:
        """(kind, body) of the next message. Raises ConnectionError, MessageForged."""
        kind, length, seal = body_length(self._exactly(HEADER.size))
        body = self._exactly(length)
        self.seals.check(kind, seal, body)
        return kind, body

    def tell(self, **facts: Any) -> None:
        """Say something in JSON. Raises OSError."""
        self.send(CONTROL, [json.dumps(facts, default=str).encode()])

    def hear(self) -> dict[str, Any]:
        """Hear something in JSON. Raises ConnectionError, ProtocolError."""
        kind, body = self.receive()
        return words(kind, body)

    def _exactly(self, count: int) -> memoryview:
        view = memoryview(bytearray(count))
        filled = 0
        while filled < count:
            got = self.sock.recv_into(view[filled:])
            if got == 0:
                raise ConnectionError("the other end has closed the connection")
            filled += got
        return view

    def settimeout(self, seconds: float | None) -> None:
        self.sock.settimeout(seconds)

    @property
    def peer_host(self) -> str:
        """The address from which, or to which, it was made. Raises OSError if it is gone."""
        return str(self.sock.getpeername()[0])

    def fileno(self) -> int:
        return self.sock.fileno()

    def shut_down(self) -> None:
        """Wake up whoever waits for the other end, in whatever thread."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It has broken already.

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def words(kind: int, body: bytes | memoryview) -> dict[str, Any]:
    """What a message in JSON says. Raises UnreadableMessage if it is none."""
    try:
        said = json.loads(bytes(body)) if kind == CONTROL else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise UnreadableMessage(f"a message of kind {kind} and {len(body)} bytes is no object in JSON")
    return said
