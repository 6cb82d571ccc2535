"""One authenticated connection: sealed messages into and out of a non-blocking socket; and a line, which outlives its connections.

A body that arrives in one piece with others is copied out of the shared receive buffer (at most `SMALL_BYTES`); a larger one is
received straight into memory of its own, which its rows then refer to. Bodies are 8-byte aligned, as Arrow wants them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from evenflow.errors import MessageForged, ProtocolError, UnreadableMessage
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.framing import HEADER, Piece, body_length, length_of
from evenflow.world.spark.net.reactor import READABLE, WRITABLE, Reactor
from evenflow.world.spark.net.tls import TlsSocket

SMALL_BYTES: Final = 64 * 1024
PIECES_MAX: Final = 512
"""Buffers handed to one sendmsg; the system's limit is 1,024."""

GARBLED_MAX: Final = 3
"""Connections that may be closed because of what the other end said, before it is given up: it is a bug, and goes on for ever."""

log = logging.getLogger("evenflow")

OnMessage = Callable[["Channel", int, "bytes | memoryview"], object]
OnClose = Callable[["Channel", str], None]


class Channel:
    """on_message(channel, kind, body) for each message, on_close(channel, reason) once, when the other end or the link is gone.

    What on_message raises is raised by the reactor's `poll`, and the connection is as good as before; but a ProtocolError closes it.
    `close` by our own hand does not call on_close. queued_bytes: what the socket has not taken yet. sent, received: how many times bytes
    went out or came in, so that who looks now and then sees whether the link was silent meanwhile, and nobody asks the clock for every
    message. garbled: it was closed because the other end said something that cannot be read. A message without the
    right seal is not the other end's doing: the connection ends as if it had been cut. When the other end takes nothing any more, what it
    has said before is handed out first: a process may have said over what it was going to die.
    """

    def __init__(self, connection: Connection, reactor: Reactor, on_message: OnMessage, on_close: OnClose) -> None:
        self._sock, self._seals = connection.sock, connection.seals
        self._sock.setblocking(False)
        self._fd, self._reactor = self._sock.fileno(), reactor
        # What TLS has taken and not handed out yet no epoll tells of.
        self._pending: Callable[[], bool] | None = None
        if isinstance(self._sock, TlsSocket):
            self._sock.reads_ahead, self._pending = True, self._sock.pending
        self._on_message, self._on_close = on_message, on_close
        self._small = memoryview(bytearray(SMALL_BYTES + HEADER.size))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_kind = self._large_filled = 0
        self._large_seal = b""
        self._out: deque[memoryview] = deque()
        self.queued_bytes = 0
        self.sent = self.received = 0
        self.closed = self.garbled = self._mute = False
        reactor.register(self._fd, READABLE, self._ready)

    # ------------------------------------------------------------ out

    def send(self, kind: int, pieces: list[Piece]) -> None:
        """Send a message, or as much as the socket takes now and the rest when it can. Does nothing on a closed channel."""
        if self.closed or self._mute:
            return
        pieces = self._seals.seal(kind, pieces)
        self.sent += 1
        if self._out:
            self._enqueue(pieces, 0)
            return
        if len(pieces) > PIECES_MAX:
            self._enqueue(pieces, 0)
            self._flush()
            return
        try:
            if len(pieces) == 1:
                sent = self._sock.send(pieces[0])
                if sent == len(pieces[0]):
                    return
            else:
                sent = self._sock.sendmsg(pieces)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sent_in_vain(f"sending failed: {error}")
            return
        self._enqueue(pieces, sent)

    def _enqueue(self, pieces: list[Piece], sent: int) -> None:
        """Queue what is left of the pieces after `sent` bytes."""
        idle = not self._out
        for piece in pieces:
            length = len(piece)
            if sent >= length:
                sent -= length
                continue
            view = memoryview(piece).cast("B") if not isinstance(piece, memoryview) else piece
            self._out.append(view[sent:])
            self.queued_bytes += length - sent
            sent = 0
        if idle and self._out:
            self._reactor.modify(self._fd, READABLE | WRITABLE)

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._sock.sendmsg([out[i] for i in range(min(len(out), PIECES_MAX))])
                self.queued_bytes -= sent
                self.sent += 1
                while out and sent >= len(out[0]):
                    sent -= len(out.popleft())
                if sent:
                    out[0] = out[0][sent:]
        except BlockingIOError:
            return
        except OSError as error:
            self._sent_in_vain(f"sending failed: {error}")
            return
        self._reactor.modify(self._fd, READABLE)

    # ------------------------------------------------------------ in

    def _ready(self, events: int) -> None:
        if events & WRITABLE and not self._mute:
            self._flush()
        if events & ~WRITABLE and not self.closed:
            self._read()
            while self._pending is not None and not self.closed and self._pending():
                self._read()

    def _read(self) -> bool:
        """Take in what has come. Whether there may be more. What a handler raises goes on to whoever polls, an OSError too: it is none of
        this socket's. Only ProtocolError, over what cannot be read, ends the connection."""
        try:
            more = self._receive()
        except MessageForged as error:
            log.warning("a connection is closed: %s", error)
            self._fail(str(error))
        except ProtocolError as error:
            self.garbled = True
            self._fail(str(error))
        else:
            return more and not self.closed
        return False

    def _receive(self) -> bool:
        if self._large is not None:
            return self._receive_large(self._large)
        count = self._receive_into(self._small[self._filled :])
        if not count:
            return False
        self._filled += count
        self._take_messages()
        return True

    def _receive_into(self, space: memoryview) -> int:
        """How many bytes have come. 0: none for now, or none any more, and then the channel is closed."""
        try:
            count = self._sock.recv_into(space)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._fail(f"receiving failed: {error}")
            return 0
        if count == 0:
            self._fail("the other end has closed the connection" + (" in the middle of a message" if self._large is not None else ""))
            return 0
        self.received += 1
        return count

    def _take_messages(self) -> None:
        """Hand out every whole message in the small buffer; move what is left to its front. Who raises over a message gets it once."""
        small, at, end = self._small, 0, self._filled
        try:
            while end - at >= HEADER.size:
                kind, length, seal = body_length(small, at)
                start = at + HEADER.size
                if length > SMALL_BYTES:
                    at = end
                    self._begin_large(kind, length, seal, small[start:end])
                    return
                if end - start < length:
                    break
                at = start + length
                body = bytes(small[start:at])
                self._seals.check(kind, seal, body)
                self._on_message(self, kind, body)
                if self.closed:
                    return
        finally:
            if at and end > at:
                small[: end - at] = bytes(small[at:end])
            self._filled = end - at

    def _begin_large(self, kind: int, length: int, seal: bytes, beginning: memoryview) -> None:
        self._large = memoryview(pa.allocate_buffer(length)).cast("B")
        self._large[: len(beginning)] = beginning
        self._large_kind, self._large_seal, self._large_filled = kind, seal, len(beginning)
        self._receive_large(self._large)

    def _receive_large(self, large: memoryview) -> bool:
        """Receive until the body is whole or the socket is empty. Never reads beyond the body. Whether it is whole."""
        while self._large_filled < len(large):
            count = self._receive_into(large[self._large_filled :])
            if not count:
                return False
            self._large_filled += count
        self._large = None
        self._seals.check(self._large_kind, self._large_seal, large)
        self._on_message(self, self._large_kind, large)
        return True

    # ------------------------------------------------------------ end

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._reactor.unregister(self._fd)
            self._sock.close()
            self._out.clear()
            self.queued_bytes = 0

    def _sent_in_vain(self, reason: str) -> None:
        """The other end takes nothing any more. Not in the middle of a message that is being handed out: that one comes first."""
        self._mute = True
        self._out.clear()
        self.queued_bytes = 0
        self._reactor.call_soon(lambda: self._end(reason))

    def _end(self, reason: str) -> None:
        while not self.closed and self._read():
            pass
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._on_close(self, reason)


