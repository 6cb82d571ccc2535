"""The proxy on real sockets: it delays, holds what is cut off, breaks connections, and carries what is large."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from evenflow.bench.delaying_proxy import DelayingProxy
from evenflow.errors import EvenflowError

DELAY_MS = 15.0
SHORT_S, LONG_S = 0.15, 20.0


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says everything again, and ends when it is told that no more comes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(taken: socket.socket) -> None:
        with taken:
            try:
                while data := taken.recv(1 << 16):
                    taken.sendall(data)
            except OSError:
                pass  # Broken by the proxy.

    def serve() -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(taken,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(LONG_S)


def dial(proxy: DelayingProxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=LONG_S)


def exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = connection.recv(count - len(found))
        assert data, f"ended after {len(found)} bytes"
        found += data
    return found


def silent(connection: socket.socket) -> bool:
    connection.settimeout(SHORT_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LONG_S)
    return False


def test_there_and_back_take_twice_the_delay(echo: tuple[str, int]) -> None:
    with DelayingProxy(echo, DELAY_MS) as proxy, dial(proxy) as connection:
        for word in (b"first", b"second"):
            began = time.monotonic()
            connection.sendall(word)
            assert exactly(connection, len(word)) == word
            assert time.monotonic() - began >= 2 * DELAY_MS / 1000
        proxy.delay(0.0)
        connection.sendall(b"third")
        assert exactly(connection, 5) == b"third"


def test_what_is_large_comes_whole_and_the_end_behind_it(echo: tuple[str, int]) -> None:
    """More than fits on the way at once, so the sender has to wait in between."""
    large = bytes(range(256)) * (40 << 10)
    with DelayingProxy(echo, 1.0) as proxy, dial(proxy) as connection:

        def send() -> None:
            connection.sendall(large)
            connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert exactly(connection, len(large)) == large
        assert connection.recv(1) == b""
        sender.join(LONG_S)


def test_what_is_cut_off_waits_and_new_connections_too(echo: tuple[str, int]) -> None:
    with DelayingProxy(echo) as proxy, dial(proxy) as before:
        before.sendall(b"a")
        assert exactly(before, 1) == b"a"
        proxy.cut()
        before.sendall(b"b")
        with dial(proxy) as during:
            during.sendall(b"c")
            assert silent(before) and silent(during)
            proxy.heal()
            assert exactly(before, 1) == b"b" and exactly(during, 1) == b"c"


def test_connections_break_and_new_ones_are_taken(echo: tuple[str, int]) -> None:
    with DelayingProxy(echo) as proxy:
        with dial(proxy) as connection:
            connection.sendall(b"a")
            assert exactly(connection, 1) == b"a"
            assert proxy.reset() == 1
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        with dial(proxy) as connection:
            connection.sendall(b"b")
            assert exactly(connection, 1) == b"b"


def test_a_target_that_is_not_there_breaks_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = gone.getsockname()
    with DelayingProxy(nobody) as proxy, pytest.raises(ConnectionResetError), dial(proxy) as connection:
        connection.recv(1)


def test_it_ends_with_its_connections_and_only_on_loopback(echo: tuple[str, int]) -> None:
    proxy = DelayingProxy(echo)
    with dial(proxy) as connection:
        connection.sendall(b"a")
        assert exactly(connection, 1) == b"a"
        proxy.close()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    proxy.cut()
    with pytest.raises(EvenflowError, match="loopback only"):
        DelayingProxy(echo, host="0.0.0.0")


def test_a_stream_of_many_small_messages_needs_one_timer(echo: tuple[str, int]) -> None:
    with DelayingProxy(echo, 20.0) as proxy, dial(proxy) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        most = 0
        for _ in range(200):
            connection.sendall(bytes(8))
            most = max(most, len(proxy.reactor._timers))
        assert exactly(connection, 1_600) == bytes(1_600)
        assert most <= 4
