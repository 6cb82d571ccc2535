"""A TCP proxy on loopback that stands for a long way: it delays in order, swallows everything for a while, and breaks connections.

Kernels may lack netem, and nobody need be root for this. One thread of its own carries all connections; `Way` says what arrives when.
A connection that begins while the way is cut is taken, and waits for its other end until the way is whole: a packet that asks for a
connection would be sent again too.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from evenflow.bench.delayed_bytes import Way
from evenflow.errors import EvenflowError
from evenflow.world.spark.net.reactor import READABLE, WRITABLE, Clock, Reactor

READ_BYTES: Final = 1 << 16
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing forgets what is not sent, and the peer is told by RST."""
JOIN_S: Final = 5.0


class DelayingProxy:
    """host: where it listens, at a free port; target: where connections lead to. delay_ms: one way. Its methods may be called by any
    thread, and have had their effect when they return. brought_bytes: from the target to those who dialled, so far."""

    def __init__(self, target: tuple[str, int], delay_ms: float = 0.0, host: str = "127.0.0.1") -> None:
        if not socket.getaddrinfo(host, None)[0][4][0].startswith("127."):  # type: ignore[union-attr]
            raise EvenflowError(f"the proxy listens on loopback only, and {host} is not; give it 127.0.0.1")
        self.target = target
        self.delay_us, self.is_cut = round(delay_ms * 1000), False
        self.clock = Clock()
        self.reactor = Reactor()
        self.connections: dict[_Carried, None] = {}
        self.brought_bytes = 0
        self._listening = socket.create_server((host, 0))
        self._listening.setblocking(False)
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        self._closing = False
        self.reactor.register(self._listening.fileno(), READABLE, self._accept)
        self._thread = threading.Thread(target=self._run, name=f"proxy to {target[1]}", daemon=True)
        self._thread.start()

    def delay(self, delay_ms: float) -> None:
        """Of what is sent from now on, one way. What was sent before is not overtaken."""

        def change() -> None:
            self.delay_us = round(delay_ms * 1000)
            for carried in self.connections:
                carried.delay(self.delay_us)

        self._do(change)

    def cut(self) -> None:
        """Nothing arrives any more, in either direction, and nobody is told."""

        def change() -> None:
            self.is_cut = True
            for carried in self.connections:
                carried.cut()

        self._do(change)

    def heal(self) -> None:
        """What has waited comes, in order, and so does what is sent from now on."""

        def change() -> None:
            self.is_cut = False
            for carried in list(self.connections):
                carried.heal()

        self._do(change)

    def reset(self) -> int:
        """Break all connections; both ends see RST. How many there were."""
        found: list[int] = []

        def change() -> None:
            found.append(len(self.connections))
            for carried in list(self.connections):
                carried.close(reset=True)

        self._do(change)
        return found[0] if found else 0

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.reactor.wake()
            self._thread.join(JOIN_S)

    def __enter__(self) -> DelayingProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------ in the thread of its own

    def _run(self) -> None:
        while not self._closing:
            self.reactor.poll(60.0)
        for carried in list(self.connections):
            carried.close(reset=True)
        self.reactor.unregister(self._listening.fileno())
        self._listening.close()
        self.reactor.close()

    def _do(self, change: Callable[[], None]) -> None:
        if self._closing:
            return
        done = threading.Event()

        def call() -> None:
            change()
            done.set()

        self.reactor.call_soon(call)
        while not done.wait(0.1) and self._thread.is_alive():
            pass

    def _accept(self, events: int) -> None:
        try:
            taken, _ = self._listening.accept()
        except OSError:
            return  # It has gone away meanwhile.
        carried = _Carried(self, taken)
        self.connections[carried] = None
        if not self.is_cut:
            carried.dial()


