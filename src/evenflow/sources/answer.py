"""What a server answers to one question by HTTP: all of it, within a time, no more than so many bytes, and its password for nobody else.

The timeout of a socket is one of each read, so a server that drips would hold who asks for as long as it likes, and so would a resolver
that says nothing. So each question is asked in a thread of its own. Who has waited long enough shuts its sockets, and the thread ends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection, InvalidURL
from typing import IO, Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class TooMuch(Exception):
    """The answer has more bytes than it may."""


def ask(url: str, headers: Mapping[str, str], authorization: str = "", *, each_s: float, whole_s: float, most: int) -> bytes:
    """What is answered to a GET. authorization: for the server of `url` alone; whoever it sends us on to does not get it. each_s: of a
    connection or a read; whole_s: of all. most: bytes.

    Raises HTTPError for another status than success, with the address that answered; any other OSError if the answer did not come, or not
    whole, or late; TooMuch; ValueError for what is no address.
    """
    origin(url)
    request = Request(url, headers=dict(headers))
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    asked = _Asked(request, each_s, most)
    thread = threading.Thread(target=asked.run, name="evenflow-answer", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # No more threads.
        raise OSError(str(error)) from error
    try:
        thread.join(whole_s)
        late = thread.is_alive()
    finally:
        asked.give_up()
    if late:
        raise TimeoutError(f"it has not answered within {whole_s:g} s")
    if asked.error is not None:
        raise asked.error
    return asked.body


def origin(url: str) -> str:
    """Whom an address is of: "http://host:port". Raises ValueError for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError(f"{url!r:.100} is no http://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or PORTS[parts.scheme]}"


class _Asked:
    """A question under way. error: why there is no body."""

    def __init__(self, request: Request, each_s: float, most: int) -> None:
        self._request, self._each_s, self._most = request, each_s, most
        self._sockets: list[socket.socket] = []
        self._over = False
        self.body = b""
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with build_opener(_Connecting(self._opened), _SentOn()).open(self._request, timeout=self._each_s) as answer:
                self.body = answer.read(self._most + 1)
                if len(self.body) > self._most:
                    raise TooMuch
                if answer.length:  # To ask for so many bytes at most is not told that the connection has ended before.
                    raise OSError(f"its answer was cut off: {answer.length} bytes of it are missing")
                if not self.body:  # The library takes headers that end in the middle for all of them.
                    raise OSError("its answer is empty, or was cut off")
        except HTTPError as error:
            error.close()
            self.error = error
        except InvalidURL as error:
            self.error = ValueError(str(error))
        except HTTPException as error:
            self.error = OSError(f"its answer is none of HTTP, or was cut off ({type(error).__name__}: {error!s:.100})")
        except Exception as error:
            self.error = error

    def give_up(self) -> None:
        self._over = True
        for each in self._sockets:
            with suppress(OSError):  # It is closed.
                each.shutdown(socket.SHUT_RDWR)

    def _opened(self, sock: socket.socket) -> None:
        self._sockets.append(sock)
        if self._over:
            raise TimeoutError("nobody waits for it any more")


class _Connecting(HTTPHandler, HTTPSHandler):
    """Says which sockets there are: the library keeps them to itself, and gives nobody a response before it has all headers."""

    def __init__(self, opened: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._opened = opened

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(lambda *said, **named: self._told(HTTPConnection(*said, **named)), req)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(lambda *said, **named: self._told(HTTPSConnection(*said, **named)), req)

    def _told(self, connection: HTTPConnection) -> HTTPConnection:
        connect: Callable[[], None] = connection.connect

        def connect_and_tell() -> None:
            connect()
            self._opened(connection.sock)

        connection.connect = connect_and_tell  # type: ignore[method-assign]
        return connection


class _SentOn(HTTPRedirectHandler):
    """Follows where a server sends us on to; the password goes there only if it is the same server."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> Request | None:
        fp.close()  # What comes with it would be read to its end, which may be none.
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        known: dict[str, Any] = req.unredirected_hdrs
        if request is not None and "Authorization" in known and origin(newurl) == origin(req.full_url):
            request.add_unredirected_header("Authorization", known["Authorization"])
        return request


__all__ = ["TooMuch", "ask", "origin"]
