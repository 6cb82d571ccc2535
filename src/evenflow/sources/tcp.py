"""Lines of text from TCP connections.

The reader never waits: sockets do not block, names are asked for in a thread, and a site's loop wakes on `fileno()`. It connects to a
peer, and again when it is lost or its name does not resolve, waiting 0.1 s, 0.2 s and so on up to 10 s; or it listens, and takes lines
from any number of peers. There is no secret and no encryption: it is for trusted networks. What a peer has sent and nobody has read
stays in the kernel, so a slow dataflow slows its peers.

A peer sends each line once. If the site that reads them is lost, lines that it had received, but that no other site had in its log,
are lost with it; the reader that takes over goes on with what the peers send from then on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from evenflow.errors import OptionError, QueryError, SourceError
from evenflow.sources.description import LATER
from evenflow.sources.lines import Lines
from evenflow.sources.messages import LineFormat
from evenflow.sources.source import Reader, Source
from evenflow.stream.declared import Declared, May, row_schema, whole
from evenflow.stream.waiting import Waiting

RECEIVE_BYTES: Final = 1 << 18
FIRST_BACKOFF_US: Final = 100_000
LAST_BACKOFF_US: Final = 10_000_000
CONNECTING_US: Final = 1_000
RESOLVING_US: Final = 10_000
"""How soon to look again whether a connection is made, or a name known."""
FIRST_PAUSE_US: Final = 10_000
LAST_PAUSE_US: Final = 100_000
"""How long nobody is accepted after the system could not, mostly for want of descriptors; twice as long each time that follows. The peers
that are there are looked at as rarely meanwhile, so it is short."""
KEEPALIVE: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""Seconds of silence before a peer is asked whether it is there, those between questions, and how many may stay without an answer. What
the peer has still to send is lost with a connection, so a network that is away for some seconds ends none."""

Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class TcpReader(Reader):
    """What connecting and listening have in common: received rows wait here until they are asked for."""

    bad_before: int = 0

    def __init__(self, source: TcpSource) -> None:
        self._source = source
        self._ready: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def read(self, now_us: int, max_rows: int) -> pa.RecordBatch | None:
        self.wake_us = None
        if not self._ready:
            self._receive(now_us)
        if not self._ready:
            self.ended = self._over()
            return None
        batch = self._ready[0]
        if batch.num_rows > max_rows:
            self._ready[0] = batch.slice(max_rows)
            return batch.slice(0, max_rows)
        del self._ready[0]
        self.ended = not self._ready and self._over()
        return batch

    def skip(self, rows: int) -> None:
        """Nothing: peers do not send their lines again, so what comes now is the continuation."""

    def waiting(self, now_us: int) -> Waiting:
        """Rows that are parsed, and those that the kernel has, by the size of the rows so far."""
        rows = sum([batch.num_rows for batch in self._ready])
        there = sum([_unread_bytes(each) for each in self._sockets()])
        return Waiting(rows + there * self._rows // self._bytes if self._bytes else rows)

    def _sockets(self) -> list[socket.socket]:
        """Those on which rows come."""
        raise NotImplementedError

    def _receive(self, now_us: int) -> None:
        raise NotImplementedError

    def _over(self) -> bool:
        """No connection will bring anything any more."""
        raise NotImplementedError

    def _lines(self, peer: str) -> Lines:
        s = self._source
        return Lines(peer, s.schema, s.format, s.bad_lines == "skip")

    def _pull(self, connection: socket.socket, lines: Lines) -> bool:
        """Take what has arrived. False: the connection is over. Raises SourceError for a bad line."""
        try:
            data = connection.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:  # Reset by the peer: half a line is not a line.
            return False
        made = lines.feed(data, last=not data)
        self._ready += made
        self._rows += sum([batch.num_rows for batch in made])
        self._bytes += len(data)
        return bool(data)


def _unread_bytes(connection: socket.socket) -> int:
    """What the kernel has of it."""
    try:
        return int.from_bytes(fcntl.ioctl(connection, termios.FIONREAD, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # It has been closed.
        return 0


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _watch(connection: socket.socket) -> None:
    """See to it that a peer that vanishes without a word is noticed: who only receives would never know. Raises OSError."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Lookup:
    """Where a host's name leads, asked in a thread of its own: the system's resolver answers after seconds where no server of names does,
    and a site's loop has none to spare. An address leads to itself at once. Raises ValueError for what can be no name."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._answer: Address | OSError | None = None
        try:
            self._answer = self._ask(socket.AI_NUMERICHOST)
        except OSError:  # It is a name.
            self._begin()

    def found(self) -> Address | None:
        """None: nobody has answered yet. Raises OSError if the name does not resolve."""
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._run, name="evenflow-name", daemon=True).start()
        except RuntimeError as error:  # No more threads.
            self._answer = OSError(errno.EAGAIN, str(error))

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except Exception as error:  # Whatever it is, somebody waits for an answer.
            self._answer = OSError(errno.EIO, f"the name {self._host!r} does not resolve: {getattr(error, 'strerror', None) or error}")

    def _ask(self, flags: int = 0) -> Address:
        return socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=flags)[0]


class ConnectingReader(TcpReader):
    """Connects to host:port, and again when the connection is lost."""

    def __init__(self, source: TcpSource) -> None:
        super().__init__(source)
        self._lookup: Lookup | None = None
        self._socket: socket.socket | None = None
        self._connected = False
        self._finished = False
        self._met = False
        self._failures = 0
        self._retry_us = 0
        self._lines_now = self._lines(source.name)

    @property
    def bad_lines(self) -> int:
        """Lines that were dropped because they could not be parsed."""
        return self.bad_before + self._lines_now.bad

    def fileno(self) -> int | None:
        return self._socket.fileno() if self._socket is not None and self._connected else None

    def _over(self) -> bool:
        return self._finished

    def _sockets(self) -> list[socket.socket]:
        return [self._socket] if self._socket is not None and self._connected else []

    def _receive(self, now_us: int) -> None:
        if self._finished or not self._ensure(now_us):
            return
        assert self._socket is not None
        if not self._pull(self._socket, self._lines_now):
            self.close()
            if self._source.on_close == "end":
                self._finished = True
            else:
                self._later(now_us)

    def _ensure(self, now_us: int) -> bool:
        """Is there a connection? If not, begin or go on to make one. Raises SourceError when the first one cannot be made."""
        if self._connected:
            return True
        if self._socket is None and self._lookup is None and now_us < self._retry_us:
            self.wake_us = self._retry_us
            return False
        try:
            self._connected = self._go_on()
        except OSError as error:
            self._fail(now_us, error)
            return False
        if not self._connected:
            self.wake_us = now_us + (RESOLVING_US if self._socket is None else CONNECTING_US)
            return False
        self._met, self._failures = True, 0
        self.bad_before += self._lines_now.bad
        self._lines_now = self._lines(self._source.name)
        return True

    def _go_on(self) -> bool:
        """Ask where the name leads, connect there, and look whether the connection is made. Raises OSError."""
        if self._socket is not None:
            watched = select.poll()  # `select.select` takes no descriptor from 1024 on.
            watched.register(self._socket, select.POLLOUT)
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if watched.poll(0) else errno.EINPROGRESS
        else:
            self._lookup = self._lookup or self._asked()
            if (address := self._lookup.found()) is None:
                return False
            self._lookup, self._socket = None, socket.socket(*address[:3])
            self._socket.setblocking(False)
            _watch(self._socket)
            code = self._socket.connect_ex(address[4])
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        return code == 0

    def _asked(self) -> Lookup:
        try:
            return Lookup(self._source.host, self._source.port)
        except ValueError as error:
            raise SourceError(f"tcp source cannot resolve {self._source.host}: {error}; check the host name") from error

    def _fail(self, now_us: int, error: OSError) -> None:
        """Try again later. Raises SourceError when the first connection cannot be made."""
        self.close()
        self._failures += 1
        if self._failures > self._source.retries and not self._met:
            raise SourceError(
                f"tcp source cannot connect to {self._source.name} after {self._failures} tries: {error.strerror or error}; "
                "start the sender first, check host and port, or give listen=True to wait for it"
            ) from error
        self._later(now_us)

    def _later(self, now_us: int) -> None:
        wait_us = min(FIRST_BACKOFF_US << min(max(self._failures - 1, 0), 20), LAST_BACKOFF_US)
        self.wake_us = self._retry_us = now_us + wait_us

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._lookup, self._socket, self._connected = None, None, False


@dataclass(slots=True)
class Peer:
    connection: socket.socket
    lines: Lines


def _listening(host: str, port: int) -> socket.socket:
    """A socket that accepts peers there: over IPv4 where the host has an address of it, else over IPv6. "::" is any address of both.
    Raises OSError, ValueError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setblocking(False)
        made.bind(address)
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


class ListeningReader(TcpReader):
    """Takes lines from every peer that connects; rows of different peers are interleaved as they come."""

    def __init__(self, source: TcpSource) -> None:
        super().__init__(source)
        self._peers: dict[int, Peer] = {}
        self._seen = 0
        self._pause_us = 0
        self._resume_us: int | None = None
        self._poll = select.epoll()
        try:
            self._listener = _listening(source.host, source.port)
        except (OSError, ValueError) as error:  # ValueError: it can be no name.
            self._poll.close()
            raise SourceError(
                f"tcp source cannot listen on {source.name}: {error}; choose a free port and an address of this host"
            ) from error
        self._poll.register(self._listener, select.EPOLLIN)

    @property
    def port(self) -> int:
        """The port it listens on: the one asked for, or the one the system chose for port 0."""
        return int(self._listener.getsockname()[1])

    @property
    def bad_lines(self) -> int:
        """Lines that were dropped because they could not be parsed."""
        return self.bad_before + sum(peer.lines.bad for peer in self._peers.values())

    def fileno(self) -> int | None:
        return None if self._poll.closed else self._poll.fileno()

    def _over(self) -> bool:
        """While nobody is accepted there is somebody who waits for it."""
        return self._source.on_close == "end" and self._seen > 0 and not self._peers and self._resume_us is None

    def _sockets(self) -> list[socket.socket]:
        return [peer.connection for peer in self._peers.values()]

    def _receive(self, now_us: int) -> None:
        if self._poll.closed:
            return
        if self._resume_us is not None and now_us >= self._resume_us:
            self._resume_us = None
            self._poll.modify(self._listener, select.EPOLLIN)
        for number, _ in self._poll.poll(0):
            if number == self._listener.fileno():
                self._accept(now_us)
                continue
            peer = self._peers[number]
            if not self._pull(peer.connection, peer.lines):
                self._poll.unregister(number)
                peer.connection.close()
                self.bad_before += peer.lines.bad
                del self._peers[number]
        self.wake_us = self._resume_us

    def _accept(self, now_us: int) -> None:
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # The peer has gone before it was taken.
            return
        except OSError:
            self._pause(now_us)
            return
        self._pause_us = 0
        try:
            connection.setblocking(False)
            _watch(connection)
            self._poll.register(connection, select.EPOLLIN)
        except OSError:  # It has gone, or the system watches as many as it can.
            connection.close()
            return
        self._seen += 1
        self._peers[connection.fileno()] = Peer(connection, self._lines(_place(*address[:2])))

    def _pause(self, now_us: int) -> None:
        """Accept nobody for a while. Who waits goes on waiting; a port that is looked at says at once that somebody does."""
        self._pause_us = min(LAST_PAUSE_US, 2 * self._pause_us or FIRST_PAUSE_US)
        self._resume_us = now_us + self._pause_us
        self._poll.modify(self._listener, 0)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.connection.close()
        self._peers.clear()
        self._listener.close()
        self._poll.close()


@dataclass(frozen=True)
class TcpSource(Declared, Source):
    """See `evenflow.sources.tcp_lines`. One partition, on the site that the plan chooses."""

    kind: ClassVar[str] = "tcp_lines"
    uncut: ClassVar[str] = "nobody gives its lines twice, so replicas cannot read them for themselves"
    replayable: ClassVar[bool] = False
    host: str
    port: int
    columns: pa.Schema = field(default_factory=lambda: pa.schema([("line", pa.string())]))
    format: LineFormat = "csv"
    listen: bool = False
    bad_lines: Literal["error", "skip"] = "error"
    on_close: Literal["reconnect", "end"] = "reconnect"
    retries: int = 10
    durability: Literal["kept", "none"] = field(default="kept", metadata=LATER)
    MAY: ClassVar[Mapping[str, May]] = {"port": whole(0, 65535), "columns": row_schema().called("schema"), "retries": whole(0, 10**6)}
    option_owner: ClassVar[str] = "tcp source"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.port == 0 and not self.listen:
            raise OptionError(f"tcp source {self.name}: port is 0, which nobody listens on; give the peer's port, 1 to 65535")
        if self.format == "text" and self.columns.types != [pa.string()]:
            raise QueryError(f"tcp source {self.name}: lines of text are one column of type string, not {self.columns.names}")

    @property
    def name(self) -> str:
        return _place(self.host, self.port)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    @property
    def kept(self) -> bool:
        return self.durability == "kept"

    def partitions(self, sites: int) -> int:
        return 1

    def open(self, partition: int, of: int) -> Reader:
        opened: Callable[[TcpSource], Reader] = ListeningReader if self.listen else ConnectingReader
        return opened(self)