class Line:
    """Messages in order, each once, over one connection after the other.

    Both ends count the messages that they have taken, and say so to each other now and then (`confirmed`) and whenever there is a new
    connection (`resume`). A connection keeps order and loses only its end, so the count says what has to be sent again. keeps: what has
    not been confirmed is kept; without it a line is as good as its first connection. on_message(kind, body).

    A message that cannot be read (on_message raises UnreadableMessage) is not counted: its connection ends, and it is said again over the
    next one. garbled: how many connections in a row have ended because of what was said; who sees GARBLED_MAX gives the other end up.
    """

    def __init__(self, on_message: Callable[[int, bytes | memoryview], None], keeps: bool) -> None:
        self._on_message, self._keeps = on_message, keeps
        self._channel: Channel | None = None
        self._kept: deque[tuple[int, list[Piece]]] = deque()
        self._sent = 0
        self.taken = self.garbled = 0

    @property
    def connected(self) -> bool:
        return self._channel is not None

    def send(self, kind: int, pieces: list[Piece]) -> None:
        """Raises ProtocolError if it is more than a message may have: then nothing was said, and the line is as it was."""
        length_of(pieces)
        self._sent += 1
        if self._keeps:
            self._kept.append((kind, pieces))
        if self._channel is not None:
            self._channel.send(kind, pieces)

    def take(self, channel: Channel, kind: int, body: bytes | memoryview) -> bool:
        """A message has come over a connection. False if it is not this line's: what came over an older one is said again over this."""
        if channel is not self._channel:
            return False
        read = 1
        try:
            self._on_message(kind, body)
            self.garbled = 0
        except UnreadableMessage:
            read = 0
            raise
        finally:
            self.taken += read  # Not before: what is confirmed meanwhile will not be said again.
        return True

    def confirmed(self, taken: int) -> None:
        """The other end has taken so many messages in all: they need not be kept any more."""
        while self._kept and self._sent - len(self._kept) < taken:
            self._kept.popleft()

    def resume(self, channel: Channel, taken: int) -> None:
        """Go on over a new connection, whose other end has taken so many messages."""
        if self._channel is not None:
            self._channel.close()
        self._channel = channel
        self.confirmed(taken)
        for kind, pieces in self._kept:
            channel.send(kind, pieces)

    def lost(self, channel: Channel) -> bool:
        """A connection has ended. Whether it was this line's, which now has none."""
        if channel is not self._channel:
            return False
        self._channel = None
        self.garbled += channel.garbled
        return True

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._kept.clear()
