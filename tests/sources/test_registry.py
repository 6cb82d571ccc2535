"""A schema registry that answers slowly, in part, too much, too deeply, or sends its client elsewhere: real connections on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from evenflow.errors import SourceError
from evenflow.sources import registry
from evenflow.sources.registry import USER, Registry, RegistryAway

SCHEMA = '"string"'
GOOD = json.dumps({"schema": SCHEMA}).encode()
PASSWORD = {USER: "user:password"}
AUTHORIZATION = b"authorization: basic " + base64.b64encode(b"user:password").lower()
Say = Callable[[socket.socket], None]


class Server:
    """Takes requests, notes them, and lets `say` write to each connection, which it closes then. over: after the last one so far."""

    def __init__(self, say: Say) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._say, self.heard, self.over = say, list[bytes](), threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            self.heard.append(request.lower())
            self._say(connection)
        self.over.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def server(say: Say) -> Iterator[Server]:
    made = Server(say)
    try:
        yield made
    finally:
        made.close()


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *headers, "", ""]).encode() + body


def saying(data: bytes) -> Say:
    return lambda connection: connection.sendall(data)


def sending_on(to: str) -> Say:
    return saying(answer(b"", f"Location: {to}", "Content-Length: 0", status="302 Found"))


# ---------------------------------------------------------------- elsewhere


def test_the_password_goes_to_no_other_server() -> None:
    with server(saying(answer(GOOD))) as other, server(sending_on(other.url + "/schemas/ids/1")) as first:
        assert Registry(first.url, PASSWORD).schema(1) == SCHEMA
        assert AUTHORIZATION in first.heard[0]
        assert len(other.heard) == 1 and b"authorization" not in other.heard[0]


def test_the_password_does_not_come_back_by_another_server() -> None:
    """Who was sent on by another server asks for what that one likes."""
    with contextlib.ExitStack() as opened:
        paths: list[str] = []
        other = opened.enter_context(server(lambda connection: sending_on(paths[1])(connection)))
        first = opened.enter_context(
            server(lambda connection: sending_on(paths[0])(connection) if len(first.heard) == 1 else connection.sendall(answer(GOOD)))
        )
        paths += [other.url + "/", first.url + "/chosen"]
        assert Registry(first.url, PASSWORD).schema(1) == SCHEMA
        assert AUTHORIZATION in first.heard[0] and b"authorization" not in first.heard[1]


def test_a_registry_that_sends_on_to_itself_gets_the_password_again() -> None:
    def say(connection: socket.socket) -> None:
        (saying(answer(GOOD)) if len(first.heard) > 1 else sending_on("/other/path"))(connection)

    with server(say) as first:
        assert Registry(first.url, PASSWORD).schema(1) == SCHEMA
        assert [AUTHORIZATION in request for request in first.heard] == [True, True]


def test_another_server_that_wants_the_password_is_named() -> None:
    with server(saying(answer(b"", status="401 Unauthorized"))) as other, server(sending_on(other.url + "/x?secret=1")) as first:
        with pytest.raises(SourceError, match=rf"sends us on to {other.url}, which does not get its password: give that") as caught:
            Registry(first.url, PASSWORD).schema(1)
        assert "secret" not in str(caught.value)


# ---------------------------------------------------------------- in part


@pytest.mark.parametrize(
    "said",
    [
        answer(GOOD[:9], f"Content-Length: {len(GOOD)}"),
        answer(b"", f"Content-Length: {len(GOOD)}"),
        answer(b"%x\r\n%b" % (len(GOOD), GOOD[:9]), "Transfer-Encoding: chunked"),
        answer(b"%x\r\n%b\r\n" % (len(GOOD), GOOD), "Transfer-Encoding: chunked"),
        b"HTTP/1.1 200",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"",
    ],
    ids=["body", "no body", "chunk", "no last chunk", "status", "bad status", "garbage", "long header", "nothing"],
)
def test_an_answer_that_is_cut_off_is_a_registry_that_is_away(said: bytes) -> None:
    with server(saying(said)) as away, pytest.raises(RegistryAway):
        Registry(away.url).schema(1)


# ---------------------------------------------------------------- too deep, too much, no address


@pytest.mark.parametrize("depth", [200, 300, 400, 450, 500, 700, 900, 950, 1000, 100_000])
@pytest.mark.parametrize("around", [b"%b", b'{"schema": %b}'])
def test_json_of_any_depth_is_no_schema(depth: int, around: bytes) -> None:
    with server(saying(answer(around % (b"[" * depth + b"]" * depth)))) as deep, pytest.raises(SourceError, match="is it a registry"):
        Registry(deep.url).schema(1)


def much(head: bytes) -> Say:
    def say(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(64):
            connection.sendall(b" " * (1 << 20))

    return say


@pytest.mark.parametrize("headers", [[], [f"Content-Length: {1 << 50}"]])
def test_an_answer_without_an_end_does_not_fill_the_memory(headers: list[str]) -> None:
    with server(much(answer(b"", *headers))) as endless:
        with pytest.raises(SourceError, match=rf"has more than {registry.MOST_BYTES} bytes; is it a registry"):
            Registry(endless.url).schema(1)
        assert endless.over.wait(5)


def test_what_comes_with_a_redirection_is_not_read() -> None:
    sent: list[int] = []

    def say(connection: socket.socket) -> None:
        if len(first.heard) > 1:
            connection.sendall(answer(GOOD))
            return
        connection.sendall(answer(b"", "Location: /other", status="302 Found"))
        for _ in range(64):
            connection.sendall(b" " * (1 << 20))
            sent.append(1 << 20)

    with server(say) as first:
        assert Registry(first.url).schema(1) == SCHEMA
        assert first.over.wait(5) and sum(sent) < 32 << 20


@pytest.mark.parametrize(
    "url", ["registry:8081", "http://registry:port", "http://" + "a" * 70 + ".invalid", "nothing", "http://with a blank:1"]
)
def test_what_is_no_address_says_so(url: str) -> None:
    with pytest.raises(SourceError, match="is no address of a registry"):
        Registry(url).schema(1)


# ---------------------------------------------------------------- slow


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nX: ", answer(b'{"')], ids=["nothing", "headers", "body"])
def test_who_drips_is_given_up_in_time(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the time of an answer is bounded, not that of each read. Method: a byte now and then for 10 s; the connection is given back."""
    monkeypatch.setattr(registry, "WHOLE_S", 0.3)
    stop, dripped = threading.Event(), list[int]()

    def say(connection: socket.socket) -> None:
        connection.sendall(begun)
        for _ in range(1000):
            if stop.wait(0.01):
                return
            connection.sendall(b"x" if begun else b"")
            dripped.append(1)

    with server(say) as slow:
        with pytest.raises(RegistryAway, match=r"has not answered within 0\.3 s"):
            Registry(slow.url).schema(1)
        assert len(dripped) < 500
        if begun:
            assert slow.over.wait(5) and len(dripped) < 900, "who drips sees that nobody listens any more"
        left = [thread for thread in threading.enumerate() if thread.name == "evenflow-answer"]
        for thread in left:
            thread.join(5)
        assert not any(thread.is_alive() for thread in left)
        stop.set()
