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
from dataclasses import dataclass
from typing import Final

from evenflow.errors import PortsTaken, StrangerRefused
from evenflow.world.spark.net import names
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.handshake import HANDSHAKE_TIMEOUT_S, Accepting, Connecting, Hello, tune
from evenflow.world.spark.net.reactor import READABLE, WRITABLE, Reactor
from evenflow.world.spark.net.tls import Encrypted, own_digest
from evenflow.world.spark.net.trust import Trusted, trust_in

WAITING_MAX: Final = 128
PAUSE_FIRST_S: Final = 0.01
PAUSE_LAST_S: Final = 0.5
"""How long nothing is accepted after the system could not, mostly for want of descriptors; twice as long each time that follows."""
WARN_EVERY_S: Final = 1.0

log = logging.getLogger("evenflow")

Welcome = Callable[[Connection, Hello], None]


def open_port(host: str = "", ports: tuple[int, int] | None = None) -> socket.socket:
    """A listening TCP socket on a free port. host: "" for every interface. ports: the first and the last that it may be; the first free one
    is taken, so that a second site on a machine has the next. Raises OSError, PortsTaken."""
    family = names.family_of(names.resolve(host) if host else host)
    if ports is None:
        return socket.create_server((host, 0), family=family, backlog=256)
    first, last = ports
    for port in range(first, last + 1):
        try:
            return socket.create_server((host, port), family=family, backlog=256)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise PortsTaken(
        f"all ports from {first} to {last} are taken on {socket.gethostname()}: widen the engine's option ports, "
        "to one for each site on a machine and one for the driver on its own"
    )


@dataclass(slots=True)
class Stranger:
    """Who has connected and has not proved himself yet. tls: what has to be done before; None: nothing, or no more. end: behind it."""

    sock: socket.socket
    deadline_s: float
    tls: Encrypted | None
    end: Accepting


class Listener:
    """Accepts connections and calls `welcome(connection, hello)` for those that know the secret. refused: how many did not."""

    def __init__(self, sock: socket.socket, reactor: Reactor, secret: Trusted, welcome: Welcome) -> None:
        trust = trust_in(secret)
        sock.setblocking(False)
        self._sock, self._reactor, self._secret, self._welcome = sock, reactor, trust.secret, welcome
        self._host, self._tls = str(sock.getsockname()[0]), trust.tls
        self._certificate = b"" if trust.tls is None else own_digest(trust.tls)
        self._waiting: dict[int, Stranger] = {}
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
        fd, end = sock.fileno(), Accepting(self._secret, self.port, self._certificate)
        tls = None if self._tls is None else Encrypted(sock, self._tls, self._host, accepts=True)
        stranger = Stranger(sock if tls is None else tls.sock, time.monotonic() + HANDSHAKE_TIMEOUT_S, tls, end)
        self._waiting[fd] = stranger
        self._reactor.register(fd, READABLE, lambda events: self._ready(fd))
        if tls is None:
            self._send(fd, stranger.sock, end)
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
        stranger = self._waiting[fd]
        sock, end = stranger.sock, stranger.end
        try:
            if stranger.tls is not None:
                self._shake(fd, stranger, stranger.tls)
                return
            while end.needs:  # What is left of a record of TLS, nobody waits for.
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

    def _shake(self, fd: int, stranger: Stranger, tls: Encrypted) -> None:
        wanted = tls.shake()
        self._reactor.modify(fd, wanted or READABLE)
        if not wanted:
            stranger.tls = None
            self._send(fd, stranger.sock, stranger.end)

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
        return self._waiting.pop(fd).sock

    def _sweep(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, stranger in self._waiting.items() if stranger.deadline_s <= now]:
            self._refuse(fd, "did not finish the handshake in time")
        self._sweeping = bool(self._waiting)
        if self._sweeping:
            next_deadline = min(stranger.deadline_s for stranger in self._waiting.values())
            self._reactor.call_later(max(0.01, next_deadline - now), self._sweep)


class Dialer:
    """Opens one connection without blocking, then calls `done(connection)`, or `failed(reason)`; exactly one of them, once. A name that
    does not resolve is such a reason, and may resolve the next time."""

    def __init__(
        self,
        address: tuple[str, int],
        reactor: Reactor,
        secret: Trusted,
        hello: Hello,
        done: Callable[[Connection], None],
        failed: Callable[[str], None],
        listens: int | None = None,
    ) -> None:
        """listens: the port at which the other end listens, where something on the way forwards to it; None: the one that is dialled."""
        self._listens = address[1] if listens is None else listens
        self._reactor, self._done, self._failed = reactor, done, failed
        trust = trust_in(secret)
        self._trust, self._hello, self._address = trust, hello, address
        self._tls: Encrypted | None = None
        self._end: Connecting | None = None if trust.tls else Connecting(trust.secret, hello, self._listens)
        self._sock: socket.socket  # Once it is known where the name leads.
        self._over = self._dials = self._connected = False
        reactor.call_later(HANDSHAKE_TIMEOUT_S, lambda: self._fail("no answer in time"))
        names.find(address[0], reactor, self._found, self._fail)

    def _found(self, host: str) -> None:
        """host: an address, which takes no time to look up. Nobody hears of a failure before he has this dialer."""
        if self._over:
            return
        try:
            self._sock, self._dials = socket.socket(names.family_of(host), socket.SOCK_STREAM), True
            self._sock.setblocking(False)
            tune(self._sock)
            code = self._sock.connect_ex((host, self._address[1]))
            self._reactor.register(self._sock.fileno(), WRITABLE, self._ready)
            reason = "" if code in (0, errno.EINPROGRESS) else errno.errorcode.get(code, str(code))
        except OSError as error:  # Out of descriptors, or no way there.
            reason = str(error)
        if reason:
            self._reactor.call_later(0.0, lambda: self._fail(reason))

    def _ready(self, events: int) -> None:
        try:
            if not self._connected:
                self._connect()
                return
            end = self._end or self._shake()
            if end is None:
                return
            data = self._sock.recv(end.needs)
            if not data:
                raise StrangerRefused("the other end has closed the connection")
            end.feed(data)
            if end.out:
                self._sock.send(end.out)
                end.out = b""
        except BlockingIOError:
            return
        except (OSError, StrangerRefused) as error:
            self._fail(str(error))
            return
        if end.done:
            self._over = True
            self._reactor.unregister(self._sock.fileno())
            self._done(end.connection(self._sock))

    def _connect(self) -> None:
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, f"cannot connect ({errno.errorcode.get(code, code)})")
        self._connected = True
        if self._trust.tls is None:
            self._reactor.modify(self._sock.fileno(), READABLE)
            return
        self._tls = Encrypted(self._sock, self._trust.tls, self._address[0], accepts=False)
        self._sock = self._tls.sock
        self._shake()

    def _shake(self) -> Connecting | None:
        """A step of TLS. The end to go on with, if that was the last one."""
        assert self._tls is not None
        wanted = self._tls.shake()
        self._reactor.modify(self._sock.fileno(), wanted or READABLE)
        if not wanted:
            self._end = Connecting(self._trust.secret, self._hello, self._listens, self._tls.digest())
        return self._end

    def abandon(self) -> None:
        """Stop without calling anybody."""
        if not self._over:
            self._over = True
            if self._dials:
                self._reactor.unregister(self._sock.fileno())
                self._sock.close()

    def _fail(self, reason: str) -> None:
        if not self._over:
            self.abandon()
            self._failed(reason)