class _Carried:
    """One connection: who dialled, and the target once it is reached."""

    def __init__(self, proxy: DelayingProxy, taken: socket.socket) -> None:
        self._proxy, self._closed = proxy, False
        self._target: _End | None = None
        self._again_us: int | None = None
        self._ways = Way(proxy.delay_us, proxy.is_cut), Way(proxy.delay_us, proxy.is_cut)
        self._dialler = _End(self, taken, *self._ways)
        self._dialler.watch()

    def dial(self) -> None:
        """Reach the target; what the dialler has sent meanwhile is under way."""
        opened = socket.socket(socket.AF_INET)
        opened.setblocking(False)
        code = opened.connect_ex(self._proxy.target)
        if code not in (0, errno.EINPROGRESS):
            opened.close()
            self.close(reset=True)
            return
        self._target = _End(self, opened, self._ways[1], self._ways[0])
        self._target.watch()
        self.carry()

    def delay(self, delay_us: int) -> None:
        for way in self._ways:
            way.delay_us = delay_us

    def cut(self) -> None:
        for way in self._ways:
            way.cut = True

    def heal(self) -> None:
        for way in self._ways:
            way.heal(self._proxy.clock.now_us())
        if self._target is None:
            self.dial()
        else:
            self.carry()

    def now_us(self) -> int:
        return self._proxy.clock.now_us()

    @property
    def reactor(self) -> Reactor:
        return self._proxy.reactor

    def carry(self) -> None:
        """Hand over what has arrived, and come again when more does."""
        if self._closed or self._target is None:
            return
        now_us = self.now_us()
        for way, to in zip(self._ways, (self._target, self._dialler)):
            for data in way.arrive(now_us):
                to.take(data)
                self._proxy.brought_bytes += len(data) * (to is self._dialler)
        self._come_again(now_us)
        for end in (self._dialler, self._target):
            if not end.flush():
                return
        if self._dialler.is_done and self._target.is_done:
            self.close()

    def _come_again(self, now_us: int) -> None:
        """One timer at a time, but for one that is earlier: bytes come more often than they arrive."""
        due_us = min((at for way in self._ways if (at := way.due_us()) is not None), default=None)
        if due_us is None or (self._again_us is not None and self._again_us <= due_us):
            return
        self._again_us = due_us

        def again() -> None:
            if self._again_us == due_us:
                self._again_us = None
                self.carry()

        self.reactor.call_later(max(0, due_us - now_us) / 1e6, again)

    def close(self, *, reset: bool = False) -> None:
        if self._closed:
            return
        self._closed = True
        self._proxy.connections.pop(self, None)
        for end in (self._dialler, self._target):
            if end is not None:
                end.close(reset=reset)


class _End:
    """A socket at one end. out: the way of what is read here; back: of what is written here."""

    def __init__(self, carried: _Carried, sock: socket.socket, out: Way, back: Way) -> None:
        self._carried, self._sock, self._out, self._back = carried, sock, out, back
        self._waiting: list[bytes] = []
        self._events = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_done(self) -> bool:
        """All that comes here has been written, the end too."""
        return self._back.is_empty and not self._waiting

    def watch(self) -> None:
        """Read while there is room on the way, write while something waits."""
        events = READABLE * (self._out.has_room and not self._out.ended) | WRITABLE * bool(self._waiting)
        if events != self._events:
            fd = self._sock.fileno()
            if self._events == 0:
                self._carried.reactor.register(fd, events, self._ready)
            elif events == 0:
                self._carried.reactor.unregister(fd)
            else:
                self._carried.reactor.modify(fd, events)
            self._events = events

    def take(self, data: bytes) -> None:
        self._waiting.append(data)

    def flush(self) -> bool:
        """Write what has arrived. False: the connection is over."""
        try:
            while self._waiting:
                data = self._waiting[0]
                if not data:
                    self._sock.shutdown(socket.SHUT_WR)
                    self._waiting.pop(0)
                    continue
                sent = self._sock.send(data)
                if sent < len(data):
                    self._waiting[0] = data[sent:]
                else:
                    self._waiting.pop(0)
        except BlockingIOError:
            pass
        except OSError as error:
            # A socket that is still connecting says so; any other trouble ends the connection for both.
            if error.errno not in (errno.ENOTCONN, errno.EAGAIN) or self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._carried.close(reset=True)
                return False
        self.watch()
        return True

    def _ready(self, events: int) -> None:
        if events & ~(READABLE | WRITABLE) and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._carried.close(reset=True)
            return
        if events & WRITABLE and not self.flush():
            return
        if self._events & READABLE and events & ~WRITABLE:
            self._read()
        self._carried.carry()

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._carried.close(reset=True)
            return
        self._out.send(data, self._carried.now_us())
        self.watch()

    def close(self, *, reset: bool) -> None:
        if self._events:
            self._carried.reactor.unregister(self._sock.fileno())
        if reset:
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            except OSError:
                pass
        self._sock.close()
