"""The open port of a site or of the driver, and the connections that a site opens: strangers stay outside.

A connection is nobody's until its handshake is done; it is closed after `HANDSHAKE_TIMEOUT_S`, at the first wrong byte, and when too many
others are waiting. What was refused is counted, and said once in the log.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Final

from evenflow.errors import StrangerRefused
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.handshake import HANDSHAKE_TIMEOUT_S, Accepting, Connecting, Hello, tune
from evenflow.world.spark.net.reactor import READABLE, WRITABLE, Reactor

WAITING_MAX: Final = 128
PAUSE_FIRST_S: Final = 0.01
PAUSE_LAST_S: Final = 0.5
"""How long nothing is accepted after the system could not, mostly for want of descriptors; twice as long each time that follows."""
WARN_EVERY_S: Final = 1.0

log = logging.getLogger("evenflow")

Welcome = Callable[[Connection, Hello], None]


def open_port(host: str = "") -> socket.socket:
    """A listening TCP socket on a free port. host: "" for every interface."""
    return socket.create_server((host, 0), backlog=256)


class Listener:
    """Accepts connections and calls `welcome(connection, hello)` for those that know the secret. refused: how many did not."""

    def __init__(self, sock: socket.socket, reactor: Reactor, secret: bytes, welcome: Welcome) -> None:
        sock.setblocking(False)
        self._sock, self._reactor, self._secret, self._welcome = sock, reactor, secret, welcome
        self._waiting: dict[int, tuple[socket.socket, Accepting, float]] = {}
        self.refused = 0
        self._sweeping = self._closed = False
        self._pause_s, self._warned_s = 0.0, -WARN_EVERY_S
        reactor.register(sock.fileno(), READABLE, self._accept)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def close(self) -> None:
        self._closed = True
        for fd in list(self._waiting):
            self._drop(fd).close()
        self._reactor.unregister(self._sock.fileno())
        self._sock.close()

    def _accept(self, events: int) -> None:
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            self._pause(error)
            return
        self._pause_s = 0.0
        try:
            sock.setblocking(False)
            tune(sock)
        except OSError:  # It has gone before it was taken.
            sock.close()
            return
        if len(self._waiting) >= WAITING_MAX:
            self._refuse(next(iter(self._waiting)), "too many strangers are waiting")
        fd, end = sock.fileno(), Accepting(self._secret, self.port)
        self._waiting[fd] = (sock, end, time.monotonic() + HANDSHAKE_TIMEOUT_S)
        self._reactor.register(fd, READABLE, lambda events: self._ready(fd))
        self._send(fd, sock, end)
        if not self._sweeping:
            self._sweeping = True
            self._reactor.call_later(HANDSHAKE_TIMEOUT_S, self._sweep)

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a while. Who waits goes on waiting; a port that is looked at says at once that somebody does."""
        self._pause_s = min(PAUSE_LAST_S, 2 * self._pause_s or PAUSE_FIRST_S)
        now = time.monotonic()
        if now - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now
            log.warning(
                "connections cannot be accepted (%s) and wait until they can: raise the limit of open files (ulimit -n), "
                "or look who keeps so many open",
                error.strerror,
            )
        self._reactor.modify(self._sock.fileno(), 0)
        self._reactor.call_later(self._pause_s, self._go_on)

    def _go_on(self) -> None:
        if not self._closed:
            self._reactor.modify(self._sock.fileno(), READABLE)

    def _ready(self, fd: int) -> None:
        sock, end, _ = self._waiting[fd]
        try:
            data = sock.recv(end.needs)
            if not data:
                raise StrangerRefused("ended the handshake")
            end.feed(data)
        except BlockingIOError:
            return
        except (OSError, StrangerRefused, ValueError) as error:
            self._refuse(fd, str(error))
            return
        if end.hello is not None:
            self._send(fd, sock, end)
            if fd in self._waiting:
                self._welcome(end.connection(self._drop(fd)), end.hello)

    def _send(self, fd: int, sock: socket.socket, end: Accepting) -> None:
        """The few bytes of a handshake always fit into a new socket's buffer; if not, it is no friend's."""
        try:
            if sock.send(end.out) != len(end.out):
                raise StrangerRefused("does not read")
        except (OSError, StrangerRefused) as error:
            self._refuse(fd, str(error))

    def _refuse(self, fd: int, why: str) -> None:
        sock = self._drop(fd)
        try:
            address = sock.getpeername()[0]
        except OSError:
            address = "unknown"
        sock.close()
        self.refused += 1
        if self.refused == 1:
            log.warning("a stranger from %s was refused: it %s. Further ones are only counted.", address, why)

    def _drop(self, fd: int) -> socket.socket:
        self._reactor.unregister(fd)
        return self._waiting.pop(fd)[0]

    def _sweep(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, (_, _, deadline) in self._waiting.items() if deadline <= now]:
            self._refuse(fd, "did not finish the handshake in time")
        self._sweeping = bool(self._waiting)
        if self._sweeping:
            next_deadline = min(deadline for _, _, deadline in self._waiting.values())
            self._reactor.call_later(max(0.01, next_deadline - now), self._sweep)


class Dialer:
    """Opens one connection without blocking, then calls `done(connection)`, or `failed(reason)`; exactly one of them, once."""

    def __init__(
        self,
        address: tuple[str, int],
        reactor: Reactor,
        secret: bytes,
        hello: Hello,
        done: Callable[[Connection], None],
        failed: Callable[[str], None],
    ) -> None:
        self._reactor, self._done, self._failed = reactor, done, failed
        self._end = Connecting(secret, hello, address[1])
        self._over = False
        try:
            self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:  # Out of descriptors.
            self._over, reason = True, str(error)
            reactor.call_later(0.0, lambda: failed(reason))
            return
        self._sock.setblocking(False)
        tune(self._sock)
        code = self._sock.connect_ex(address)
        reactor.register(self._sock.fileno(), WRITABLE, self._ready)
        reactor.call_later(HANDSHAKE_TIMEOUT_S, lambda: self._fail("no answer in time"))
        if code not in (0, errno.EINPROGRESS):
            reactor.call_later(0.0, lambda: self._fail(errno.errorcode.get(code, str(code))))

    def _ready(self, events: int) -> None:
        try:
            if events & WRITABLE:
                code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, f"cannot connect ({errno.errorcode.get(code, code)})")
                self._reactor.modify(self._sock.fileno(), READABLE)
                return
            data = self._sock.recv(self._end.needs)
            if not data:
                raise StrangerRefused("the other end has closed the connection")
            self._end.feed(data)
            if self._end.out:
                self._sock.send(self._end.out)
                self._end.out = b""
        except BlockingIOError:
            return
        except (OSError, StrangerRefused) as error:
            self._fail(str(error))
            return
        if self._end.done:
            self._over = True
            self._reactor.unregister(self._sock.fileno())
            self._done(self._end.connection(self._sock))

    def abandon(self) -> None:
        """Stop without calling anybody."""
        if not self._over:
            self._over = True
            self._reactor.unregister(self._sock.fileno())
            self._sock.close()

    def _fail(self, reason: str) -> None:
        if not self._over:
            self.abandon()
            self._failed(reason)
